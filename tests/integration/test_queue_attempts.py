"""Test time limits and retries with the real daemon and runner, and the job's timeline."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from gpudeck.app.cli.main import main
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.jobs import Cancelled, Done, Failed, Queued
from tests.integration.deck import kill_daemon, log_of, python, ready, running
from tests.support import eventually, lives

WAIT_S = 40.0


def words(deck: Client, job: int) -> list[str]:
    return [event.what for event in deck.timeline(job)]


def test_a_job_over_its_time_limit_is_ended_and_fails(shared: Client) -> None:
    state = shared.wait(
        shared.submit(["sh", "-c", "echo begun; sleep 600"], timeout="0.3s").id, WAIT_S
    ).state
    assert isinstance(state, Failed)
    assert str(state.reason) == "ran longer than its limit of 0.3 s; last line: begun"
    assert state.code == -15
    inside = shared.wait(shared.submit(["true"], timeout=60).id, WAIT_S).state
    assert isinstance(inside, Done)


def test_a_job_that_exits_cleanly_at_its_time_limit_fails_too(
    shared: Client,
) -> None:
    code = (
        "import signal, sys, time; "
        "signal.signal(15, lambda *_: (print('saved'), sys.exit(0))); time.sleep(600)"
    )
    state = shared.wait(shared.submit(python(code), timeout=1.0).id, WAIT_S).state
    assert isinstance(state, Failed)
    assert (str(state.reason), state.code) == (
        "ran longer than its limit of 1 s; last line: saved",
        0,
    )


def test_a_time_limit_holds_while_no_daemon_runs_and_ends_the_whole_tree(
    cpu_home: Path, tmp_path: Path
) -> None:
    code = (
        "import os, signal, sys, time; signal.signal(15, signal.SIG_IGN); "
        "open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"
    )
    with Client() as deck:
        job = ready(deck).submit(python(code, tmp_path / "pid"), timeout=1.0)
        runner = running(deck, job).runner
    kill_daemon()
    eventually(lambda: not lives(runner))
    assert not lives(int((tmp_path / "pid").read_text()))
    with Client() as deck:
        state = deck.wait(job.id, WAIT_S).state
        assert isinstance(state, Failed)
        assert (str(state.reason), state.code) == ("ran longer than its limit of 1 s", -9)


COUNT = (
    "import os, sys; open(sys.argv[1], 'a').write(os.environ['GPUDECK_TRY']); "
    "print('try', os.environ['GPUDECK_TRY'])\n"
)


def test_a_job_is_tried_again_until_it_succeeds_and_keeps_its_artefacts(
    shared: Client, tmp_path: Path
) -> None:
    code = (
        COUNT + "p = os.environ['GPUDECK_ARTEFACTS'] + '/checkpoint'; ok = os.path.exists(p); "
        "open(p, 'w').close(); sys.exit(not ok)"
    )
    job = shared.submit(python(code, tmp_path / "tries"), retries=3, backoff=0.05)
    ended = shared.wait(job.id, WAIT_S)
    assert isinstance(ended.state, Done)
    assert ended.tries == 1
    assert (tmp_path / "tries").read_text() == "12"
    assert words(shared, job.id) == [
        "submitted",
        "started",
        "failed",
        "queued again",
        "started",
        "done",
    ]
    assert log_of(job) == "try 2\n"
    assert (paths.job_folder(job.id) / "log.1").read_text() == "try 1\n"
    assert [p.name for p in shared.artefacts(job.id)] == ["checkpoint"]


def test_a_job_learns_the_price_of_energy_while_the_settings_have_one(shared: Client) -> None:
    code = (
        "import os; names = ('GPUDECK_ENERGY_PRICE', 'GPUDECK_CURRENCY'); "
        "print(*(os.environ[name] for name in names if name in os.environ))"
    )
    shared.configure(energy_price=0.32, currency="CHF")
    told = shared.submit(python(code))
    shared.wait(told.id, WAIT_S)
    shared.configure(energy_price=0.0)
    untold = shared.submit(python(code))
    shared.wait(untold.id, WAIT_S)
    assert (log_of(told), log_of(untold)) == ("0.32 CHF\n", "\n")


def test_a_job_is_retried_as_often_as_requested(shared: Client, tmp_path: Path) -> None:
    job = shared.submit(python(COUNT + "sys.exit(7)", tmp_path / "tries"), retries=2, backoff=0.02)
    state = shared.wait(job.id, WAIT_S).state
    assert isinstance(state, Failed)
    assert (str(state.reason), (tmp_path / "tries").read_text()) == (
        "exit code 7; last line: try 3",
        "123",
    )
    assert words(shared, job.id).count("failed") == 3


def test_a_job_between_attempts_shows_why_delays_no_other_and_can_be_cancelled(
    shared: Client,
) -> None:
    job = shared.submit(["false"], gpus=1, retries=1, backoff=3000)
    eventually(lambda: shared.job(job.id).tries)
    eventually(
        lambda: (
            "attempt 1 failed; the next one starts at "
            in getattr(shared.job(job.id).state, "reason", "")
        )
    )
    assert isinstance(shared.wait(shared.submit(["true"], gpus=1).id, WAIT_S).state, Done)
    assert isinstance(shared.cancel(job.id).state, Cancelled)
    time.sleep(0.6)  # over two looks of the daemon
    assert shared.job(job.id).status == "cancelled"


def test_an_attempt_whose_delay_ended_during_a_crash_runs_once(
    cpu_home: Path, tmp_path: Path
) -> None:
    with Client() as deck:
        job = ready(deck).submit(
            python(COUNT + "sys.exit(1)", tmp_path / "tries"), retries=1, backoff=1.5
        )
        eventually(lambda: isinstance(deck.job(job.id).state, Queued) and deck.job(job.id).tries)
    kill_daemon()
    with Client() as deck:
        assert isinstance(deck.wait(job.id, WAIT_S).state, Failed)
    assert (tmp_path / "tries").read_text() == "12"


def test_a_job_that_ran_out_of_memory_gets_more_until_it_has_the_device(
    shared: Client, tmp_path: Path
) -> None:
    eventually(lambda: shared.snapshot().devices[0].reading)
    code = (
        COUNT
        + """if True:
        much = "Tried to allocate 900.00 GiB. Including non-PyTorch memory, "
        much += "this process has 99.00 GiB memory in use."
        second = os.environ["GPUDECK_TRY"] == "2"
        print("torch.OutOfMemoryError: CUDA out of memory.", much if second else "")
        sys.exit(1)"""
    )
    job = shared.submit(python(code, tmp_path / "tries"), memory="1GiB")
    ended = shared.wait(job.id, WAIT_S)
    assert isinstance(ended.state, Failed)
    assert ended.spec.memory == 0, "at last it had the device for itself"
    assert (tmp_path / "tries").read_text() == "123"
    told = [str(e.text) for e in shared.timeline(job.id) if e.what in ("queued again", "started")]
    assert told == [
        "attempt 1 on CPU, 1 GiB reserved",
        "with 2 GiB, as 1 GiB were not enough",
        "attempt 2 on CPU, 2 GiB reserved",
        "with a GPU to itself, as 2 GiB were not enough",
        "attempt 3 on CPU",
    ]


def test_the_command_line(shared: Client, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--timeout", "1s", "--retries", "1", "--backoff", "1s", "--gpus", "1", "--wait"]
    assert main(["submit", *options, "--", "sleep", "600"]) == 1
    job = shared.jobs(limit=1)[0]
    assert (job.spec.timeout, job.spec.retries, job.spec.backoff) == (1.0, 1, 1.0)
    assert job.usage is not None
    capsys.readouterr()
    assert main(["jobs", str(job.id)]) == 0
    out = capsys.readouterr().out
    assert "Attempts" in out and "number 2 of 2" in out
    assert "Avg utilisation" in out
    assert "queued again: for attempt 2 of 2, in 1 s" in out
    assert out.endswith("failed: ran longer than its limit of 1 s\n")


def test_a_bar_of_tqdm_is_progress(shared: Client, tmp_path: Path) -> None:
    go = tmp_path / "go"
    code = r"""if True:
        import os, sys, time
        for i in range(3):
            done = i * 25
            sys.stderr.write(f"\rtrain:  {done:3d}%|##        | {done}/100 [00:01<00:03, 25.0it/s]")
        sys.stderr.write("\r")
        sys.stderr.flush()
        while not os.path.exists(sys.argv[1]): time.sleep(0.01)"""
    job = shared.submit(python(code, go))
    eventually(lambda: getattr(shared.job(job.id).state, "progress", None))
    progress = running(shared, job).progress
    assert progress is not None
    assert (progress.done, progress.total, progress.note) == (50.0, 100.0, "train")
    go.touch()
    shared.wait(job.id, WAIT_S)
