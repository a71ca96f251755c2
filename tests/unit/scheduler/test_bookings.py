"""GPUs that are reserved for a time: no job that may outlast the beginning starts there, those of
the holder do, and everybody starts in the end."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from datetime import datetime

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudeck.language.numbers import GIB
from gpudeck.scheduler.protocol.bookings import (
    KEPT_S,
    Booking,
    current,
    next_number,
    overlapping,
    renewed,
)
from gpudeck.scheduler.protocol.devices import Device
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Job, Queued, Running, Spec
from gpudeck.scheduler.protocol.schedule import expected_end
from gpudeck.scheduler.protocol.units import parse_daily
from gpudeck.scheduler.protocol.wait_texts import render
from gpudeck.scheduler.queue.placement import MARGIN_S, Availability, DeviceUse
from gpudeck.scheduler.queue.policy import Conditions, Plan, make_plan
from tests.unit.scheduler.planning import foretold, laned

HOUR = 3600.0
GPUS = [Device(f"GPU-{i}", i, "H100", "nvidia") for i in range(3)]
USES = {gpu.id: DeviceUse(80.0 * GIB, 80.0 * GIB, {}) for gpu in GPUS}
ADA, BEN = 1001, 1002


def job(number: int, gpus: int = 1, hours: float = 0.0, **more: object) -> Job:
    spec = Spec(("true",), f"job{number}", "/", gpus=gpus, timeout=hours * HOUR, **more)  # type: ignore[arg-type]
    return Job(number, spec, 0.0, Queued())


def booking(begin: float, end: float, *gpus: int, **who: object) -> Booking:
    ids = tuple(f"GPU-{i}" for i in gpus)
    return Booking(ids, begin * HOUR, end * HOUR, **who)  # type: ignore[arg-type]


def plan(jobs: Sequence[Job], bookings: Sequence[Booking], now: float = 0.0) -> Plan:
    running, lanes = laned(jobs)
    ends = {j.id: e for j in running if (e := expected_end(j, now)) is not None}
    availability = Availability(USES, bookings=tuple(bookings))
    return make_plan(running, lanes, GPUS, Conditions(availability, ends, now))


def starts(jobs: Sequence[Job], bookings: Sequence[Booking], hour: float = 0.0) -> dict[int, str]:
    found = plan(jobs, bookings, hour * HOUR).starts
    return {start.job.id: " ".join(start.devices) for start in found}


def test_a_job_starts_where_it_ends_before_a_reservation_begins() -> None:
    kept = [booking(2, 4, 0, 1, 2, user=ADA)]
    jobs = [job(1, user=BEN), job(2, hours=2.0, user=BEN), job(3, hours=1.9, user=BEN)]
    assert starts(jobs, kept) == {3: "GPU-0"}
    assert starts([job(4, user=ADA)], kept) == {4: "GPU-0"}
    assert starts([job(5, user=ADA)], kept, hour=3) == {5: "GPU-0"}
    assert starts(jobs[:1], kept, hour=3) == {}
    assert starts(jobs[:1], kept, hour=4) == {1: "GPU-0"}


def test_other_gpus_are_used_and_the_reason_names_the_holder() -> None:
    kept = [booking(2, 4, 0, 1, group="night")]
    jobs = [job(1), job(2), job(3, group="night")]
    assert starts(jobs, kept) == {1: "GPU-2", 3: "GPU-0"}
    reason = render(plan(jobs, kept, 3 * HOUR).reason(jobs[1]), 3 * HOUR)
    assert reason.startswith("needs 1 GPU; 0 free: GPU 0 is reserved for group night until ")
    alone = plan([job(1, 3)], kept)
    assert alone.starts == []
    text = render(alone.reason(job(1, 3)), 0.0)
    assert text.startswith("needs 3 GPUs; 1 free: GPU 0 is reserved for group night from ")
    shared = plan([job(1, memory=20 * GIB)], [booking(0, 4, 0, 1, 2)])
    assert "is reserved for work outside of the queue until" in render(
        shared.reason(job(1, memory=20 * GIB)), 0.0
    )


@pytest.mark.parametrize(
    ("who", "user", "group", "admitted"),
    [
        ({"user": ADA}, ADA, "any", True),
        ({"user": ADA}, BEN, "", False),
        ({"user": ADA}, None, "", False),
        ({"group": "night"}, BEN, "night", True),
        ({"group": "night"}, BEN, "day", False),
        ({"group": "night", "user": ADA}, BEN, "night", False),
        ({"group": "night", "user": ADA}, ADA, "night", True),
        ({}, None, "", False),
    ],
)
def test_whom_a_reservation_admits(
    who: dict[str, object], user: int | None, group: str, admitted: bool
) -> None:
    assert booking(0, 1, 0, **who).admits(user, group) is admitted


def test_a_job_that_waits_for_the_end_of_a_reservation_holds_up_nobody() -> None:
    kept = [booking(1, 5, 0, 1, 2, group="night")]
    jobs = [job(1, 3), job(2, 2, group="night"), job(3, 1, 0.5), job(4, 1)]
    assert starts(jobs, kept) == {2: "GPU-0 GPU-1", 3: "GPU-2"}
    assert starts(jobs, kept, hour=5) == {1: "GPU-0 GPU-1 GPU-2"}


def test_a_forecast_knows_when_a_reservation_is_over() -> None:
    kept = (booking(1, 5, 0, 1, 2, group="night"),)
    conditions = Conditions(Availability(USES, bookings=kept), {}, 0.0)
    assert foretold(job(1), [], {}, GPUS, conditions).at == 5 * HOUR
    assert foretold(job(1, hours=0.5), [], {}, GPUS, conditions).at == 0.0
    assert foretold(job(1, group="night"), [], {}, GPUS, conditions).at == 0.0


def test_the_list_of_reservations() -> None:
    known = {"1": booking(0, 1, 0), "7": booking(2, 3, 0, 1)}
    assert next_number(known) == 8
    assert next_number({}) == 1
    assert list(overlapping(known, booking(1, 2, 0))) == []
    assert list(overlapping(known, booking(0.5, 2.5, 1))) == ["7"]
    assert list(overlapping(known, booking(0.5, 2.5, 0))) == ["1", "7"]
    assert list(current(known, HOUR + KEPT_S)) == ["7"]


bookings = st.lists(
    st.builds(
        lambda begin, length, gpus, who: booking(begin, begin + length, *gpus, **who),
        st.integers(0, 12),
        st.integers(1, 6),
        st.sets(st.integers(0, 2), min_size=1),
        st.sampled_from(({"user": ADA}, {"group": "night"}, {})),
    ),
    max_size=4,
)
waiting = st.lists(
    st.fixed_dictionaries(
        {
            "gpus": st.integers(1, 3),
            "hours": st.sampled_from((1.0, 2.0, 5.0, 0.5)),
            "memory": st.sampled_from((0, 0, 20 * GIB)),
            "user": st.sampled_from((ADA, BEN)),
            "group": st.sampled_from(("", "night")),
            "priority": st.integers(0, 1),
        }
    ),
    min_size=1,
    max_size=8,
)


@settings(deadline=None, max_examples=60)
@given(bookings, waiting, st.sets(st.integers(0, 7), max_size=2))
def test_no_job_that_may_outlast_the_beginning_starts_on_a_reserved_gpu(
    kept: list[Booking], asked: list[dict[str, object]], endless: set[int]
) -> None:
    """Play the queue to its end, with backfill; jobs without a limit end after three hours."""
    jobs = [job(n, **more) for n, more in enumerate(asked)]  # type: ignore[arg-type]
    jobs = [
        msgspec.structs.replace(j, spec=msgspec.structs.replace(j.spec, timeout=0.0))
        if j.id in endless
        else j
        for j in jobs
    ]
    now, started = 0.0, set[int]()
    while now < math.inf:
        for start in plan(jobs, kept, now).starts:
            spec = start.job.spec
            over = now + spec.timeout + MARGIN_S if spec.timeout else math.inf
            for one in kept:
                if not one.admits(spec.user, spec.group) and set(one.gpus) & set(start.devices):
                    assert now >= one.end or over <= one.begin, (start, one)
            started.add(start.job.id)
            state = Running("nonce", start.devices, now, 1, 1, "boot")
            jobs = [msgspec.structs.replace(j, state=state) if j.id == start.job.id else j
                    for j in jobs]  # fmt: skip
        ends = {
            j.id: j.state.at + (j.spec.timeout or 3 * HOUR)
            for j in jobs
            if isinstance(j.state, Running)
        }
        moments = [*ends.values(), *(one.end for one in kept)]
        now = min((at for at in moments if at > now), default=math.inf)
        jobs = [j for j in jobs if ends.get(j.id) != now]
    assert started == set(range(len(asked))), "all start in the end"


def test_the_forecast_for_equal_jobs_is_that_of_the_last() -> None:
    conditions = Conditions(Availability(USES), {}, 0.0)
    *before, last = (job(number, hours=1.0) for number in range(1, 5))
    assert foretold(before[-1], [], {}, GPUS, conditions, before[:-1]).at == 0.0
    assert foretold(last, [], {}, GPUS, conditions, before).at == HOUR, "there are three GPUs"
    assert foretold(last, [], {}, GPUS, conditions).at == 0.0


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_a_daily_reservation_keeps_its_times_of_the_day(
    zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        begin = datetime(2026, 3, 27, 22).timestamp()  # the clocks change on the 29th
        nightly = Booking(("GPU-0",), begin, begin + 3 * HOUR, frees=True, daily=True)
        assert renewed(nightly, begin + 2 * HOUR) == nightly
        for day in (28, 29, 30):
            after = renewed(nightly, datetime(2026, 3, day, 12).timestamp())
            assert datetime.fromtimestamp(after.begin) == datetime(2026, 3, day, 22)
            assert datetime.fromtimestamp(after.end) == datetime(2026, 3, day + 1, 1)
        assert current({"1": nightly}, begin + 100 * KEPT_S) == {"1": nightly}
        at = datetime(2026, 5, 5, 0, 30).timestamp()
        assert parse_daily("22:00-01:00", at) == (at - 2.5 * HOUR, at + 0.5 * HOUR)
        assert parse_daily("22:00-01:00", at + HOUR) == (at + 21.5 * HOUR, at + 24.5 * HOUR)
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("text", ["20-23", "20:00", "25:00-26:00", ""])
def test_times_of_the_day_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="needed"):
        parse_daily(text, 0.0)


def test_a_reservation_that_suspends_jobs_lets_them_start_before_it() -> None:
    kept = [msgspec.structs.replace(booking(1, 5, 0, 1, 2), frees=True)]
    assert starts([job(1)], kept) == {1: "GPU-0"}
    assert starts([job(1)], kept, hour=2) == {}


def occurrences(booking: Booking, days: int) -> list[tuple[float, float]]:
    """Return when a reservation is on, within so many days of its beginning."""
    found = [(booking.begin, booking.end)]
    while booking.daily and len(found) < days:
        booking = renewed(booking, booking.end)
        found.append((booking.begin, booking.end))
    return found


@given(
    begins=st.tuples(st.integers(0, 24 * 5), st.integers(0, 24 * 5)),
    hours=st.tuples(st.integers(1, 30), st.integers(1, 20)),
    daily=st.tuples(st.booleans(), st.booleans()),
)
def test_daily_reservations_overlap_on_any_of_their_days(
    begins: tuple[int, int], hours: tuple[int, int], daily: tuple[bool, bool]
) -> None:
    start = datetime(2026, 6, 1).timestamp()  # no clock is changed in these days
    one, other = (
        Booking((GPUS[0].id,), start + b * HOUR, start + (b + h) * HOUR, daily=repeated)
        for b, h, repeated in zip(begins, hours, daily, strict=True)
    )
    wanted = any(
        a < d and c < b for a, b in occurrences(one, 20) for c, d in occurrences(other, 20)
    )
    assert list(overlapping({"1": one}, other)) == ["1"] * wanted
    assert list(overlapping({"1": other}, one)) == ["1"] * wanted
    elsewhere = msgspec.structs.replace(other, gpus=(GPUS[1].id,))
    assert list(overlapping({"1": one}, elsewhere)) == []
