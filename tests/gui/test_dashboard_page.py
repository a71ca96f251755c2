"""The dashboard shows charts of every device over one time axis."""

from __future__ import annotations

import numpy as np
import pytest
from PySide6.QtCore import QPointF, Qt
from PySide6.QtGui import QFontMetricsF
from PySide6.QtTest import QTest

from gpudeck.app.charts.chart_card import ChartCard
from gpudeck.app.charts.chart_model import chart_models, scale
from gpudeck.app.charts.chart_source import ChartContents
from gpudeck.app.charts.chart_view import lane_font
from gpudeck.app.charts.lanes import in_lanes, lane_levels
from gpudeck.app.charts.thresholds import moved, threshold
from gpudeck.app.charts.value_line import ValueLine
from gpudeck.app.dashboard.timeline import JobSpan
from gpudeck.app.widgets import theme
from gpudeck.scheduler.protocol.annotation import Annotation
from gpudeck.scheduler.protocol.snapshot import Alert
from gpudeck.scheduler.verbs.control import Configure
from tests.gui import snapshots
from tests.gui.readable import texts
from tests.gui.snapshots import NOW

GPU0 = snapshots.gpu(0).id


def test_charts_show_values_methods_and_reasons_for_missing_values(fed):
    fed.feed(snapshots.cpu_snapshot(), history=True)
    charts = fed.window.dashboard.charts
    assert charts["util"].values.text == "55 %"
    assert charts["temp"].absent.text() == "the kernel exposes no temperature sensor here"
    assert charts["temp"].values.text == "", "no unit without a value"
    fed.feed(snapshots.gpu_snapshot(1, NOW + 1))
    assert snapshots.TFLOPS_METHOD in charts["tflops"].frame.toolTip()
    assert charts["mem_used"].view.curves.limit == pytest.approx(79.6)


def test_each_device_has_a_curve_with_gaps(fed):
    fed.feed(snapshots.gpu_snapshot(3), history=True, gap=(200, 230))
    view = fed.window.dashboard.charts["util"].view
    assert list(view.curves.paths) == [snapshots.gpu(i).id for i in range(3)]
    _, path = view.curves.paths[GPU0]
    points = [
        (path.elementAt(i).x, path.elementAt(i).isMoveTo()) for i in range(path.elementCount())
    ]
    jumps = [x for x, jump in points if jump and x > NOW - 590]
    assert len(jumps) == 1  # drawn in two pieces ...
    assert NOW - 201 < jumps[0] < NOW - 198
    assert not [x for x, _ in points if NOW - 228 < x < NOW - 202]  # ... with nothing between them
    fed.feed(snapshots.gpu_snapshot(3), history=True)
    _, path = view.curves.paths[GPU0]
    assert sum(path.elementAt(i).isMoveTo() for i in range(path.elementCount())) == 1


def test_curves_have_about_as_many_points_as_pixels(fed):
    fed.feed(snapshots.gpu_snapshot(1), history=True)
    for chart in fed.window.dashboard.charts.values():
        _, path = chart.view.curves.paths[GPU0]
        assert 0 < path.elementCount() <= min(chart.view.pixels, 1200) + 4


def test_all_charts_share_the_time_axis(fed):
    fed.feed(snapshots.gpu_snapshot(1), history=True)
    dashboard = fed.window.dashboard
    QTest.keyClick(dashboard, Qt.Key.Key_Plus)
    QTest.keyClick(dashboard, Qt.Key.Key_Left)
    ranges = [tuple(c.view.box.viewRange()[0]) for c in dashboard.charts.values()]
    assert len(set(ranges)) == 1
    start, end = ranges[0]
    assert end < NOW
    assert end - start == pytest.approx(480, abs=1)
    assert "Paused" in dashboard.bar.position.text()
    assert not dashboard.bar.live.isChecked()
    QTest.keyClick(dashboard, Qt.Key.Key_L)
    assert NOW <= dashboard.charts["util"].view.box.viewRange()[0][1] < NOW + 2, (
        "a live axis moves two pixels at a time"
    )


