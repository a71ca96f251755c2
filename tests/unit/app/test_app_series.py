import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudeck.app.charts.history import SECONDS, History
from gpudeck.app.charts.scales import AxisTop, round_top, round_up, ticks
from gpudeck.app.charts.series import Decimated, Ring, decimate
from gpudeck.app.dashboard.time_axis import FIRST, LONGEST, SHORTEST, TimeAxis
from gpudeck.scheduler.protocol.settings import Settings
from tests.gui import snapshots


def ring_of(times, interval=1.0, capacity=100):
    ring = Ring(1, capacity)
    for t in times:
        ring.append(t, np.array([t * 10.0]), interval)
    return ring


def test_readings_on_time_make_no_gap():
    assert not np.isnan(ring_of([0, 1, 2, 4.4]).values).any()


def test_a_late_reading_makes_one_gap():
    ring = ring_of([0, 1, 4.5])
    assert ring.times.tolist() == [0, 1, 2, 4.5]
    assert np.isnan(ring.values[0]).tolist() == [False, False, True, False]


def test_slow_readings_without_a_window_are_no_gaps():
    assert not np.isnan(ring_of([0, 0.5, 2.5, 4.5, 5.0], interval=0.5).values).any()
    assert np.isnan(ring_of([0, 0.5, 3.6], interval=0.5).values).any()


def test_a_repeated_reading_is_ignored():
    assert ring_of([5, 5, 5]).times.tolist() == [5]


def test_a_clock_that_is_set_back_removes_later_rows():
    ring = ring_of([0, 1, 2, 3, 1.5])
    assert ring.times.tolist() == [0, 1, 1.5]


@given(st.lists(st.floats(0, 50), max_size=200), st.integers(1, 20))
def test_times_rise_and_the_ring_is_bounded(times, capacity):
    ring = ring_of(times, capacity=capacity)
    assert len(ring) <= capacity
    assert (np.diff(ring.times) > 0).all()
    if times:
        assert ring.times[-1] == times[-1]
        assert ring.values[0, -1] == times[-1] * 10


values = st.lists(st.one_of(st.floats(-1e6, 1e6), st.just(float("nan"))), min_size=1, max_size=300)


@given(values, st.floats(0.1, 40))
def test_decimation_keeps_extremes_and_gaps(column, width):
    times = np.arange(len(column)) * 0.5 + 1e9
    column = np.array(column)
    x, y = decimate(times, np.stack((column, column)), width)
    assert y.shape == (2, len(x))
    assert (np.diff(x) > 0).all()
    assert (y[0] == y[1])[~np.isnan(y[0])].all()
    if not np.isnan(column).all():
        assert np.nanmin(y) == np.nanmin(column)
        assert np.nanmax(y) == np.nanmax(column)
    assert np.isnan(column).any() == np.isnan(y).any()
    bins = len(np.unique(np.floor(times / width)))
    assert len(x) <= 3 * bins


def test_a_gap_in_one_field_leaves_the_others_whole():
    times = np.arange(8.0)
    _, y = decimate(times, np.array([[1.0, np.nan, 3, 4, 5, 6, 7, 8], np.arange(8.0)]), 4.0)
    assert np.isnan(y[0]).any()
    assert not np.isnan(y[1]).any()


def test_nothing_to_decimate():
    x, y = decimate(np.empty(0), np.empty((2, 0)), 1.0)
    assert (len(x), y.shape) == (0, (2, 0))


def test_history_is_loaded_and_then_extended_by_snapshots():
    made = snapshots.gpu_snapshot(2)
    history = History()
    for device, columns in snapshots.history(made, seconds=60).items():
        history.load(device, columns.times, columns.columns)
    history.update(made)
    span = history.span()
    assert span == (made.time - 60, made.time)
    x, y = history.window(made.devices[1].device.id, ["util", "power"], *span, 0.001)
    assert len(x) >= 121
    assert y.shape == (2, len(x))
    assert y[1].max() > 500


def test_a_missing_value_is_a_gap_and_an_unknown_column_is_ignored():
    history = History()
    history.load("d", [1.0, 2.0], {"util": [5.0, None], "novel": [1.0, 2.0]})
    _, y = history.window("d", ["util"], 0, 3, 0.001)
    assert np.isnan(y).any()
    assert np.nanmax(y) == 5


def test_devices_that_are_gone_are_forgotten():
    history = History()
    history.update(snapshots.gpu_snapshot(8))
    history.update(snapshots.gpu_snapshot(1, snapshots.NOW + 1))
    assert history.rows() == 2


def test_ten_thousand_snapshots_do_not_grow_the_history():
    history, settings = History(), Settings(telemetry_hz=10)
    for i in range(10_000):
        device = snapshots.gpu(0)
        state = snapshots.DeviceState(
            device, snapshots.gpu_reading(device, snapshots.NOW + i / 10), snapshots.Idle(0)
        )
        history.update(snapshots.snapshot((state,), (), settings=settings))
    assert history.rows() == SECONDS * 10
    start, end = history.span()
    assert end - start == pytest.approx(SECONDS, abs=0.2)


