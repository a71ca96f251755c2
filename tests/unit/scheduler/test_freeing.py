"""GPUs are freed without waiting for the driver; a refused return is tried less often."""

from __future__ import annotations

import asyncio
import time
from contextlib import nullcontext
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from gpudeck.language.numbers import GIB
from gpudeck.scheduler.daemon import freeing, job_suspension
from gpudeck.scheduler.daemon.freeing import Freeing
from gpudeck.scheduler.daemon.job_suspension import LONGEST_RETRY_S, RETRY_S, JobSuspensions
from gpudeck.scheduler.protocol.bookings import Booking
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Job, JobSuspension, Running, Spec
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.protocol.user_limits import UserLimits
from gpudeck.scheduler.store import Store
from gpudeck.scheduler.suspension.program import Member, Room, Suspension
from tests.unit.scheduler.own_queue import make_queue


def job(number: int) -> Job:
    spec = Spec(("train",), f"train-{number}", "/", gpus=1)
    return Job(number, spec, 0.0, Running(f"a-{number}", ("GPU-0",), 0.0, 1, 1, "boot"))


def test_a_job_that_takes_long_to_leave_delays_neither_others_nor_daily_reservations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(freeing, "CHECK_S", 0.01)
    now, asked, renewed = time.time(), list[int](), list[Any]()
    settings = Settings(
        reservations={
            "1": Booking(("GPU-0",), now - 10, now + 1000, frees=True),
            "2": Booking(("GPU-1",), now - 100, now - 50, daily=True),
        }
    )

    async def suspend(number: int, _: float) -> Job:
        asked.append(number)
        await asyncio.Event().wait()  # the driver hangs
        raise AssertionError

    async def configure(changes: object) -> None:
        renewed.append(changes)

    async def run() -> None:
        away = SimpleNamespace(suspend=suspend, ask_again=lambda: None)
        jobs = [job(1), job(2)]
        free = Freeing(lambda: settings, lambda: jobs, away, configure, lambda _: nullcontext())  # type: ignore[arg-type]
        task = asyncio.create_task(free.run())
        while len(renewed) < 3:
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())
    assert sorted(asked) == [1, 2], "each of them once, and neither waits for the other"


def test_a_return_that_is_refused_is_tried_less_and_less_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, tried = [0.0], list[float]()
    monkeypatch.setattr(job_suspension.time, "monotonic", lambda: clock[0])

    def come_back(_: int) -> bool:
        tried.append(clock[0])
        raise UserError("another queue has the GPU")

    async def run() -> None:
        suspender = SimpleNamespace(
            come_back=come_back, report_no_room=lambda _: None, ask_back=lambda *_: None
        )
        queue = SimpleNamespace(suspender=suspender, get=job)
        made = JobSuspensions(
            lambda: queue, None, SimpleNamespace(recovered=True), None,  # type: ignore[arg-type]
            lambda: None, lambda _: None,
        )  # fmt: skip
        for second in range(2000):
            clock[0] = float(second)
            made.bring_back(job(1))
            await asyncio.sleep(0)
        pauses = [after - before for before, after in pairwise(tried)]
        assert pauses[:4] == [RETRY_S, 2 * RETRY_S, 4 * RETRY_S, 8 * RETRY_S]
        assert max(pauses) == LONGEST_RETRY_S
        made.resume(1)  # a person asks: at once, and from the beginning
        tried.clear()
        for second in range(2000, 2010):
            clock[0] = float(second)
            made.bring_back(job(1))
            await asyncio.sleep(0)
        assert tried == [2000.0, 2000.0 + RETRY_S]

    asyncio.run(run())


def test_only_a_users_own_suspended_jobs_count_for_the_limit_of_host_memory(store: Store) -> None:
    """Job 1 of user 7 holds 30 GiB of host memory; users 7 and 8 may hold 40 GiB each."""
    away = JobSuspension("suspended", 5.0, memory=30 * GIB)
    state = Running("nonce", ("GPU-0",), 0.0, 1, 1, "boot", suspension=away)
    store.insert(Spec(("train",), "train-1", "/", gpus=1, user=7), 0.0, state)
    queue = make_queue(store)
    made = JobSuspensions(
        lambda: queue, None, SimpleNamespace(recovered=True), None,  # type: ignore[arg-type]
        lambda: None, lambda _: UserLimits(suspended_memory=40.0),
    )  # fmt: skip
    member = Member(1, 1, (Room("GPU-0", 20 * GIB),))
    found = Suspension("train-2", (member,), (), "boot", "suspending", 5.0, 8)
    other = job(2)
    made._check_limit(msgspec.structs.replace(other, spec=of_user(other, 8)), found)
    with pytest.raises(UserError, match="jobs of its user hold 30 GiB of host memory already"):
        made._check_limit(msgspec.structs.replace(other, spec=of_user(other, 7)), found)


def of_user(found: Job, user: int) -> Spec:
    return msgspec.structs.replace(found.spec, user=user)