def test_the_mouse_pans_and_zooms(fed):
    fed.feed(snapshots.gpu_snapshot(1), history=True)
    dashboard = fed.window.dashboard
    dashboard.charts["temp"].view.box.zoomed.emit(0.5, NOW - 300)
    dashboard.charts["power"].view.box.panned.emit(-50.0)
    assert dashboard.axis.limits == (NOW - 500, NOW - 200)
    dashboard.bar.spans[0].click()
    assert dashboard.axis.limits == (NOW - 60, NOW)


def test_a_device_is_brought_into_focus_and_out_of_it(fed):
    fed.feed(snapshots.gpu_snapshot(2), history=True)
    dashboard = fed.window.dashboard
    chip = dashboard.legend.chips[snapshots.gpu(1).id]
    chip.click()
    curves = dashboard.charts["util"].view.curves
    assert list(curves.paths) == [snapshots.gpu(1).id]
    assert len(curves.behind) == 1
    assert dashboard.charts["util"].values.text == "93 %"
    chip.click()
    assert len(curves.paths) == 2
    assert curves.behind == []
    fed.feed(snapshots.gpu_snapshot(1, NOW + 1))
    assert dashboard.legend.chips == {}


def test_time_labels_are_not_cut_off(fed):
    fed.feed(snapshots.gpu_snapshot(1), history=True)
    fed.window.dashboard.show_last(60)
    axis = fed.window.dashboard.charts["util"].view.clock
    width = axis.size().width()
    room = QFontMetricsF(axis.style["tickFont"]).horizontalAdvance("00:00:00") / 2
    for second in range(8):
        fed.feed(snapshots.gpu_snapshot(1, NOW + second))
        marks = [x for x, _ in axis.labels(width)]
        assert len(marks) >= 5
        assert min(marks) >= room
        assert max(marks) <= width - room


def test_every_value_is_inside_its_chart(fed):
    made = snapshots.gpu_snapshot(1)
    fed.feed(made, history=True)
    peaks = {
        "power": 812.0,
        "temp": 96.0,
        "tflops": 2100.0,
        "mem_used": 79.6 * snapshots.GIB,
        "util": 100,
    }
    columns = snapshots.history(made)[GPU0]
    for field, peak in peaks.items():
        columns.columns[field][700] = peak
    fed.window.load_history(GPU0, columns)
    fed.window.refresh()
    for field, peak in peaks.items():
        chart = fed.window.dashboard.charts[field].view
        _, top = chart.box.viewRange()[1]
        shown = chart.curves.paths[GPU0][1].boundingRect()
        assert shown.bottom() == pytest.approx(peak / scale(field)), field
        assert shown.bottom() + 0.01 * top < top
        at = chart.curves.mapRectToScene(shown)
        assert chart.box.sceneBoundingRect().top() < at.top()


def test_the_band_shows_when_each_job_ran(fed):
    fed.feed(snapshots.gpu_snapshot(2), history=True)
    band, view = fed.window.dashboard.jobs, fed.window.dashboard.charts["util"].view
    found = {span.job: (box, span) for box, span in band.boxes()}
    assert sorted(found) == [1, 2, 3, 4, 5, 6, 7, 8]  # job 9 waits
    start = view.mapFromScene(view.box.mapViewToScene(QPointF(NOW - 90, 0))).x()
    end = view.mapFromScene(view.box.mapViewToScene(QPointF(NOW - 72, 0))).x()
    assert found[6][0].left() == pytest.approx(start, abs=1.5)
    assert found[6][0].right() == pytest.approx(end, abs=1.5)
    assert found[4][1].meaning == "failed"
    middle = found[4][0].center().toPoint()
    assert (
        band.grab().toImage().pixelColor(middle).red()
        > band.grab().toImage().pixelColor(middle).blue()
    )
    QTest.mouseClick(band, Qt.MouseButton.LeftButton, pos=middle)
    assert fed.window.rail.buttons["jobs"].isChecked()
    assert "Job 4 · train" in texts(fed.window.jobs.details)
    fed.window.show_page("dashboard")
    fed.window.dashboard.show_last(60)
    assert {span.job for span in band.spans} == {7, 8}


