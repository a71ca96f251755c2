"""A device becomes idle late, becomes busy at once, and is never idle without a reading."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from gpudeck.scheduler.protocol.busy_causes import (
    BusyCause,
    ExclusiveProgram,
    JobWaits,
    Loaded,
    NoReading,
    OtherProcesses,
    QuietHours,
    Settling,
    UtilisationUnknown,
)
from gpudeck.scheduler.protocol.snapshot import Busy, Idle
from gpudeck.scheduler.telemetry.idle import (
    MAX_DWELL_S,
    REMEMBERED_S,
    IdlePolicy,
    UsageSample,
    dwell_time,
    eviction_cause,
    judge,
)

POLICY = IdlePolicy(util_percent=5.0, dwell_s=15.0)


def quiet(start: int, end: int) -> list[UsageSample]:
    return [UsageSample(float(t), 1.0, 0) for t in range(start, end + 1)]


def test_idle_after_the_dwell_and_not_before() -> None:
    assert judge(quiet(0, 15), POLICY, 15.0, None) == Idle(0.0)
    assert judge(quiet(0, 14), POLICY, 14.0, None) == Busy(Settling(14.0, 15.0))


def test_load_makes_a_device_busy_at_once_and_restarts_the_dwell() -> None:
    samples = [*quiet(0, 30), UsageSample(31.0, 80.0, 0)]
    assert judge(samples, POLICY, 31.0, None) == Busy(Loaded(80.0))
    samples += quiet(32, 40)
    assert judge(samples, POLICY, 40.0, None) == Busy(Settling(8.0, 15.0))
    assert judge([*samples, *quiet(41, 47)], POLICY, 47.0, None) == Idle(32.0)


def test_at_the_limit_is_idle_above_it_is_busy() -> None:
    assert isinstance(judge([UsageSample(0.0, 5.0, 0)], IdlePolicy(5.0, 0.0), 0.0, None), Idle)
    assert isinstance(judge([UsageSample(0.0, 5.01, 0)], IdlePolicy(5.0, 0.0), 0.0, None), Busy)


def test_foreign_processes_make_it_busy_however_little_they_do() -> None:
    assert judge([*quiet(0, 20), UsageSample(21.0, 0.0, 1)], POLICY, 21.0, None) == Busy(
        OtherProcesses(1)
    )
    assert judge([*quiet(0, 20), UsageSample(21.0, 0.0, 2)], POLICY, 21.0, None) == Busy(
        OtherProcesses(2)
    )


def test_a_device_without_a_reading_is_busy() -> None:
    assert judge([], POLICY, 0.0, None) == Busy(NoReading())
    assert judge(quiet(0, 30), POLICY, 33.5, None) == Busy(NoReading())
    assert judge([*quiet(0, 30), UsageSample(31.0, None, 0)], POLICY, 31.0, None) == Busy(
        UtilisationUnknown()
    )


def test_a_gap_in_the_readings_ends_the_quiet() -> None:
    samples = [*quiet(0, 30), *quiet(100, 105)]
    assert judge(samples, POLICY, 105.0, None) == Busy(Settling(5.0, 15.0))


def test_the_queue_comes_first() -> None:
    assert judge(quiet(0, 60), POLICY, 60.0, JobWaits(3)) == Busy(JobWaits(3))


times = st.lists(st.floats(0.1, 5.0), min_size=1, max_size=40)


@given(times, st.data(), st.floats(0, 30))
def test_idle_needs_an_unbroken_quiet_as_long_as_the_dwell_time(
    steps: list[float], data: st.DataObject, dwell: float
) -> None:
    now, samples = 0.0, []
    for step in steps:
        now += step
        samples.append(
            UsageSample(
                now,
                data.draw(st.sampled_from((None, 0.0, 5.0, 6.0, 100.0))),
                data.draw(st.integers(0, 1)),
            )
        )
    verdict = judge(samples, IdlePolicy(5.0, dwell), now, None)
    if isinstance(verdict, Idle):
        since = [x for x in samples if x.time >= verdict.since]
        assert now - verdict.since >= dwell
        assert all(x.util is not None and x.util <= 5.0 and not x.foreign for x in since)
        assert all(b.time - a.time <= 3.0 for a, b in pairwise(since))


def test_an_exclusive_program_makes_it_busy_even_if_it_only_draws() -> None:
    policy = POLICY._replace(exclusive=frozenset({"blender"}))
    drawing = UsageSample(21.0, 0.0, 0, frozenset({"Xorg", "blender"}))
    assert judge([*quiet(0, 20), drawing], policy, 21.0, None) == Busy(ExclusiveProgram("blender"))
    assert isinstance(
        judge([*quiet(0, 20), drawing._replace(programs=frozenset({"Xorg"}))], policy, 21.0, None),
        Idle,
    )


samples = st.builds(
    UsageSample,
    st.floats(0, 20),
    st.sampled_from((None, 0.0, 100.0)),
    st.integers(0, 2),
    st.frozensets(st.sampled_from(("blender", "Xorg", "python"))),
)


@given(samples, st.floats(20, 25), st.none() | st.just(QuietHours("22:00-07:00")))
def test_the_assistant_leaves_for_anybody_else_and_for_nothing_else(
    sample: UsageSample, now: float, barred: BusyCause | None
) -> None:
    """Its own load is no cause; otherwise a device that it may not take is one it must leave."""
    policy = IdlePolicy(5.0, 0.0, frozenset({"blender"}))
    why = eviction_cause(sample, policy, now, barred)
    others = (
        sample.foreign > 0
        or "blender" in sample.programs
        or now - sample.time > 3.0
        or barred is not None
    )
    assert (why is not None) == others
    if isinstance(judge([sample], policy, now, barred), Idle):
        assert why is None
    assert eviction_cause(None, policy, now, None) == NoReading()


@given(st.floats(0, 300), st.lists(st.floats(0, 1000), max_size=12), st.floats(0, 2000))
def test_the_dwell_doubles_with_each_eviction_and_is_forgiven(
    base: float, evictions: list[float], now: float
) -> None:
    required = dwell_time(base, evictions, now)
    assert base <= required <= max(base, MAX_DWELL_S)
    before = [at for at in evictions if at <= now]
    assert required == dwell_time(base, before, now), "an eviction to come says nothing yet"
    assert dwell_time(base, [*before, now], now) == min(
        2 * dwell_time(base, before, now), max(base, MAX_DWELL_S)
    )
    assert dwell_time(base, evictions, max([now, *evictions]) + REMEMBERED_S + 1.0) == base
