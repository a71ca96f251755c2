"""Break the folders of jobs under a daemon without privileges: it serves all other jobs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.jobs import Cancelled, Done, Failed, Job, Queued, Running
from gpudeck.scheduler.protocol.wait_reasons import FolderUnreadable
from tests.integration.deck import daemon_pid, kill_daemon
from tests.support import eventually, lives

WITHOUT_PRIVILEGES = (
    "setpriv",
    "--bounding-set=-dac_override,-dac_read_search",
    "--inh-caps=-dac_override,-dac_read_search",
)
"""Lets root be refused what the permissions of a file refuse to its owner."""
CLOSE = 'chmod 0 "$GPUDECK_ARTEFACTS/.."'


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python as a user without privileges."""
    prefix = WITHOUT_PRIVILEGES if os.getuid() == 0 else ()
    command = [*prefix, sys.executable, "-P", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def gpudeck(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command, which may start the daemon, as a user without privileges."""
    return python("-m", "gpudeck", *arguments)


def start() -> None:
    done = gpudeck("daemon", "start")
    assert done.returncode == 0, done.stderr


@pytest.fixture
def deck(cpu_home: Path) -> Iterator[Client]:
    """Return a client of a daemon without privileges, whose job folders are opened at the end."""
    start()
    with Client(start=False) as client:
        yield client
    for folder in (paths.home() / "jobs", *(paths.home() / "jobs").glob("*")):
        folder.chmod(0o700)


def unreadable(deck: Client, job: Job) -> FolderUnreadable | None:
    """Return why the job's folder cannot be read, as the daemon shows it."""
    state = deck.job(job.id).state
    if isinstance(state, Running):
        return state.unreadable
    return (
        state.wait
        if isinstance(state, Queued) and isinstance(state.wait, FolderUnreadable)
        else None
    )


def serves_others(deck: Client) -> None:
    done = deck.wait(deck.submit(["true"]).id, 30.0)
    assert isinstance(done.state, Done)


def test_a_job_that_closes_its_own_folder_stops_no_other(deck: Client) -> None:
    pid = daemon_pid()
    job = deck.submit(["sh", "-c", CLOSE], gpus=1)
    eventually(lambda: unreadable(deck, job) or not deck.job(job.id).active)
    serves_others(deck)
    assert daemon_pid() == pid and lives(pid)
    assert gpudeck("jobs", str(job.id)).returncode == 0
    kill_daemon()
    start()
    serves_others(deck)
    assert isinstance(deck.wait(job.id, 30.0).state, Done), "its runner opens the folder again"
    eventually(lambda: not deck.snapshot().notices)


def test_jobs_go_on_once_the_folder_of_all_jobs_can_be_read_again(
    deck: Client, tmp_path: Path
) -> None:
    ledger, gate = tmp_path / "ledger", tmp_path / "gate"
    os.mkfifo(gate)
    command = ["sh", "-c", f"echo $GPUDECK_JOB >> {ledger}; cat {gate}"]
    ran = deck.submit(command)
    eventually(ledger.exists)
    (paths.home() / "jobs").chmod(0)
    waits = deck.submit(["sh", "-c", f"echo $GPUDECK_JOB >> {ledger}"])
    gate.write_text("")
    eventually(lambda: unreadable(deck, ran) and unreadable(deck, waits))
    state = eventually(lambda: deck.job(ran.id).state)
    eventually(lambda: isinstance(state, Running) and not lives(state.runner))
    kill_daemon()
    start()
    eventually(lambda: unreadable(deck, ran) and unreadable(deck, waits))
    (paths.home() / "jobs").chmod(0o700)
    assert isinstance(deck.wait(ran.id, 30.0).state, Done)
    assert isinstance(deck.wait(waits.id, 30.0).state, Done)
    assert ledger.read_text() == f"{ran.id}\n{waits.id}\n"


def test_a_job_whose_end_is_unreadable_is_shown_and_can_be_cancelled(deck: Client) -> None:
    job = deck.submit(["sh", "-c", 'chmod 0 "$GPUDECK_ARTEFACTS/../.."'], gpus=1)
    found = eventually(lambda: unreadable(deck, job))
    assert found.problem.startswith("Permission denied")
    shown = gpudeck("jobs", str(job.id)).stdout
    assert "its folder has been unreadable since" in shown
    notice = f"the folder of job {job.id} cannot be read"
    eventually(lambda: any(notice in str(text) for text in deck.snapshot().notices))
    deck.cancel(job.id)
    assert isinstance(deck.wait(job.id, 30.0).state, Cancelled)
    (paths.home() / "jobs").chmod(0o700)
    assert isinstance(deck.wait(deck.submit(["true"], gpus=1).id, 30.0).state, Done)


def test_a_result_that_its_job_protects_is_given_up_and_the_timeline_says_so(
    deck: Client,
) -> None:
    job = deck.submit(["sh", "-c", 'echo "{}" > "$GPUDECK_RESULT"; chmod 0 "$GPUDECK_RESULT"'])
    ended = deck.wait(job.id, 30.0)
    assert isinstance(ended.state, Done) and ended.result is None
    (event,) = [e for e in deck.timeline(job.id) if e.what == "without result"]
    assert "Permission denied" in str(event.text)


@pytest.mark.parametrize(
    "folder",
    ["$GPUDECK_ARTEFACTS", pytest.param("$GPUDECK_ARTEFACTS/..", marks=pytest.mark.slow)],
)
def test_a_folder_that_was_opened_to_others_fails_the_next_attempt_once(
    deck: Client, folder: str
) -> None:
    job = deck.submit(["sh", "-c", f'chmod g+w "{folder}"; false'], retries=5, backoff=0.01)
    ended = deck.wait(job.id, 30.0)
    assert isinstance(ended.state, Failed)
    assert str(ended.state.reason).startswith(
        f"other users may write to {paths.job_folder(job.id)}"
    )
    assert [e.what for e in deck.timeline(job.id)].count("started") == 1
    serves_others(deck)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["jobs", "jobs/1"])
def test_doctor_names_a_folder_that_cannot_be_read_and_restores_its_permissions(
    deck: Client, place: str
) -> None:
    deck.wait(deck.submit(["true"]).id, 30.0)
    folder = paths.home() / place
    folder.chmod(0)
    named = f"{folder} cannot be read: Permission denied"
    found = gpudeck("doctor")
    assert found.returncode == 1
    assert f"failure  job folders: {named}" in found.stdout
    assert "To restore the permissions: gpudeck doctor --repair" in found.stdout
    repaired = gpudeck("doctor", "--repair").stdout
    assert f"warning  job folders: permissions were restored: {named}" in repaired
    assert "ok       job folders: all can be read" in gpudeck("doctor").stdout


def test_folders_that_cannot_be_read_are_found_and_opened_again(home: Path) -> None:
    for number in (1, 2, 3):
        paths.ensure(paths.job_folder(number) / "artefacts")
    code = (
        "from gpudeck.app.cli.system import job_folders as f; found = f.problems(); "
        "print(f.described(found)); print(f.restore(found), f.problems())"
    )
    assert python("-c", code).stdout == "\n[] []\n"
    paths.job_folder(2).chmod(0)
    named = f"{paths.job_folder(2)} cannot be read: Permission denied"
    assert python("-c", code).stdout == f"{named}\n[] []\n"
    paths.job_folder(3).chmod(0)
    (home / "jobs").chmod(0)
    named = f"{home / 'jobs'} cannot be read: Permission denied"
    assert python("-c", code).stdout == f"{named}\n[] []\n"