def test_the_band_leaves_out_devices_behind_the_one_in_focus(fed):
    fed.feed(snapshots.gpu_snapshot(2), history=True)
    fed.window.dashboard.legend.chips[snapshots.gpu(1).id].click()
    assert fed.window.dashboard.jobs.spans == ()
    assert not fed.window.dashboard.gantt.isVisible()


def test_each_of_many_devices_has_a_lane(fed):
    fed.feed(snapshots.gpu_snapshot(8), history=True)
    page = fed.window.dashboard
    curves = page.charts["util"].view.curves
    for at, (_, path) in enumerate(curves.paths.values()):
        box = path.boundingRect()
        assert 7 - at <= box.top() <= box.bottom() <= 8 - at
    assert curves.limit is None
    page.legend.chips[snapshots.gpu(5).id].click()
    ((_, path),) = curves.paths.values()
    assert path.boundingRect().bottom() > 50
    assert len(curves.behind) == 7
    assert page.charts["temp"].view.curves.limit == 87


def test_the_lowest_mean_and_highest_value_of_the_visible_span_are_shown(fed):
    made = snapshots.gpu_snapshot(1)
    fed.feed(made, history=True)
    columns = snapshots.history(made)[GPU0]
    for seconds in (60.0, 600.0):
        fed.window.dashboard.show_last(seconds)
        start, end = fed.window.dashboard.axis.limits
        read = zip(columns.times, columns.columns["power"], strict=True)
        inside = [v for t, v in read if start <= t <= end]
        text = fed.window.dashboard.charts["power"].summary.text
        low, mean, high = (float(part.split()[-1]) for part in text.split(" · "))
        assert low == pytest.approx(min(inside), abs=1)
        assert mean == pytest.approx(sum(inside) / len(inside), abs=8)
        assert high == pytest.approx(max(inside), abs=1)


def test_charts_without_data_fold_away_and_come_back(fed):
    fed.feed(snapshots.cpu_snapshot(), history=True)
    page = fed.window.dashboard
    seen = {field for field, chart in page.charts.items() if chart.frame.isVisible()}
    assert seen == {"util", "mem_used"}
    assert "Temperature (the kernel exposes no temperature sensor here)" in page.folded.text()
    fed.feed(snapshots.gpu_snapshot(1, NOW + 1), history=True)
    assert all(chart.frame.isVisible() for chart in page.charts.values())
    assert not page.folded.isVisible()


def test_a_job_has_a_bar_on_each_of_its_devices(fed):
    made = snapshots.gpu_snapshot(3)
    ids = tuple(snapshots.gpu(i).id for i in (0, 2))
    job = snapshots.job(8, snapshots.Running("a8", ids, NOW - 60, 1, 1, "boot", None))
    fed.feed(snapshots.msgspec.structs.replace(made, jobs=(job,)), history=True)
    band = fed.window.dashboard.jobs
    assert [(span.job, span.device) for span in band.spans] == [(8, d) for d in ids]
    upper, lower = (box for box, _ in band.boxes())
    assert upper.bottom() <= lower.top()
    QTest.mouseClick(band, Qt.MouseButton.LeftButton, pos=lower.center().toPoint())
    assert fed.window.rail.buttons["jobs"].isChecked()


def test_a_curve_at_zero_can_be_seen(fed):
    device = snapshots.gpu(0)
    reading = snapshots.gpu_reading(device, busy=False)
    fed.feed(snapshots.snapshot((snapshots.DeviceState(device, reading, snapshots.Idle(0)),)))
    low, high = fed.window.dashboard.charts["util"].view.box.viewRange()[1]
    assert low < 0
    assert high > 100


def test_axis_labels_of_a_low_chart_do_not_overlap(fed):
    fed.window.resize(1024, 680)
    fed.feed(snapshots.gpu_snapshot(8), history=True)
    fed.window.refresh()
    for made in fed.window.dashboard.charts.values():
        figures = made.view.axis_labels
        high, figure = (
            made.view.box.height(),
            QFontMetricsF(made.view.axis.style["tickFont"]).ascent(),
        )
        assert len(figures) >= 2 and high / (len(figures) - 1) > figure, made.title.text()


