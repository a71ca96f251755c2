"""A submission is sent again with its token after the daemon was killed and its store was damaged,
deleted or replaced by an older one: nothing runs twice, and nothing is left out."""

from __future__ import annotations

import shutil
import sqlite3
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gpudeck.app.cli.queue import delivery
from gpudeck.scheduler import client as client_module
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.errors import OutcomeUnknown, UserError
from gpudeck.scheduler.protocol.jobs import Job, Queued, Spec
from gpudeck.scheduler.store import Store
from gpudeck.scheduler.store.migrate import SCHEMA_VERSION
from tests.integration.deck import daemon_pid, kill_daemon, ready
from tests.support import eventually, lives

WAIT_S = 40.0
TOKEN = "a-token"


class Machine:
    """Submit jobs that write down their beginnings, and damage the store."""

    def __init__(self, folder: Path) -> None:
        self.ledger, self.go, self._backup = folder / "ledger", folder / "go", folder / "backup"

    def back_up(self) -> None:
        """Keep a copy of the store as it is now, whole."""
        with Client() as deck:
            ready(deck).stop_daemon()
        eventually(lambda: not store_file("-wal").exists())
        shutil.copy(paths.store_file(), self._backup)

    def start(self) -> None:
        """Start a daemon, whose next checkpoint is half a minute away then."""
        old = paths.ensure(paths.attempts()) / "old"
        old.touch()
        with Client() as deck:
            ready(deck)
            eventually(lambda: not old.exists())

    def submit(self, *, jobs: int = 1, word: str = "job") -> list[int]:
        """Submit an array with the token; only one job runs at a time, until `go` exists."""
        script = (
            f'echo "{word} $GPUDECK_ARRAY_INDEX" >> {self.ledger}; '
            f"until test -e {self.go}; do sleep 0.05; done"
        )
        with Client() as deck:
            ready(deck)
            command = ["sh", "-c", script]
            queued = deck.submit_array(command, range(jobs), name="job", gpus=1, token=TOKEN)
            return [job.id for job in queued]

    def began(self) -> list[str]:
        """Return what the jobs wrote."""
        return self.ledger.read_text().splitlines() if self.ledger.exists() else []

    def delete_log(self) -> None:
        """Delete what was committed since the last checkpoint."""
        store_file("-wal").unlink()

    def delete_store(self) -> None:
        """Delete the store, with the mark by which its loss is noticed."""
        for file in paths.store_file().parent.glob("gpudeck.sqlite*"):
            file.unlink()

    def put_back(self) -> None:
        """Replace the store by the copy."""
        shutil.copy(self._backup, paths.store_file())
        for suffix in ("-wal", "-shm"):
            store_file(suffix).unlink(missing_ok=True)

    def ended(self, numbers: list[int]) -> list[Job]:
        """Return these jobs once all have ended."""
        self.go.touch()
        with Client() as deck:
            eventually(lambda: not deck.jobs(active=True), WAIT_S)
            return [deck.job(number) for number in numbers]


def store_file(suffix: str) -> Path:
    return paths.store_file().with_name(paths.store_file().name + suffix)


