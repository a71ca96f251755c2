"""Jobs that start at a time of their user's choice, and jobs that run again when they are lost."""

from __future__ import annotations

import os
import signal
import time
from datetime import datetime

import pytest

from gpudeck.scheduler.attempts import log_file, running
from gpudeck.scheduler.executors.local import Local
from gpudeck.scheduler.protocol.busy_causes import JobWaits
from gpudeck.scheduler.protocol.devices import Device, Reading
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.job_options import make_spec
from gpudeck.scheduler.protocol.jobs import Done, Job, Lost, Queued, Spec
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.protocol.snapshot import Busy
from gpudeck.scheduler.protocol.units import parse_begin
from gpudeck.scheduler.protocol.wait_reasons import Behind, Held, NotBefore
from gpudeck.scheduler.queue.placement import Availability
from gpudeck.scheduler.queue.policy import Conditions
from gpudeck.scheduler.queue.queue import Queue
from gpudeck.scheduler.store import Store
from gpudeck.scheduler.telemetry.monitor import Monitor
from tests.support import eventually
from tests.unit.scheduler.own_queue import CPU, GPU, ended, make_queue, submit, wait_reason
from tests.unit.scheduler.planning import foretold, laned

HOUR = 3600.0
NOON = datetime(2026, 11, 22, 12, 0, 30).timestamp()


class Clock:
    """The clock of the machine, which somebody sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead, real = 0.0, time.time
        monkeypatch.setattr(time, "time", lambda: real() + self.ahead)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("22:30", datetime(2026, 11, 22, 22, 30)),
        ("8:05", datetime(2026, 11, 23, 8, 5)),
        ("12:00", datetime(2026, 11, 23, 12, 0)),
        (" 2026-12-01 08:00 ", datetime(2026, 12, 1, 8, 0)),
        ("2026-12-01T08:00:10", datetime(2026, 12, 1, 8, 0, 10)),
        ("2026-12-01", datetime(2026, 12, 1)),
        ("+2h", datetime(2026, 11, 22, 14, 0, 30)),
        ("+90", datetime(2026, 11, 22, 12, 2)),
    ],
)
def test_a_moment_to_come_is_read(text: str, at: datetime) -> None:
    assert parse_begin(text, NOON) == at.timestamp()
    assert make_spec(["true"], {"begin": text}).begin > 0


@pytest.mark.parametrize(
    "text", ["2h", "24:00", "12:60", "+", "+-2h", "soon", "+400d", "2026-13-01"]
)
def test_an_invalid_moment_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(UserError, match=r"a time such as 22:30, .* is needed; got"):
        parse_begin(text, NOON)


def test_a_job_does_not_start_before_its_time_and_delays_no_other(
    queue: Queue, clock: Clock
) -> None:
    at = time.time() + HOUR
    late = submit(queue, begin=at)
    other = submit(queue)
    queue.step([CPU])
    assert wait_reason(queue, late) == NotBefore(at)
    assert not queue.retry_is_ready(time.time())
    eventually(lambda: ended(queue, other))
    clock.ahead = HOUR + 1
    assert queue.retry_is_ready(time.time())
    queue.step([CPU])
    eventually(lambda: ended(queue, late))
    assert isinstance(queue.get(late).state, Done)


def test_a_job_follows_a_clock_that_is_set(queue: Queue, clock: Clock) -> None:
    at = time.time() + HOUR
    job, held = submit(queue, begin=at), submit(queue, begin=at, hold=True)
    queue.groups.pause(True)
    clock.ahead = HOUR + 1
    queue.step([CPU])
    queue.groups.pause(False)
    clock.ahead = -HOUR
    queue.step([CPU])
    assert wait_reason(queue, job) == NotBefore(at)
    assert wait_reason(queue, held) == Held(held)
    assert not queue.retry_is_ready(time.time())


def test_a_job_that_begins_later_survives_a_restart(store: Store, clock: Clock) -> None:
    job = submit(make_queue(store), begin=time.time() + HOUR)
    queue = make_queue(store)
    queue.recover()
    queue.step([CPU])
    assert isinstance(wait_reason(queue, job), NotBefore)
    clock.ahead = HOUR + 1
    assert queue.retry_is_ready(time.time())


def later(number: int, begin: float = 0.0, timeout: float = 0.0) -> Job:
    spec = Spec(("true",), "x", "/", gpus=1, begin=begin, timeout=timeout)
    return Job(number, spec, 0.0, Queued())


def test_a_forecast_counts_jobs_that_begin_later() -> None:
    running_jobs, lanes = laned([later(1, begin=HOUR, timeout=HOUR)])
    conditions = Conditions(Availability(), {}, 0.0)
    found = foretold(later(2, begin=1.5 * HOUR), running_jobs, lanes, [GPU], conditions)
    assert (found.at, found.wait) == (2 * HOUR, NotBefore(1.5 * HOUR))
    assert foretold(later(2), running_jobs, lanes, [GPU], conditions).at == 0.0
    assert foretold(later(2, begin=HOUR), [], {}, [GPU], conditions).at == HOUR
    ahead = [later(1, timeout=HOUR), later(3, timeout=HOUR)]
    found = foretold(later(4), *laned(ahead), [GPU], conditions)
    assert (found.at, found.wait) == (2 * HOUR, Behind(3))


def test_a_job_that_begins_later_leaves_the_gpu_to_the_assistant() -> None:
    monitor = Monitor()
    monitor.set_devices((Device("GPU-0", 0, "H100", "nvidia"),))
    (state,) = monitor.states([later(1, begin=HOUR)], Settings(), 0.0)
    assert "job 1 waits" not in str(state.use)
    for second in range(21):
        monitor.add([Reading("GPU-0", HOUR - 20 + second, {"util": 0.0})], [])
    (state,) = monitor.states([later(1, begin=HOUR)], Settings(), HOUR)
    assert state.use == Busy(JobWaits(1))


ENDLESS = ("sh", "-c", "echo began; exec sleep 600")


def lose(queue: Queue, job: int) -> None:
    """Kill the runner of the job once its command runs."""
    log = log_file(queue.get(job))
    eventually(lambda: log.exists() and log.read_text())
    os.kill(running(queue.get(job)).runner, signal.SIGKILL)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_lost_job_runs_again_as_often_as_it_was_allowed(store: Store, restarted: bool) -> None:
    local = Local(lambda job, runner: None)
    queue = make_queue(store, local=local)
    job = submit(queue, *ENDLESS, retries=1, retry_lost=True, backoff=0)
    for tries in (0, 1):
        queue.step([CPU])
        assert queue.get(job).tries == tries
        lose(queue, job)
        if restarted:
            local.kill([queue.get(job)])  # as the child of a daemon that has ended
        else:
            eventually(lambda q=queue: ended(q, job) or q.get(job).status == "queued")  # type: ignore[misc]
        for _ in range(3):  # none of these takes the lost attempt for one that nobody knows
            local = Local(lambda job, runner: None)
            queue = make_queue(store, local=local)
            queue.recover()
    assert isinstance(queue.get(job).state, Lost)
    assert [event.what for event in queue.queries.timeline(job)] == [
        *("submitted", "started", "lost", "queued again"),
        *("started", "lost"),
    ]


def test_a_lost_job_does_not_run_again_unasked(queue: Queue) -> None:
    job = submit(queue, *ENDLESS, retries=3, backoff=0)
    queue.step([CPU])
    lose(queue, job)
    eventually(lambda: ended(queue, job))
    assert isinstance(queue.get(job).state, Lost)
    with pytest.raises(UserError, match="add a number of retries"):
        submit(queue, retry_lost=True)