def test_values_that_do_not_fit_are_shown_as_a_range(fed):
    values = ValueLine()
    values.show_values([(text, "#000000") for text in ("35.4", "–", "9.5", "120.1")], "GiB")
    values.resize(values.sizeHint())
    assert [text for text, _ in values.shown] == ["35.4", "–", "9.5", "120.1"]
    values.resize(values.width() - 1, values.height())
    assert [text for text, _ in values.shown] == ["9.5\u2013120.1"]


def test_an_alert_is_dragged_on_its_chart(fed):
    fed.feed(snapshots.gpu_snapshot(1), history=True)
    page = fed.window.dashboard
    page.show_last(60)
    view = page.charts["temp"].view
    assert view.box.threshold == 87 - 5
    place = [view.mapFromScene(view.box.mapViewToScene(QPointF(NOW - 30, at))) for at in (82, 62)]
    port = view.viewport()
    QTest.mousePress(port, Qt.MouseButton.LeftButton, pos=place[0])
    for share in (0.3, 0.6, 1.0):
        QTest.qWait(20)  # pyqtgraph looks at the time between two events
        QTest.mouseMove(port, place[0] + (place[1] - place[0]) * share)
    fed.settle()
    limits = page.axis.limits
    QTest.mouseRelease(port, Qt.MouseButton.LeftButton, pos=place[1])
    fed.settle()
    (request,) = [r for r in fed.asked if isinstance(r, Configure)]
    assert request.changes["alert_temperature"] == pytest.approx(25, abs=2)
    assert page.axis.limits == limits, "the time has not been dragged"


@pytest.mark.parametrize(
    ("field", "level", "change"),
    [
        ("temp", 60.0, {"alert_temperature": 27.0}),
        ("temp", 90.0, {"alert_temperature": "off"}),
        ("mem_used", 39.8, {"alert_memory": 50.0}),
        ("mem_used", 80.0, {"alert_memory": "off"}),
    ],
)
def test_a_place_on_a_chart_is_a_threshold(field, level, change):
    known = threshold(field, snapshots.gpu_snapshot(1), [GPU0])
    assert known is not None
    assert moved(known, level) == Configure(change)


def test_a_chart_without_an_alert_has_no_threshold():
    assert threshold("power", snapshots.gpu_snapshot(1), [GPU0]) is None
    assert threshold("temp", snapshots.cpu_snapshot(), ["cpu"]) is None


def test_each_lane_has_its_name_and_its_value_at_every_size(fed):
    for size in ((800, 560), (1280, 800), (2560, 1440)):
        fed.window.resize(*size)
        fed.feed(snapshots.gpu_snapshot(8), history=True)
        for field, card in fed.window.dashboard.charts.items():
            assert card.view.axis_labels == [str(at) for at in range(8)], (size, field)
            assert len(card.lane_values.texts) == 8
            assert card.lane_values.isVisible()
            lane, values = card.view.box.height() / 8, "".join(card.lane_values.texts)
            ink = QFontMetricsF(lane_font(lane)).tightBoundingRect(f"{values}01234567").height()
            assert lane >= ink + 1, "no text is written over another"
            assert card.values.values == [], "no second line of the same values"
    fed.window.dashboard.legend.chips[GPU0].click()
    fed.feed(snapshots.gpu_snapshot(8, NOW + 1))
    util = fed.window.dashboard.charts["util"]
    assert not util.lane_values.isVisible()
    assert util.values.text.endswith("%")


def test_a_short_history_says_when_it_begins(fed):
    fed.feed(snapshots.gpu_snapshot(1))
    for at in range(1, 12):
        fed.feed(snapshots.gpu_snapshot(1, NOW + at))
    page = fed.window.dashboard
    page.show_last(600)
    fed.settle()
    view = page.charts["util"].view
    assert view._begin == pytest.approx(NOW, abs=1)
    page.show_last(12)
    assert view._begin is None


def test_the_first_readings_fill_the_charts(fed):
    for at in range(20):
        fed.feed(snapshots.gpu_snapshot(1, NOW + at))
    start, end = fed.window.dashboard.axis.limits
    assert end == pytest.approx(NOW + 19, abs=1)
    assert NOW - start < 0.3 * (end - start), "little of the chart is empty"


