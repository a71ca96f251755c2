"""The store: what is acknowledged is on disk, what is refused changed nothing, and strange files
are refused in one line."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol.errors import NotFound, UserError
from gpudeck.scheduler.protocol.jobs import (
    LISTED_RESULT,
    Cancelled,
    Done,
    Event,
    Failed,
    Job,
    Lost,
    Progress,
    Queued,
    Running,
    Spec,
    Starting,
    State,
    queued,
)
from gpudeck.scheduler.protocol.wait_reasons import StartFailed
from gpudeck.scheduler.store import Store
from gpudeck.scheduler.store.environments import EnvironmentLost
from gpudeck.scheduler.store.migrate import SCHEMA_VERSION

SPEC = Spec(
    ("python", "a b.py", "ü\n'\""),
    "träin",
    "/tmp/ü",
    {"SECRET": "s3cret", "PATH": "/bin"},
    2,
    "attention",
    {"seq": "128"},
)
STATES: list[State] = [
    queued(StartFailed("job 1 is before it"), 0.0),
    Starting("nonce", ("GPU-0", "GPU-1"), 1.5),
    Running(
        "nonce", ("GPU-0",), 1.5, 4711, 99, "boot", Progress(1.0, 2.0, "x", 3.0, 4.0), stopping=True
    ),
    Done(1.0, 2.0, ("GPU-0",), msgspec.Raw(b'{"tflops": 1}')),
    Failed(1.0, 2.0, "exit code 3: ü", 3),
    Cancelled(2.0),
    Lost(1.0, 2.0, "the machine was restarted", ("cpu",)),
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "home" / "gpudeck.sqlite"


@pytest.fixture
def store(file: Path) -> Iterator[Store]:
    found = Store(file)
    yield found
    found.close()


def same(a: object, b: object) -> bool:
    return msgspec.json.encode(a) == msgspec.json.encode(b)


@pytest.mark.parametrize("state", STATES, ids=lambda s: type(s).__name__)
def test_a_job_comes_back_as_it_went_in(store: Store, file: Path, state: State) -> None:
    job = store.insert(SPEC, 10.0, Queued())
    updated = store.update(msgspec.structs.replace(job, state=state))
    store.close()
    again = Store(file)
    assert same(again.get(job.id), updated)
    assert [j.id for j in again.active()] == ([job.id] if updated.active else [])
    assert same(again.recent(10), [updated])
    if updated.active:
        assert again.env(job.id) == SPEC.env
    else:
        with pytest.raises(EnvironmentLost):  # one that ended needs it no more
            again.env(job.id)
    again.close()


def test_the_environment_stays_inside(store: Store) -> None:
    job = store.insert(SPEC, 10.0, Queued())
    assert job.spec.env == {}
    assert store.get(job.id).spec.env == {}
    assert b"s3cret" not in msgspec.json.encode([store.active(), store.recent(9)])


def test_a_timeline_event_is_committed_with_its_change(store: Store, file: Path) -> None:
    one, other = store.insert_all([SPEC, SPEC], 10.0, Queued())
    store.update(
        msgspec.structs.replace(one, state=Cancelled(12.0), tries=2, place=0.5),
        Event(12.0, "cancelled", "ü\n'"),
    )
    page_limit(store, 0)
    with pytest.raises(UserError, match="disk is full"):
        store.update(other, Event(13.0, "held", "x" * 100_000))
    store.close()
    again = Store(file)
    assert again.timeline(one.id) == [Event(10.0, "submitted"), Event(12.0, "cancelled", "ü\n'")]
    assert again.timeline(other.id) == [Event(10.0, "submitted")]
    assert (again.get(one.id).tries, again.get(one.id).place, again.get(other.id).place) == (
        2,
        0.5,
        None,
    )
    again.close()


def test_texts_of_a_timeline_stay_values_and_older_strings_stay_readable(store: Store) -> None:
    job = store.insert(SPEC, 10.0, Queued())
    texts = (
        phrase("none of {n} attempts began: {problem}", n=3, problem="disk {full}"),
        "exit code 1: a string of an older version",
        '{"type":"text","key":7}',
    )
    store.update(job, *(Event(20.0, "failed", text) for text in texts))
    assert tuple(event.text for event in store.timeline(job.id)[-3:]) == texts


def test_many_jobs_are_added_whole_or_not_at_all(store: Store) -> None:
    assert [job.id for job in store.insert_all([SPEC] * 3, 1.0, Queued())] == [1, 2, 3]
    page_limit(store, 0)
    with pytest.raises(UserError, match="disk is full"):
        store.insert_all([SPEC] * 1000, 2.0, Queued())
    assert [job.id for job in store.active()] == [1, 2, 3]


def test_numbers_are_never_given_twice(store: Store, file: Path) -> None:
    first = store.insert(SPEC, 1.0, Queued()).id
    with sqlite3.connect(file) as db:
        db.execute("DELETE FROM jobs")
    assert store.insert(SPEC, 1.0, Queued()).id > first


@pytest.mark.parametrize("number", [0, -1, 42, 2**63 - 1, 2**63, 10**30])
def test_an_unknown_job(store: Store, number: int) -> None:
    with pytest.raises(NotFound, match=f"there is no job {number}"):
        store.get(number)


def test_only_the_owner_may_read_it(store: Store, file: Path) -> None:
    store.insert(SPEC, 1.0, Queued())
    modes = {f.name: f.stat().st_mode & 0o777 for f in file.parent.iterdir()}
    assert modes == {
        "gpudeck.sqlite": 0o600,
        "gpudeck.sqlite-wal": 0o600,
        "gpudeck.sqlite-shm": 0o600,
        "gpudeck.sqlite.mark": 0o600,
    }
    assert file.parent.stat().st_mode & 0o777 == 0o700


def test_an_open_file_that_was_copied_here_is_closed_to_others(file: Path) -> None:
    Store(file).close()
    file.chmod(0o644)
    Store(file).close()
    assert file.stat().st_mode & 0o777 == 0o600


def refused(file: Path) -> str:
    with pytest.raises(UserError) as caught:
        Store(file)
    assert "\n" not in str(caught.value)
    assert str(file) in str(caught.value)
    return str(caught.value)


def test_a_newer_schema_is_refused_and_left_alone(store: Store, file: Path) -> None:
    store.insert(SPEC, 1.0, Queued())
    store.close()
    with sqlite3.connect(file) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    before = file.read_bytes()
    assert f"newer GPU Deck (schema 99; this one knows {SCHEMA_VERSION})" in refused(file)
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    "content",
    [
        b"not a database, but a text long enough to have a header" * 100,
        b"SQLite format 3\0" + b"\xff" * 5000,
    ],
)
def test_a_file_that_is_no_database_is_refused_and_left_alone(file: Path, content: bytes) -> None:
    file.parent.mkdir()
    file.write_bytes(content)
    assert "damaged" in refused(file)
    assert file.read_bytes() == content


def test_a_damaged_page_is_reported_in_one_line(store: Store, file: Path) -> None:
    for _ in range(200):
        store.insert(SPEC, 1.0, Queued())
    store.close()
    data = bytearray(file.read_bytes())
    data[4096:] = b"\xa5" * (len(data) - 4096)
    file.write_bytes(data)
    with pytest.raises(UserError, match="damaged"):
        Store(file).active()


def test_the_garbled_name_of_a_column_is_damage_and_no_bug_of_ours(
    store: Store, file: Path
) -> None:
    store.close()
    file.write_bytes(file.read_bytes().replace(b"submitted", b"sub|itted"))
    assert "damaged" in refused(file)


def test_a_folder_in_its_place_is_refused(file: Path) -> None:
    file.mkdir(parents=True)
    assert "cannot be used" in refused(file)


def page_limit(store: Store, more: int) -> None:
    """A real SQLITE_FULL: SQLite itself refuses to grow the file beyond so many pages."""
    (pages,) = store.connection.execute("PRAGMA page_count").fetchone()
    store.connection.execute(f"PRAGMA max_page_count = {pages + more}")


def test_a_full_disk_refuses_in_one_line_and_leaves_nothing_half_written(
    store: Store, file: Path
) -> None:
    kept = store.insert(SPEC, 1.0, Queued())
    page_limit(store, 0)
    long = msgspec.structs.replace(SPEC, argv=("x" * 100_000,))
    for _ in range(3):
        with pytest.raises(UserError, match=r"disk is full.*Free some space") as caught:
            store.insert(long, 2.0, Queued())
        assert "\n" not in str(caught.value)
        with pytest.raises(UserError, match="disk is full"):
            store.update(msgspec.structs.replace(kept, state=Failed(0.0, 1.0, "x" * 100_000)))
    assert same(store.recent(10), [kept])
    page_limit(store, 1000)
    added = store.insert(long, 2.0, Queued())
    store.close()
    again = Store(file)
    assert same([again.get(job.id) for job in again.recent(10)], [added, kept])
    again.close()


def test_a_second_writer_is_distinguished_from_a_full_disk(store: Store, file: Path) -> None:
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    began = time.monotonic()
    with pytest.raises(UserError, match="locked"):
        store.insert(SPEC, 1.0, Queued())
    assert time.monotonic() - began < 4, "nobody is answered meanwhile"
    other.close()
    assert store.insert(SPEC, 1.0, Queued()).id == 1


def test_jobs_are_listed_newest_first_and_active_oldest_first(store: Store) -> None:
    jobs = [store.insert(SPEC, float(i), Queued()) for i in range(5)]
    store.update(Job(jobs[2].id, SPEC, 2.0, Cancelled(9.0)))
    assert [j.id for j in store.recent(3)] == [5, 4, 3]
    assert [j.id for j in store.active()] == [1, 2, 4, 5]


def test_a_forgotten_environment_is_nowhere_in_the_file(store: Store, file: Path) -> None:
    job = store.insert(SPEC, 1.0, Queued())
    store.update(msgspec.structs.replace(job, state=Cancelled(2.0)))
    store.close()
    assert b"s3cret" not in b"".join(f.read_bytes() for f in file.parent.iterdir())


def rows(store: Store) -> int:
    (found,) = store.connection.execute("SELECT count(*) FROM environments").fetchone()
    return int(found)


def test_the_environment_of_a_batch_is_stored_once_until_its_last_job_has_ended(
    store: Store, file: Path
) -> None:
    """Submitted together or one by one; in the very order in which its variables came."""
    env = {"Z": "s3cret" + "x" * 4000, "A": "ü\n'\"", "EMPTY": ""}
    specs = [msgspec.structs.replace(SPEC, env=env)] * 300 + [
        msgspec.structs.replace(SPEC, env=dict(env))
    ]
    jobs = [*store.insert_all(specs, 1.0, Queued()), store.insert(specs[0], 2.0, Queued())]
    other = store.insert(msgspec.structs.replace(SPEC, env={**env, "A": "another"}), 2.0, Queued())
    assert rows(store) == 2
    for job in jobs[:-1]:
        store.update(msgspec.structs.replace(job, state=Cancelled(2.0)))
    assert list(store.env(jobs[-1].id).items()) == list(env.items())
    store.update(msgspec.structs.replace(jobs[-1], state=Cancelled(2.0)))
    assert rows(store) == 1
    assert store.env(other.id) == {**env, "A": "another"}
    store.update_all([(msgspec.structs.replace(other, state=Cancelled(2.0)), ())])
    assert rows(store) == 0
    store.close()
    data = b"".join(f.read_bytes() for f in file.parent.iterdir())
    assert b"s3cret" not in data
    assert len(data) < 300 * 4000


GARBLED = {
    "gone": "DELETE FROM environments",
    "another": """UPDATE environments SET env = '{"PATH":"/nowhere"}'""",
    "cut": "UPDATE environments SET env = '{'",
    "not UTF-8": "UPDATE environments SET env = CAST(x'7bff' AS TEXT)",
    "another's name": "UPDATE environments SET digest = replace(digest, substr(digest, 1, 1), 'x')",
    "no reference": "UPDATE jobs SET env = ''",
}


@pytest.mark.parametrize("how", GARBLED)
def test_an_environment_that_is_not_as_it_was_is_none(store: Store, how: str) -> None:
    job = store.insert(SPEC, 1.0, Queued())
    store.connection.execute(GARBLED[how])
    with pytest.raises(EnvironmentLost, match=r"lost or damaged.*Submit the job again"):
        store.env(job.id)
    healed = store.insert(SPEC, 2.0, Queued())
    assert store.env(healed.id) == SPEC.env, "the next job with it stores it anew"


def test_a_pause_is_remembered(store: Store, file: Path) -> None:
    assert not store.paused()
    store.pause(True)
    store.close()
    again = Store(file)
    assert again.paused()
    again.pause(False)
    assert not again.paused()
    again.close()


@pytest.mark.parametrize(("size", "large"), [(LISTED_RESULT, False), (LISTED_RESULT + 1, True)])
def test_a_list_leaves_out_large_results_and_says_so(store: Store, size: int, large: bool) -> None:
    result = msgspec.Raw(b'"' + b"x" * (size - 2) + b'"')
    for state in (Done(1.0, 2.0, (), result), Failed(1.0, 2.0, "exit code 3", 3, (), result)):
        job = store.insert(SPEC, 1.0, Queued())
        store.update(msgspec.structs.replace(job, state=state))
        shown = store.recent(1)[0]
        assert isinstance(shown.state, Done | Failed)
        assert (shown.result is None, shown.state.large) == (large, large)
        assert store.get(job.id).result == bytes(result)


def test_of_a_large_result_a_list_keeps_what_is_small(store: Store) -> None:
    result = {
        "verdict": "pass",
        "tflops": 1.5,
        "cells": ["x" * 100] * 200,
        "versions": {"torch": "2"},
        "more": "y" * 9000,
        "most": "z" * 9001,
    }
    job = store.insert(SPEC, 1.0, Queued())
    store.update(
        msgspec.structs.replace(
            job, state=Done(1.0, 2.0, (), msgspec.Raw(msgspec.json.encode(result)))
        )
    )
    shown = store.recent(1)[0]
    assert isinstance(shown.state, Done) and shown.state.large and shown.result is not None
    assert msgspec.json.decode(shown.result) == {
        name: result[name] for name in ("verdict", "tflops", "versions", "more")
    }
    assert len(shown.result) <= LISTED_RESULT
    assert store.get(job.id).result == msgspec.json.encode(result)
