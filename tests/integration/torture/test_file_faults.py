"""Run a few schedules of `make file-faults`, and check that its judge finds what is wrong."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.jobs import Cancelled, Done, Failed, Job, Lost, Spec, State
from tests.integration.deck import running
from tests.integration.torture import state_faults
from tests.integration.torture.file_faults import (
    COMMANDS,
    ROLES,
    Schedule,
    build,
    campaign,
    draw_schedules,
    preloaded,
    verdict,
)
from tests.support import LACKS, eventually

SEED, SCHEDULES = 7, 6
DAEMON = Schedule("daemon", 1, errno.EIO, lasting=False, kill=False)
RUNNER = Schedule("runner", 1, errno.EIO, lasting=False, kill=False)
DONE, FAILED, LOST = Done(1.0, 2.0), Failed(1.0, 2.0, "no folder"), Lost(1.0, 2.0, "no record")


@pytest.fixture
def library(tmp_path: Path) -> Path:
    found = build(tmp_path)
    if found is None:
        pytest.skip(f"{LACKS} a C compiler, which builds the library of faults")
    return found


def test_failing_accesses_to_one_folder_stop_no_other_job(tmp_path: Path, library: Path) -> None:
    report = campaign(tmp_path / "faults", library, draw_schedules(SEED, SCHEDULES))
    assert report.violations == []
    assert report.jobs >= len(COMMANDS) * SCHEDULES
    assert report.injected.total() >= SCHEDULES - 3, f"too few faults struck: {report.injected}"


@pytest.mark.slow
def test_failing_accesses_to_the_state_lose_no_job(tmp_path: Path, library: Path) -> None:
    struck, wrong = state_faults.run(
        tmp_path / "faults", library, state_faults.draw_schedules(SEED, 2 * SCHEDULES)
    )
    assert wrong == []
    assert struck.total() >= SCHEDULES, f"too few faults struck: {struck}"


@pytest.mark.slow
@pytest.mark.parametrize("command", ["sleep 600", "exit 3"])
def test_a_job_is_cancelled_though_its_runner_cannot_write_how_it_ended(
    tmp_path: Path, library: Path, cpu_home: Path, command: str
) -> None:
    """Cancel it before its command ends, and while its runner tries to write the end."""
    began, go = tmp_path / "began", tmp_path / "go"
    script = f"touch {began}; while ! test -e {go}; do sleep 0.05; done; {command}"
    with preloaded(tmp_path, library) as plan, Client() as deck:
        job = deck.submit(["sh", "-c", script], gpus=1)
        eventually(began.exists)
        plan.error, plan.lasting, plan.countdown, plan.role = errno.EIO, 1, 1, ROLES["runner"]
        eventually(lambda: plan.struck)
        go.touch()
        if command != "sleep 600":
            runner = running(deck, job).runner
            eventually(lambda: Path(f"/proc/{runner}/comm").read_text().startswith("unwritten"))
        deck.cancel(job.id)
        assert isinstance(deck.wait(job.id, 40.0).state, Cancelled)


@pytest.mark.parametrize(
    ("state", "begun", "fault", "sound"),
    [
        (DONE, 1, None, True),
        (DONE, 1, RUNNER, True),
        (DONE, 0, RUNNER, False),
        (DONE, 2, RUNNER, False),
        (FAILED, 0, None, False),
        (FAILED, 0, DAEMON, True),
        (FAILED, 1, DAEMON, False),
        (LOST, 1, DAEMON, False),
        (LOST, 1, RUNNER, True),
        (LOST, 1, None, False),
    ],
)
def test_the_judge_excuses_only_what_the_fault_explains(
    state: State, begun: int, fault: Schedule | None, sound: bool
) -> None:
    job = Job(1, Spec(("true",), "plain", "/"), 0.0, state)
    assert (verdict(job, "plain", begun, fault) is None) == sound