@pytest.mark.parametrize("count", [1, 8, 24])
def test_a_gap_in_the_readings_is_named(fed, count):
    fed.window.resize(1280, 800)
    fed.feed(snapshots.gpu_snapshot(count, NOW - 200), history=True)
    page = fed.window.dashboard
    page.show_last(600)
    view = page.charts["util"].view
    assert view._gap is None
    fed.feed(snapshots.gpu_snapshot(count, NOW))
    start, end = view._gap
    assert end - start == pytest.approx(200, abs=20)
    whole = view.grab().toImage()
    view.show_gap(np.empty(0))
    assert view.grab().toImage() != whole, "it is written into the gap"


def test_no_words_lie_over_the_time_that_is_compared(qapp):
    snapshot = snapshots.gpu_snapshot(1)
    device = snapshot.devices[0].device.id
    card, chart = ChartCard("Utilisation"), chart_models(snapshot)[0]
    times = np.arange(0.0, 100.0)
    read = times[(times < 30) | (times > 60)]
    lines = {device: (read, np.full(len(read), 50.0))}
    card.show_contents(chart, (0.0, 100.0), ChartContents(lines), {device: "#000000"})
    assert card.view._gap == (29.0, 61.0)
    other = {device: (times, np.full(len(times), 70.0))}
    contents = ChartContents(lines, ghosts=other)
    card.show_contents(chart, (0.0, 100.0), contents, {device: "#000000"})
    assert card.view._gap is None
    card.frame.deleteLater()


def test_lanes_tell_their_scale_and_differ_where_the_values_do(fed):
    fed.window.resize(1280, 800)
    fed.feed(snapshots.gpu_snapshot(8), history=True)
    fed.window.dashboard.bring_forward("temp")
    card = fed.window.dashboard.charts["temp"]
    low, _, high = card.values.unit.partition("each lane ")[2].partition(" ")[0].partition("–")
    found = fed.window.dashboard.source.summary(
        "temp", tuple(snapshots.gpu(i).id for i in range(8)), fed.window.dashboard.axis.limits
    )
    assert float(low) <= found[0] and found[2] <= float(high)
    assert float(high) < 1.2 * found[2], "the lanes are full"


def heat_rows(card) -> int:
    heat = card.view.curves._heat
    return 0 if heat is None else heat[0].height()


def test_one_value_of_several_devices_has_lanes_and_the_others_are_strips(fed):
    fed.feed(snapshots.gpu_snapshot(8), history=True)
    page = fed.window.dashboard
    for front in ("util", "power"):
        if front != page.front:
            page.charts[front].enlarge.click()
            fed.settle()
        for field, card in page.charts.items():
            strip = field != front
            assert heat_rows(card) == (8 if strip else 0), field
            assert len(card.view.curves.paths) == (0 if strip else 8), field
            assert card.enlarge.isVisible() == strip
            assert len(card.lane_values.texts) == 8, "each row has its value beside it"
        high = page.charts[front].frame.height()
        assert all(high > page.charts[f].frame.height() for f in page.charts if f != front)
    QTest.keyClick(page, Qt.Key.Key_V)
    assert page.front == "util", "after the last value comes the first"
    page.legend.chips[GPU0].click()
    assert not any(heat_rows(card) for card in page.charts.values()), "one device has curves"
    assert not any(card.enlarge.isVisible() for card in page.charts.values())
    page.legend.chips[GPU0].click()
    page.compare(True)
    assert not any(heat_rows(card) for card in page.charts.values()), "colours cannot be compared"


def test_limits_alerts_and_events_are_on_the_lane_of_their_device(fed):
    fed.feed(snapshots.gpu_snapshot(8), history=True)
    page, gpu = fed.window.dashboard, snapshots.gpu(3).id
    raised = Annotation(NOW - 60, None, "alert", "GPU 3 is over 80 °C", gpu)
    page.source.annotations = lambda limits: (raised,)
    page.bring_forward("temp")  # draws at once, whatever the schedule says
    fed.settle()
    for card in page.charts.values():
        ((place, color),) = card.view.curves.marks
        assert 4 < place.top() < place.bottom() <= 5, "the fourth lane from the top"
        assert (place.left(), color) == (NOW - 60, theme.LIGHT.hot)
        assert card.view.curves.moments == [], "no line through the lanes of others"
    t = theme.LIGHT
    levels = page.charts["temp"].view.curves.levels
    assert {color for _, color in levels} <= {t.muted, t.hot}