@pytest.fixture
def machine(cpu_home: Path, tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    yield made
    made.go.touch()


DAMAGES = [
    Machine.delete_log,
    Machine.delete_store,
    pytest.param(Machine.put_back, marks=pytest.mark.slow),
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_job_that_began_is_found_by_its_token_in_a_store_that_lost_it(
    machine: Machine, damage: Callable[[Machine], None]
) -> None:
    machine.back_up()
    machine.start()
    first = machine.submit()
    eventually(machine.began)
    kill_daemon()
    damage(machine)
    assert machine.submit() == first
    with Client() as deck:
        assert [job.id for job in deck.submission(TOKEN)] == first
        with pytest.raises(UserError, match="belongs to another submission"):
            deck.submit(["false"], token=TOKEN)
    kill_daemon()
    assert machine.submit() == first  # the token is in the store from now on
    assert [job.status for job in machine.ended(first)] == ["done"]
    assert machine.submit() == first
    assert machine.began() == ["job 0"]


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_rest_of_an_array_is_queued_again_in_its_places(
    machine: Machine, damage: Callable[[Machine], None]
) -> None:
    machine.back_up()
    machine.start()
    first = machine.submit(jobs=3)
    eventually(machine.began)
    kill_daemon()
    damage(machine)
    with Client() as deck:
        states = [deck.job(number).status for number in first]
        assert states == ["running", "lost", "lost"]
        other = deck.submit(["true"], name="of somebody else")
        assert other.id not in first
    assert machine.submit(jobs=3) == first
    assert [job.status for job in machine.ended(first)] == ["done"] * 3
    assert sorted(machine.began()) == ["job 0", "job 1", "job 2"]
    with Client() as deck:
        assert sum(job.spec.name.startswith("job") for job in deck.jobs()) == 3


def test_a_member_of_an_array_that_may_have_begun_is_not_queued_again(machine: Machine) -> None:
    machine.start()
    first = machine.submit(jobs=3)
    eventually(machine.began)
    kill_daemon()
    machine.delete_log()
    paths.job_folder(first[1]).mkdir()  # as if the ticket were gone
    assert machine.submit(jobs=3) == first
    assert [job.status for job in machine.ended(first)] == ["done", "lost", "done"]
    assert sorted(machine.began()) == ["job 0", "job 2"]


def test_nothing_is_queued_while_it_is_unknown_what_began(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.start()
    first = machine.submit()
    eventually(machine.began)
    kill_daemon()
    machine.delete_log()
    unreadable = paths.attempts() / "x.began"
    unreadable.symlink_to(unreadable)
    monkeypatch.setattr(client_module, "AGAIN_S", 0.4)
    with pytest.raises(OutcomeUnknown, match="which attempts began cannot be read") as raised:
        machine.submit()
    assert raised.value.token == TOKEN
    unreadable.unlink()
    monkeypatch.setattr(client_module, "AGAIN_S", WAIT_S)
    assert machine.submit() == first
    assert machine.began() == ["job 0"]


@pytest.mark.parametrize("damage", [Machine.delete_log, Machine.delete_store])
def test_a_daemon_whose_store_is_deleted_gives_way_to_the_next(
    machine: Machine, damage: Callable[[Machine], None]
) -> None:
    first = machine.submit()
    eventually(machine.began)
    pid = daemon_pid()
    damage(machine)
    eventually(lambda: not lives(pid))
    assert machine.submit() == first
    with Client() as deck:
        assert deck.submit(["true"]).id == first[-1] + 1
    assert [job.status for job in machine.ended(first)] == ["done"]
    assert machine.began() == ["job 0"]


def test_a_whole_store_takes_jobs_although_the_evidence_cannot_be_read(machine: Machine) -> None:
    with Client() as deck:
        ready(deck)
    kill_daemon()
    unreadable = paths.ensure(paths.attempts()) / "x.began"
    unreadable.symlink_to(unreadable)
    assert machine.submit() == [1]


def test_no_job_is_acknowledged_that_goes_with_a_deleted_store(tmp_path: Path) -> None:
    store = Store(tmp_path / "home" / "gpudeck.sqlite")
    store.insert(Spec(("true",), "true", "/"), 0.0, Queued())
    (tmp_path / "home" / "gpudeck.sqlite").unlink()
    assert not store.checkpoint()  # the tickets are kept
    with pytest.raises(UserError, match="was deleted or replaced while the daemon used it"):
        store.insert(Spec(("true",), "true", "/"), 0.0, Queued())
    store.close()


def test_an_answer_counts_although_no_daemon_can_start_after_it(
    cpu_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As where the disk is full: a loop over the command would queue the job a second time."""
    with Client() as deck:
        job = ready(deck).submit(["true"], hold=True, env={}).job
        kill_daemon()
        keep_daemons_from_starting()
        delivery.report(deck, [job], Namespace(json=False))
    assert capsys.readouterr().out.startswith(f"job {job.id} (true)")


def keep_daemons_from_starting() -> None:
    with closing(sqlite3.connect(paths.store_file())) as db:
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
