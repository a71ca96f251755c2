"""When a device is idle: late to say so, at once to take it back, never without seeing it."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from scheduler.protocol.snapshot import Busy, Idle
from scheduler.telemetry.idle import MAX_DWELL_S, REMEMBERED_S, Look, Policy, dwell, judge, leave

POLICY = Policy(util_percent=5.0, dwell_s=15.0)


def quiet(start: int, end: int) -> list[Look]:
    return [Look(float(t), 1.0, 0) for t in range(start, end + 1)]


def test_idle_after_the_dwell_and_not_before() -> None:
    assert judge(quiet(0, 15), POLICY, 15.0, None) == Idle(0.0)
    assert judge(quiet(0, 14), POLICY, 14.0, None) == Busy("settling, quiet for 14 of 15 s")


def test_busy_at_once_and_the_dwell_starts_anew() -> None:
    looks = [*quiet(0, 30), Look(31.0, 80.0, 0)]
    assert judge(looks, POLICY, 31.0, None) == Busy("utilisation 80 %")
    looks += quiet(32, 40)
    assert judge(looks, POLICY, 40.0, None) == Busy("settling, quiet for 8 of 15 s")
    assert judge([*looks, *quiet(41, 47)], POLICY, 47.0, None) == Idle(32.0)


def test_at_the_limit_is_idle_above_it_is_busy() -> None:
    assert isinstance(judge([Look(0.0, 5.0, 0)], Policy(5.0, 0.0), 0.0, None), Idle)
    assert isinstance(judge([Look(0.0, 5.01, 0)], Policy(5.0, 0.0), 0.0, None), Busy)


def test_foreign_processes_make_it_busy_however_little_they_do() -> None:
    assert judge([*quiet(0, 20), Look(21.0, 0.0, 1)], POLICY, 21.0, None) == Busy(
        "1 process of others"
    )
    assert judge([*quiet(0, 20), Look(21.0, 0.0, 2)], POLICY, 21.0, None) == Busy(
        "2 processes of others"
    )


def test_what_cannot_be_seen_is_not_free() -> None:
    assert judge([], POLICY, 0.0, None) == Busy("no current reading")
    assert judge(quiet(0, 30), POLICY, 33.5, None) == Busy("no current reading")
    assert judge([*quiet(0, 30), Look(31.0, None, 0)], POLICY, 31.0, None) == Busy(
        "utilisation cannot be read"
    )


def test_a_gap_in_the_readings_ends_the_quiet() -> None:
    looks = [*quiet(0, 30), *quiet(100, 105)]
    assert judge(looks, POLICY, 105.0, None) == Busy("settling, quiet for 5 of 15 s")


def test_the_queue_comes_first() -> None:
    assert judge(quiet(0, 60), POLICY, 60.0, "job 3 waits") == Busy("job 3 waits")


times = st.lists(st.floats(0.1, 5.0), min_size=1, max_size=40)


@given(times, st.data(), st.floats(0, 30))
def test_idle_is_said_only_of_an_unbroken_quiet_as_long_as_the_dwell(
    steps: list[float], data: st.DataObject, dwell: float
) -> None:
    now, looks = 0.0, []
    for step in steps:
        now += step
        looks.append(
            Look(
                now,
                data.draw(st.sampled_from((None, 0.0, 5.0, 6.0, 100.0))),
                data.draw(st.integers(0, 1)),
            )
        )
    verdict = judge(looks, Policy(5.0, dwell), now, None)
    if isinstance(verdict, Idle):
        since = [x for x in looks if x.time >= verdict.since]
        assert now - verdict.since >= dwell
        assert all(x.util is not None and x.util <= 5.0 and not x.foreign for x in since)
        assert all(b.time - a.time <= 3.0 for a, b in pairwise(since))


def test_an_exclusive_program_makes_it_busy_even_if_it_only_draws() -> None:
    policy = POLICY._replace(exclusive=frozenset({"blender"}))
    drawing = Look(21.0, 0.0, 0, frozenset({"Xorg", "blender"}))
    assert judge([*quiet(0, 20), drawing], policy, 21.0, None) == Busy(
        "blender runs, which has it for itself"
    )
    assert isinstance(
        judge([*quiet(0, 20), drawing._replace(programs=frozenset({"Xorg"}))], policy, 21.0, None),
        Idle,
    )


looks = st.builds(
    Look,
    st.floats(0, 20),
    st.sampled_from((None, 0.0, 100.0)),
    st.integers(0, 2),
    st.frozensets(st.sampled_from(("blender", "Xorg", "python"))),
)


@given(looks, st.floats(20, 25), st.none() | st.just("quiet hours, 22:00-07:00"))
def test_it_leaves_for_anybody_else_and_for_nothing_else(
    look: Look, now: float, barred: str | None
) -> None:
    """Its own load is no reason; whoever may not come may not stay, but for that."""
    policy = Policy(5.0, 0.0, frozenset({"blender"}))
    why = leave(look, policy, now, barred)
    others = (
        look.foreign > 0
        or "blender" in look.programs
        or now - look.time > 3.0
        or barred is not None
    )
    assert (why is not None) == others
    if isinstance(judge([look], policy, now, barred), Idle):
        assert why is None
    assert leave(None, policy, now, None) == "no current reading"


@given(st.floats(0, 300), st.lists(st.floats(0, 1000), max_size=12), st.floats(0, 2000))
def test_the_dwell_doubles_with_each_eviction_and_is_forgiven(
    base: float, evictions: list[float], now: float
) -> None:
    asked = dwell(base, evictions, now)
    assert base <= asked <= max(base, MAX_DWELL_S)
    before = [at for at in evictions if at <= now]
    assert dwell(base, [*before, now], now) == min(
        2 * dwell(base, before, now), max(base, MAX_DWELL_S)
    )
    assert dwell(base, evictions, max([now, *evictions]) + REMEMBERED_S + 1.0) == base