@pytest.mark.parametrize(("value", "count"), [(70.0, 4), (20.0, 0), (200.0, 0)])
def test_a_limit_is_drawn_in_each_lane_that_reaches_it(value, count):
    found = lane_levels(("a", "b", "c", "d"), value, 30.0, 80.0)
    assert len(found) == count
    assert [int(level) for level in found] == [3, 2, 1, 0][:count]


def test_a_limit_lies_in_its_lane_where_a_curve_of_its_value_does():
    devices, times = ("a", "b"), np.array([NOW])
    curves = {device: (times, np.array([70.0])) for device in devices}
    drawn = in_lanes(ChartContents(curves), devices, 30.0, 80.0).lines
    levels = [float(heights[0]) for _, heights in drawn.values()]
    assert lane_levels(devices, 70.0, 30.0, 80.0) == pytest.approx(levels)


def test_a_raised_alert_is_on_the_tile_of_its_device(fed):
    made = snapshots.gpu_snapshot(4)
    gpu = made.devices[2].device.id
    alert = Alert(1, "temperature", gpu, None, "GPU 2 is over 80 °C, peak 84 °C", NOW - 9, NOW - 4)
    fed.feed(snapshots.msgspec.structs.replace(made, alerts=(alert,)))
    shown = {
        device: [text.tooltip for text in tile.texts if text.text == "alert"]
        for device, tile in fed.window.strip.tiles.items()
    }
    assert shown.pop(gpu) == ["GPU 2 is over 80 °C, peak 84 °C"]
    assert not any(shown.values())


@pytest.mark.parametrize("count", [1, 8])
def test_the_time_that_is_compared_has_a_hue_of_its_own_and_a_key(fed, count):
    fed.feed(snapshots.gpu_snapshot(count), history=True)
    page = fed.window.dashboard
    page.compare(True)
    page.point(page.axis.limits[0])
    fed.settle()
    said = page.bar.position
    assert page.bar.key.isVisible() and said.text().startswith("Comparing with ")
    needed = said.fontMetrics().horizontalAdvance(said.text().split(" · ")[0])
    assert needed < said.width(), "what is compared can be read"
    card, chart = page.charts["util"], chart_models(fed.window.state.snapshot)[0]
    colors = dict.fromkeys((snapshots.gpu(at).id for at in range(count)), theme.LIGHT.accent)
    times, values = np.arange(0.0, 100.0), np.full(100, 50.0)
    lines = dict.fromkeys(colors, (times, values))
    card.show_contents(chart, (0.0, 100.0), ChartContents(lines, ghosts=lines), colors)
    assert {pen.color().name() for pen, _ in card.view.curves.ghosts} == {page.bar.key.color}
    assert page.bar.key.color != theme.LIGHT.accent
    page.compare(False)
    assert not page.bar.key.isVisible()


def test_a_range_without_a_button_is_named_where_the_ranges_are_a_list(fed):
    fed.window.resize(900, 700)
    fed.feed(snapshots.gpu_snapshot(8), history=True)
    page = fed.window.dashboard
    page.zoom(0.5, page.axis.limits[1])
    fed.settle()
    assert page.bar.span.isVisible() and page.bar.span.currentIndex() == -1
    assert page.bar.span.placeholderText() == "Custom"


def test_long_names_of_jobs_take_no_room_from_the_buttons_of_ranges(fed):
    fed.feed(snapshots.gpu_snapshot(8), history=True)
    bar = fed.window.dashboard.bar
    wide = fed.window.size()
    job = JobSpan(1, "1 · " + 9 * "a long name ", "", NOW - 60, NOW, "succeeded", GPU0)
    bar.show_jobs((job,), NOW)
    theme.apply(fed.app, "dark")  # the hint of a box is made anew
    for width in (1400, wide.width()):
        fed.window.resize(width, wide.height())
        fed.settle()
        assert bar.spans[0].isVisible() and bar.jobs.isVisible()
