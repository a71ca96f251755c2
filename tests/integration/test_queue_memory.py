"""Share a device of the real daemon by memory, with a reason for each job that waits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpudeck.app.cli.main import main
from gpudeck.language.numbers import amount
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Done, Job, Queued
from tests.integration.deck import python, running
from tests.support import eventually

WAIT_S = 30.0
UNTIL = "import os, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.01)"


@pytest.fixture
def deck(shared: Client) -> Iterator[Client]:
    """Provide a client once the device's memory is known; cancel all jobs at the end."""
    eventually(lambda: shared.snapshot().devices[0].reading)
    yield shared
    for job in shared.jobs(active=True):
        shared.cancel(job.id)
        shared.wait(job.id, WAIT_S)


def free(deck: Client) -> float:
    reading = deck.snapshot().devices[0].reading
    assert reading is not None
    return reading.values["mem_free"]


def reason(deck: Client, job: Job) -> str:
    state = deck.job(job.id).state
    assert isinstance(state, Queued)
    return state.reason


def test_two_jobs_share_the_device_and_a_third_that_does_not_fit_waits(
    deck: Client, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    third = int(free(deck) / 3)
    jobs = [deck.submit(python(UNTIL, go), memory=third) for _ in range(2)]
    assert [running(deck, j).devices for j in jobs] == [("cpu",), ("cpu",)]
    large, small = deck.submit(["true"], memory=2 * third), deck.submit(["true"], memory="1MiB")
    assert reason(deck, large).startswith(f"needs {amount(2 * third)} of memory; CPU has ")
    assert reason(deck, large).endswith(f" free until job {jobs[1].id} ends") or reason(
        deck, large
    ).endswith(f"job {jobs[0].id} ends")
    assert reason(deck, small) == f"job {large.id} is ahead of it"
    alone = deck.submit(["true"], gpus=1, priority=1)
    assert (
        reason(deck, alone)
        == f"needs the CPU; 0 free: CPU is shared by jobs {jobs[0].id} and {jobs[1].id}"
    )
    go.touch()
    ended = [deck.wait(j.id, WAIT_S).state for j in (alone, large, small)]
    assert all(isinstance(s, Done) for s in ended)
    assert ended[0].at <= min(s.started for s in ended[1:] if isinstance(s, Done)), (
        "the higher priority went first"
    )


def test_a_job_for_more_memory_than_the_machine_has_is_refused(deck: Client) -> None:
    with pytest.raises(
        UserError,
        match=r"^the job cannot run: needs 1048576 GiB of memory; the largest has ",
    ):
        deck.submit(["true"], memory="1024TiB")


def test_a_drained_device_gets_no_job_until_it_is_restored(deck: Client) -> None:
    deck.configure(drained="cpu, 7")
    try:
        job = deck.submit(["true"], gpus=1)
        assert reason(deck, job) == "needs the CPU; drained: CPU"
    finally:
        deck.configure(drained="")
    assert isinstance(deck.wait(job.id, WAIT_S).state, Done)


def test_the_command_line_reserves_memory_and_shows_the_timeline(
    deck: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(
            [
                "submit",
                "--memory",
                "1MiB",
                "--priority",
                "3",
                "--name",
                "mine",
                "--wait",
                "--",
                "false",
            ]
        )
        == 1
    )
    job = deck.jobs(limit=1)[0]
    assert (job.spec.gpus, job.spec.memory, job.spec.priority) == (1, 2**20, 3)
    assert [e.what for e in deck.timeline(job.id)] == ["submitted", "started", "failed"]
    capsys.readouterr()
    assert main(["jobs", str(job.id)]) == 0
    out = capsys.readouterr().out
    assert f"Job {job.id} · mine: failed, exit code 1\n" in out
    assert "1 MiB reserved on each device" in out
    assert "started: attempt 1 on CPU, 1 MiB reserved\n" in out
    assert out.endswith("failed: exit code 1\n")
    with pytest.raises(SystemExit):
        main(["submit", "--memory", "much", "--", "true"])
    assert (
        "an amount of memory such as 20GiB or 512MiB is needed; got 'much'"
        in capsys.readouterr().err
    )
