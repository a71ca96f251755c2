"""Kill the daemon and damage the write-ahead log of its store: no job runs again, and what the
evidence of attempts tells is recovered."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.jobs import Job, Queued, Running, Spec
from gpudeck.scheduler.store import Store
from tests.integration.deck import daemon_pid, kill_daemon, ready, running
from tests.support import eventually, lives

WAIT_S = 40.0
SCRIPTS: dict[str, tuple[str, dict[str, object]]] = {
    "plain": ("", {}),
    "failing": ("exit 3", {}),
    "flaky": ("exit $((GPUDECK_TRY == 1))", {"retries": 1, "backoff": 0.05}),
    "hopeless": ("exit 3", {"retries": 2, "backoff": 0.05}),
    "unmarked": ('rm "$GPUDECK_ARTEFACTS/../runner.lock"; exit 3', {"retries": 1, "backoff": 0.05}),
    "folder deleted": ('rm -rf "$GPUDECK_ARTEFACTS/.."', {}),
    "cancelled": ("sleep 600", {"retries": 1, "backoff": 0.05}),
    "killed": ("kill -9 $PPID", {"retries": 1, "retry_lost": True, "backoff": 0.05}),
}
RUNS = {"flaky": 2, "hopeless": 3, "unmarked": 2, "killed": 2}


def log_of_store() -> Path:
    return paths.store_file().with_name(f"{paths.store_file().name}-wal")


def delete() -> None:
    log_of_store().unlink()


def empty() -> None:
    os.truncate(log_of_store(), 0)


def cut() -> None:
    os.truncate(log_of_store(), log_of_store().stat().st_size // 2)


def spec(ledger: Path, name: str) -> Spec:
    script, options = SCRIPTS[name]
    line = f"echo {name} $GPUDECK_TRY >> {ledger}; {script}"
    env = {"PATH": os.environ["PATH"]}
    return Spec(("sh", "-c", line), name, "/", env=env, **options)  # type: ignore[arg-type]


def stored(specs: list[Spec]) -> list[int]:
    """Store jobs where no later damage of the log reaches them, before a daemon runs."""
    store = Store(paths.store_file())
    jobs = store.insert_all(specs, time.time(), Queued())
    store.close()
    return [job.id for job in jobs]


def all_ended() -> dict[str, Job]:
    """Return the jobs by name, once all have ended."""
    with Client() as deck:
        eventually(lambda: not deck.jobs(active=True), WAIT_S)
        return {job.spec.name: job for job in deck.jobs()}


def ledger_lines(ledger: Path) -> list[str]:
    return ledger.read_text().splitlines() if ledger.exists() else []


def runs(ledger: Path) -> list[str]:
    return sorted(ledger_lines(ledger))


EXPECTED = sorted(f"{name} {n + 1}" for name in SCRIPTS for n in range(RUNS.get(name, 1)))


@pytest.mark.parametrize("damage", [delete, empty, cut])
def test_no_job_runs_again_whose_end_went_with_the_log(
    cpu_home: Path, tmp_path: Path, damage: Callable[[], None]
) -> None:
    ledger = tmp_path / "ledger"
    numbers = dict(zip(SCRIPTS, stored([spec(ledger, name) for name in SCRIPTS]), strict=True))
    with Client() as deck:
        eventually(lambda: "cancelled 1" in ledger_lines(ledger))
        deck.cancel(numbers["cancelled"])
    before = all_ended()
    kill_daemon()
    damage()
    after = all_ended()
    assert runs(ledger) == EXPECTED
    assert {n: j.status for n, j in after.items()} == {n: j.status for n, j in before.items()}
    assert {n: j.tries for n, j in after.items()} == {n: j.tries for n, j in before.items()}
    time.sleep(1.0)  # over several looks of the daemon
    kill_daemon()
    assert {n: j.status for n, j in all_ended().items()} == {n: j.status for n, j in before.items()}
    assert runs(ledger) == EXPECTED


def test_jobs_that_went_with_the_log_are_recovered_from_their_attempts(
    cpu_home: Path, tmp_path: Path
) -> None:
    """One that ended, one that runs, and one that still waits, of which nothing is left."""
    ledger, go = tmp_path / "ledger", tmp_path / "go"
    old = paths.ensure(paths.attempts()) / "old"
    old.touch()
    with Client() as deck:
        ready(deck)
        eventually(lambda: not old.exists())  # the next checkpoint is half a minute away
        held = Spec(("true",), "waits", "/", hold=True)
        (ended, waits) = deck.submit_many([spec(ledger, "flaky"), held])
        script = f"until test -e {go}; do sleep 0.05; done; exit 7"
        runs_on = deck.submit(["sh", "-c", script], name="runs on", gpus=1)
        state = running(deck, runs_on)
        deck.wait(ended.id, WAIT_S)
    kill_daemon()
    delete()
    with Client() as deck:
        assert deck.job(ended.id).status == "done"
        assert deck.job(ended.id).spec.name == "flaky"
        again = deck.job(runs_on.id)
        assert isinstance(again.state, Running)
        assert (again.spec.name, again.state.runner) == ("runs on", state.runner)
        assert again.state.devices == state.devices and lives(state.runner)
        assert deck.job(waits.id).status == "lost"
        eventually(
            lambda: "the newest changes of the store" in " ".join(map(str, deck.snapshot().notices))
        )
        go.touch()
        assert getattr(deck.wait(runs_on.id, WAIT_S).state, "code", None) == 7
        assert deck.submit(["true"]).id > runs_on.id, "no number is given twice"
    assert runs(ledger) == ["flaky 1", "flaky 2"]


def test_the_evidence_of_an_attempt_goes_once_its_end_cannot_be_lost(
    cpu_home: Path, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger"
    stored([spec(ledger, "plain")])
    all_ended()
    with Client() as deck:
        deck.stop_daemon()
    assert not list(paths.attempts().iterdir())
    assert not log_of_store().exists()
    stored([spec(ledger, "failing")])
    all_ended()
    pid = daemon_pid()
    kill_daemon()
    assert not lives(pid)
    all_ended()  # by another daemon
    eventually(lambda: not list(paths.attempts().iterdir()))
    assert log_of_store().stat().st_size == 0
