"""When waiting jobs start, as the queue is played forward, also after a move that is only tried."""

from __future__ import annotations

import pytest

from gpudeck.scheduler.protocol.errors import NotFound, UserError
from gpudeck.scheduler.protocol.jobs import Job, Queued, Running, Spec
from gpudeck.scheduler.protocol.schedule import Landing, Moved
from gpudeck.scheduler.protocol.turns import finish
from gpudeck.scheduler.protocol.wait_reasons import End
from gpudeck.scheduler.queue.forecast import MOST_SCHEDULED
from gpudeck.scheduler.queue.policy import Conditions
from gpudeck.scheduler.store import Store
from tests.unit.scheduler.own_queue import CPU, GPU, make_queue, submit
from tests.unit.scheduler.planning import foretold, laned, scheduled

HOUR = 3600.0


def waiting(number: int, timeout: float = HOUR, gpus: int = 1) -> Job:
    return Job(number, Spec(("true",), "x", "/", gpus=gpus, timeout=timeout), 0.0, Queued())


def test_jobs_land_one_after_another_until_an_end_is_unknown() -> None:
    busy = Job(1, Spec(("true",), "x", "/", gpus=1), 0.0, Running("", ("GPU-0",), 0.0, 1, 1, ""))
    jobs = [waiting(2), waiting(3, timeout=0), waiting(4)]
    conditions = Conditions(ends={1: End(60.0)}, now=10.0)
    running, lanes = laned([busy, *jobs])
    assert scheduled(running, lanes, [GPU], conditions) == (
        Landing(2, ("GPU-0",), 60.0, 60.0 + HOUR),
        Landing(3, ("GPU-0",), 60.0 + HOUR, None),
    )
    assert scheduled(running, lanes, [GPU], Conditions(now=10.0)) == ()


def test_a_schedule_and_the_forecast_of_each_job_agree() -> None:
    jobs = [waiting(n, timeout=HOUR * n) for n in range(1, 9)]
    found = {landing.job: landing for landing in scheduled(*laned(jobs), [GPU], Conditions())}
    assert len(found) == len(jobs)
    for job in jobs:
        others = [other for other in jobs if other is not job]
        foreseen = foretold(job, *laned(others), [GPU], Conditions())
        assert (foreseen.devices, foreseen.at) == (found[job.id].devices, found[job.id].at)


def test_a_schedule_of_a_long_queue_is_bounded() -> None:
    jobs = [waiting(n, gpus=0) for n in range(1, 3 * MOST_SCHEDULED)]
    found = scheduled(*laned(jobs), [GPU], Conditions(processors=1000))
    assert [landing.job for landing in found] == [job.id for job in jobs[:MOST_SCHEDULED]]


def test_a_move_that_is_tried_changes_nothing_and_comes_true(store: Store) -> None:
    queue = make_queue(store)
    jobs = [submit(queue, gpus=1, timeout=HOUR) for _ in range(4)]

    def order(move: Moved | None = None) -> list[int]:
        return [landing.job for landing in finish(queue.editor.schedule([CPU], move=move))]

    assert order() == jobs
    moved = [jobs[3], *jobs[:3]]
    assert order(Moved(jobs[3], jobs[0])) == moved
    assert order() == jobs, "nothing was moved"
    last = submit(queue, gpus=1, timeout=HOUR, after=(jobs[0],))
    assert order(Moved(last, jobs[1])) == jobs, "it may not start before another one has ended"
    queue.canceller.cancel(last)
    queue.editor.move(jobs[3], jobs[0], False)
    assert order() == moved
    assert [event.what for event in queue.queries.timeline(jobs[3])] == ["submitted", "moved"]
    with pytest.raises(NotFound):
        order(Moved(jobs[0], 999))
    queue.canceller.cancel(jobs[1])
    with pytest.raises(UserError, match="only waiting jobs have a place"):
        order(Moved(jobs[0], jobs[1]))
