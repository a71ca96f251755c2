"""Delete, cut and change the store behind the back of the queue: nothing runs twice, nothing that
never ran is called done, and what was lost is reported."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.jobs import Cancelled, Changes, Done, Event, Lost, Queued, Spec
from gpudeck.scheduler.protocol.wait_reasons import SpecDamaged
from gpudeck.scheduler.store import Store, carve
from gpudeck.scheduler.store.checksums import mark_of
from gpudeck.scheduler.store.repair import examine, rebuild
from tests.support import eventually
from tests.unit.scheduler.own_queue import CPU, ended, make_queue, submit, wait_reason


def delete_store() -> None:
    for suffix in ("", "-wal", "-shm"):
        paths.store_file().with_name(paths.store_file().name + suffix).unlink(missing_ok=True)


@pytest.mark.parametrize("back", [0.0, 86400.0])
@pytest.mark.parametrize("retries", [0, 1])
def test_a_job_of_a_new_store_is_not_done_by_a_record_of_the_deleted_one(
    store: Store, tmp_path: Path, back: float, retries: int
) -> None:
    """Set the clock back, so that the old record is newer than the new job."""
    ran = tmp_path / "ran"
    queue = make_queue(store)
    first = submit(queue, "sh", "-c", f"echo first >> {ran}; exit 3", retries=retries, backoff=0.0)
    eventually(lambda: (queue.step([CPU]), ended(queue, first))[1])
    submitted = queue.get(first).submitted - back
    store.close()
    delete_store()
    new = Store(paths.store_file())
    job = new.insert(
        Spec(("sh", "-c", f"echo second >> {ran}"), "x", "/"), submitted + 1e-6, Queued()
    )
    assert job.id == first
    queue = make_queue(new)
    queue.recover()
    assert isinstance(queue.get(first).state, Queued)
    queue.step([CPU])
    eventually(lambda: ended(queue, first))
    assert isinstance(queue.get(first).state, Done)
    assert ran.read_text().split() == ["first"] * (1 + retries) + ["second"]
    new.close()


def cut_log(keep: Callable[[int], int]) -> None:
    log = paths.store_file().with_name(f"{paths.store_file().name}-wal")
    os.truncate(log, keep(log.stat().st_size))


def crashed() -> Path:
    """Return a copy of the state folder as a daemon leaves it that is killed: with its log."""
    return Path(shutil.copytree(paths.home(), paths.home().with_name("crashed")))


def queued_jobs(store: Store) -> list[int]:
    """Store a job in the file, then two in the log alone, of which one is cancelled."""
    first = store.insert(Spec(("true",), "first", "/"), 1.0, Queued())
    store.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    second = store.insert(Spec(("true",), "second", "/"), 2.0, Queued())
    third = store.insert(Spec(("true",), "third", "/"), 3.0, Queued())
    store.update(msgspec.structs.replace(third, state=Cancelled(4.0)), Event(4.0, "cancelled"))
    return [first.id, second.id, third.id]


@pytest.mark.parametrize("part", [0.0, 0.4])
def test_jobs_whose_records_are_gone_with_the_log_are_called_lost(
    store: Store, monkeypatch: pytest.MonkeyPatch, part: float
) -> None:
    numbers = queued_jobs(store)
    monkeypatch.setenv("GPUDECK_HOME", str(crashed()))
    cut_log(lambda size: int(size * part))
    assert "the newest changes of the store" in str(examine(paths.store_file(), ()))
    found = Store(paths.store_file())
    assert "the newest changes of the store" in str(found.loss)
    gone = [job for job in map(found.get, numbers) if isinstance(job.state, Lost)]
    assert found.get(numbers[0]).status == "queued"
    assert gone or part
    assert [e.what for e in found.timeline(numbers[0])] == ["submitted", "store damaged"]
    new = found.insert(Spec(("true",), "new", "/"), 5.0, Queued())
    assert new.id == numbers[-1] + 1, "no number is given twice"
    queue = make_queue(found)
    problem = queue.store_problem()
    assert problem is not None and "the newest changes of the store" in str(problem)
    found.close()
    again = Store(paths.store_file())
    assert not again.loss, "it is said once"
    assert not examine(paths.store_file(), ())
    again.close()


def test_a_store_that_was_deleted_is_reported(store: Store) -> None:
    queued_jobs(store)
    store.close()
    delete_store()
    new = Store(paths.store_file())
    assert f"the store {paths.store_file()} was deleted, and all that it held of jobs 1 to 3" in (
        str(new.loss)
    )
    assert new.insert(Spec(("true",), "new", "/"), 5.0, Queued()).id == 1
    new.close()


def test_a_store_that_was_closed_or_killed_has_lost_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    queued_jobs(store)
    monkeypatch.setenv("GPUDECK_HOME", str(crashed()))
    for _ in range(2):
        found = Store(paths.store_file())
        assert not found.loss
        assert found.insert(Spec(("true",), "new", "/"), 5.0, Queued()).damaged is False
        found.close()
    assert not examine(paths.store_file(), ())


def test_a_waiting_job_whose_command_was_changed_in_the_store_never_starts(
    store: Store, tmp_path: Path
) -> None:
    queue = make_queue(store)
    changed = submit(queue, "touch", str(tmp_path / "right"))
    other = submit(queue)
    ended_before = submit(queue, hold=True)
    queue.canceller.cancel(ended_before)
    for number in (changed, ended_before):
        store.connection.execute(
            "UPDATE jobs SET spec = replace(spec, 'right', 'wrong'), "
            "spec = replace(spec, '\"x\"', '\"y\"') WHERE id = ?",
            (number,),
        )
    store.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    named = f"the command or options of jobs {changed}, {ended_before} were changed or damaged"
    assert str(examine(paths.store_file(), ())) == named
    queue = make_queue(store)
    queue.recover()
    queue.step([CPU])
    eventually(lambda: ended(queue, other))
    queue.editor.edit(changed, Changes(hold=False, notes="run it"), [CPU])
    queue.step([CPU])
    assert wait_reason(queue, changed) == SpecDamaged()
    assert queue.get(changed).damaged and queue.get(ended_before).damaged
    assert not queue.get(other).damaged
    problem = queue.store_problem()
    assert problem is not None and f"of job {changed} were changed or damaged" in str(problem)
    assert make_queue(store).get(changed).damaged, "an edit does not make it sound"
    assert sorted(tmp_path.glob("wrong")) == sorted(tmp_path.glob("right")) == []
    queue.canceller.cancel(changed)
    assert queue.store_problem() is None


def test_a_repair_keeps_changed_jobs_and_names_them(store: Store) -> None:
    numbers = queued_jobs(store)
    store.connection.execute("UPDATE jobs SET spec = replace(spec, 'first', 'worst') WHERE id = 1")
    store.close()
    assert rebuild(paths.store_file(), ()).changed == [numbers[0]]
    found = Store(paths.store_file())
    assert [found.get(number).damaged for number in numbers] == [True, False, False]
    assert [e.what for e in found.timeline(1)] == ["submitted", "store damaged"]
    assert not found.loss
    found.close()
    assert not examine(paths.store_file(), ())


def test_a_commit_is_not_refused_for_a_mark_that_cannot_be_written(store: Store) -> None:
    mark = mark_of(paths.store_file())
    mark.unlink(missing_ok=True)
    mark.mkdir()
    store.close()
    found = Store(paths.store_file())
    assert found.insert(Spec(("true",), "x", "/"), 1.0, Queued()).id == 1
    found.close()
    found = Store(paths.store_file())
    assert not found.loss and found.get(1).status == "queued"
    found.close()


def test_long_rows_of_a_damaged_file_are_recovered_whole(tmp_path: Path) -> None:
    """A long command, or environment, does not fit on a page of the file."""
    rows = {1: b"short", 2: bytes(range(256)) * 12, 3: bytes(range(256)) * 80, 4: b"x" * 4000}
    with sqlite3.connect(tmp_path / "store") as connection:
        connection.execute("CREATE TABLE jobs (id INTEGER PRIMARY KEY, spec BLOB)")
        connection.executemany("INSERT INTO jobs VALUES (?, ?)", rows.items())
    connection.close()
    file = (tmp_path / "store").read_bytes()
    found = {row.id: row.values[1] for row in carve.rows(file, b"") if len(row.values) == 2}
    assert found == rows