def test_the_axis_grows_until_the_user_chooses():
    span = TimeAxis()
    span.extend(100, 110)
    assert span.limits == (110 - FIRST, 110)
    span.extend(100, 400)
    assert span.limits[1] == 400 and 300 <= span.seconds <= 300 * 1.25
    length = span.seconds
    span.extend(100, 410)
    assert span.seconds == length, "it grows in steps, so that charts are seldom drawn anew"
    span.extend(0, 5000)
    assert span.seconds == SECONDS, "as long as the window remembers"
    span.go_live(60)
    span.extend(100, 500)
    assert span.limits == (440, 500)


def test_panning_back_to_the_end_makes_the_axis_live():
    span = TimeAxis()
    span.extend(0, 600)
    span.go_live(60)
    span.pan(-100)
    assert (span.live, span.limits) == (False, (440, 500))
    span.extend(10, 610)
    assert span.limits == (440, 500)
    span.pan(-10 * LONGEST)
    assert span.limits == (610 - LONGEST, 670 - LONGEST)
    span.pan(10 * LONGEST)
    assert span.live


@given(st.lists(st.tuples(st.sampled_from(["pan", "zoom"]), st.floats(-3000, 3000)), max_size=30))
def test_the_axis_stays_within_the_known_time(moves):
    span = TimeAxis()
    span.extend(0, 600)
    for kind, amount in moves:
        if kind == "pan":
            span.pan(amount)
        else:
            span.zoom(2 ** (amount / 100), span.limits[0] + abs(amount) % span.seconds)
        start, end = span.limits
        assert SHORTEST - 1e-6 <= end - start <= LONGEST + 1e-6  # the ends are rounded
        assert end <= 600
        assert start >= 600 - LONGEST - 1e-3


def test_zooming_keeps_the_moment_under_the_pointer():
    span = TimeAxis()
    span.extend(0, 600)
    span.go_live(100)
    span.pan(-200)
    span.zoom(0.5, 325)
    assert span.limits == (312.5, 362.5)


@given(st.floats(1e-6, 1e6))
def test_axes_end_at_round_values_a_little_above(highest):
    top = round_top(highest)
    assert highest < top <= 2.2 * highest
    marks = ticks(top)
    assert 3 <= len(marks) <= 6
    assert marks[0] == 0
    assert marks[-1] <= top * (1 + 1e-9)


def test_axes_without_values():
    assert (round_top(0), round_top(float("nan")), ticks(0)) == (1.0, 1.0, [])


@given(
    st.lists(
        st.tuples(st.floats(0.1, 9), st.floats(-5, 5) | st.just(float("nan")), st.booleans()),
        min_size=1,
        max_size=60,
    ),
    st.sampled_from([0.7, 2.0, 13.0]),
)
def test_scrolling_gives_the_same_values_as_a_fresh_start(steps, width):
    ring, now = Ring(2, 40), 1000.0
    kept = Decimated(ring, [1])
    for step, value, back in steps:
        now += -step / 2 if back and step > 8 else step
        ring.append(now, np.array([0.0, value]), 1.0)
        start, end = now - 30, now - (10 if back else 0)
        x, y = kept.window(start, end, width)
        fresh_x, fresh_y = Decimated(ring, [1]).window(start, end, width)
        inside, fresh_inside = (
            (start + width <= t) & (t <= end) for t in (x, fresh_x)
        )  # bins that nobody sees may be cut
        assert np.array_equal(x[inside], fresh_x[fresh_inside])
        assert np.array_equal(y[:, inside], fresh_y[:, fresh_inside], equal_nan=True)


# nothing at all, or something that can be seen: below 1e-9 the axis shows that there is nothing
@given(
    st.lists(st.just(0.0) | st.floats(1e-6, 5000), min_size=1, max_size=30),
    st.sampled_from([None, 100.0, 728.0]),
)
def test_an_axis_includes_every_value_and_changes_seldom(values, ceiling):
    axis = AxisTop()
    for value in values:
        top = axis.fit(value, ceiling)
        assert top >= value
        assert top <= max(2.5 * value, ceiling or 1.0)
        calm = axis.fit(0.95 * value, ceiling)
        assert (
            axis.fit(value, ceiling) == axis.fit(0.95 * value, ceiling) == calm
        )  # it does not dance with a value that does
    assert axis.fit(0.0, ceiling) == (ceiling or 1.0)


def test_peaks_above_the_limit_raise_the_axis_for_a_while():
    axis = AxisTop()
    assert [axis.fit(power, 728.0) for power in (71, 728, 770, 700, 640)] == [
        728,
        728,
        900,
        900,
        728,
    ]


@pytest.mark.parametrize(
    ("highest", "ceiling", "end"), [(64, 60, 70), (729, 700, 800), (5.4, 5, 6), (1.1, 1, 1.5)]
)
def test_an_end_above_a_limit_is_a_round_number(highest, ceiling, end):
    assert AxisTop().fit(highest, ceiling) == end


@given(st.floats(1e-3, 1e4))
def test_a_bin_width_is_rounded_up_to_two_digits(value):
    assert value * 0.99999 <= round_up(value) <= value * 1.1
    assert len(f"{round_up(value):.6g}".replace(".", "").strip("0")) <= 2
