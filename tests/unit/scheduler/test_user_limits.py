"""Users of a shared daemon stay within their GPUs and GPU-hours a week, and hold nobody up."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from gpudeck.scheduler.daemon.job_suspension import JobSuspensions
from gpudeck.scheduler.protocol import settings
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Job, JobSuspension
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.protocol.user_limits import EVERYBODY, UserLimits, limits_of
from gpudeck.scheduler.protocol.users import user_name
from gpudeck.scheduler.protocol.wait_reasons import UserGpus, UserHours
from gpudeck.scheduler.protocol.wait_texts import render
from gpudeck.scheduler.queue.policy import Conditions, Plan, make_plan
from gpudeck.scheduler.queue.user_limits import WEEK_S, Allowance, User, WeeklyUse
from tests.unit.scheduler.planning import laned
from tests.unit.scheduler.test_fair_share import GPUS, HOUR, A, B, C, ended, job, on


def plan(jobs: Sequence[Job], allowances: dict[User, Allowance]) -> Plan:
    running, lanes = laned(jobs)
    return make_plan(running, lanes, GPUS, Conditions(allowances=allowances))


def started(found: Plan) -> list[int]:
    return sorted(start.job.id for start in found.starts)


def test_a_user_at_the_limit_of_gpus_waits_and_others_start() -> None:
    jobs = [job(1, A), job(2, A), job(3, A), job(4, B)]
    found = plan(jobs, {A: Allowance(UserLimits(gpus=1))})
    assert started(found) == [1, 4]
    assert found.reason(jobs[1]) == UserGpus(1, 1)
    assert render(UserGpus(1, 1), 0.0) == ("its user's limit of GPUs is reached (1 of 1 held)")
    found = plan([on(job(9, A), ["GPU-0"]), *jobs], {A: Allowance(UserLimits(gpus=1), held=1)})
    assert started(found) == [4]


def test_a_smaller_job_of_the_user_may_fit_and_a_larger_one_reserves_nothing() -> None:
    large, small, other = job(1, A, 3), job(2, A, 2), job(3, B, 1)
    found = plan([large, small, other], {A: Allowance(UserLimits(gpus=2))})
    assert started(found) == [2, 3]
    assert found.reservations() == {}
    assert found.reason(large) == UserGpus(0, 2) or found.reason(large) == UserGpus(2, 2)


def test_a_job_without_a_gpu_is_not_limited() -> None:
    without = job(1, A, 0)
    assert started(plan([without], {A: Allowance(UserLimits(gpus=1), held=1)})) == [1]


def test_the_gpu_hours_of_a_week_limit_the_start_of_further_jobs() -> None:
    limits = UserLimits(gpu_hours=10.0)
    assert started(plan([job(1, A)], {A: Allowance(limits, hours=9.9)})) == [1]
    found = plan([job(1, A)], {A: Allowance(limits, hours=10.0)})
    assert started(found) == []
    assert found.reason(job(1, A)) == UserHours(10.0, 10.0)


def test_the_hours_of_seven_days_are_added_up_with_those_of_running_jobs() -> None:
    now = 10 * WEEK_S
    stored = [
        ended(1, A, 5.0, now - WEEK_S - HOUR),  # too long ago
        ended(2, A, 4.0, now - WEEK_S + HOUR),  # an hour of it counts
        ended(3, A, 2.0, now - HOUR, gpus=2),
        ended(4, B, 7.0, now - HOUR),
    ]
    limits = {A: UserLimits(gpus=2, gpu_hours=9.0), C: UserLimits(gpu_hours=1.0)}
    read: list[float] = []

    def ended_since(since: float) -> list[Job]:
        read.append(since)
        return [j for j in stored if j.state.at >= since]  # type: ignore[union-attr]

    weekly = WeeklyUse(limits.get, ended_since)
    runs = [on(job(5, A), ["GPU-0"], now - 3 * HOUR)]
    found = weekly.allowances([A, B, C], runs, now)
    assert found == {
        A: Allowance(limits[A], 1, pytest.approx(1.0 + 4.0 + 3.0)),
        C: Allowance(limits[C], 0, 0.0),
    }
    weekly.add(ended(5, A, 3.0, now))
    later = weekly.allowances([A], [], now + WEEK_S - HOUR)
    assert later[A].hours == pytest.approx(1.0), "what is more than a week ago is forgotten"
    assert read == [now - WEEK_S], "the store is read once"
    assert WeeklyUse(lambda user: None, ended_since).allowances([A], runs, now) == {}
    assert len(read) == 1, "and not at all without a limit"


def test_whose_limits_they_are() -> None:
    own, all_ = UserLimits(gpus=1), UserLimits(gpus=4)
    known = {user_name(A): own, EVERYBODY: all_}
    assert limits_of(known, A) == own
    assert limits_of(known, B) == all_
    assert limits_of(known, 0) is None, "root is not everybody"
    assert limits_of(known, None) is None, "nor is the user of a queue of one's own"
    assert limits_of({"root": own}, 0) == own


@pytest.mark.parametrize(
    "limits", [{"ann": {"gpus": -1}}, {"ann": {"gpus": 1.5}}, {"ann": {"cpus": 1}}, {"ann": 3}]
)
def test_meaningless_limits_are_refused(limits: object) -> None:
    with pytest.raises(UserError, match="limits"):
        settings.changed(Settings(), {"limits": limits})
    stored = msgspec.json.encode(Settings(limits={"ann": UserLimits(4, 100.0)}))
    assert msgspec.json.decode(stored, type=Settings).limits["ann"].gpu_hours == 100.0


def test_only_the_suspended_jobs_of_the_same_user_hold_their_host_memory() -> None:
    def suspended(number: int, user: User, gib: int) -> Job:
        away = JobSuspension("suspended", 0.0, memory=gib << 30)
        found = on(job(number, user), ["GPU-0"])
        state = msgspec.structs.replace(found.state, suspension=away)
        return msgspec.structs.replace(found, state=state)

    own, other = suspended(1, A, 8), suspended(2, B, 100)
    queue: Any = SimpleNamespace(suspender=SimpleNamespace(jobs=[own, other]))
    limits: Any = lambda _: UserLimits(suspended_memory=10.0)  # noqa: E731
    unused: Any = None
    suspensions = JobSuspensions(lambda: queue, unused, unused, unused, unused, limits)
    leaving: Any = SimpleNamespace(name="job 3", memory=2 << 30)
    suspensions._check_limit(job(3, A), leaving)
    leaving.memory += 1
    with pytest.raises(UserError, match="may hold"):
        suspensions._check_limit(job(3, A), leaving)
