"""Every page shows what it must."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from PySide6.QtCore import QEvent, QObject, QPoint, QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QPaintEvent, QRegion, QTextDocument
from PySide6.QtTest import QTest
from PySide6.QtWidgets import (
    QAbstractButton,
    QApplication,
    QComboBox,
    QFileDialog,
    QLabel,
    QLineEdit,
    QWidget,
)

from app.assistant.talk import Talk
from app.charts.chart_data import scale
from app.charts.chart_values import Values
from app.jobs.page import EMPTY, NOTHING_FOUND, SEARCHING
from app.link.requests import (
    Accepted,
    Answered,
    Ask,
    Cancel,
    Configure,
    Configured,
    Fetch,
    Fetched,
    Found,
    Link,
    Pause,
    Refused,
    Repeat,
    Report,
    Save,
    StopAnswer,
    Submit,
    Tail,
    Tailed,
    Timeline,
    Waits,
    Wrote,
)
from app.shell.window import PAGES
from app.strip import strip as strip_module
from app.strip.tile import Cell
from app.tour import render
from app.widgets import heat_map, theme
from app.widgets.basic import Elided
from app.workloads.cells_view import VIEWS
from scheduler.protocol.jobs import Done, listed
from scheduler.protocol.settings import Settings
from tests.gui import snapshots
from tests.gui.snapshots import NOW

GPU0 = snapshots.gpu(0).id


def texts(widget: QWidget) -> str:
    """All text that can be read there now."""
    found = [
        w.text()
        for w in widget.findChildren(QLabel) + widget.findChildren(QAbstractButton)
        if w.isVisible()
    ]
    return "\n".join(found)


# the strip


def test_the_cpu_tile(fed):
    fed.feed(snapshots.cpu_snapshot())
    tile = fed.window.strip.tiles["cpu"]
    seen = [cell.text for cell in tile.cells]
    assert "AMD EPYC 9B14 · CPU: no NVIDIA GPU found" in seen
    assert "job 8 · attention" in seen
    assert tile.values[3].text == "N/A"
    assert "no temperature sensor" in tile.values[3].tooltip
    assert tile.values[2].tooltip == "TFLOP/s: no job counts its operations now"
    assert "REPLAY" not in seen
    assert "Temperature N/A" in tile.accessibleDescription()


ORDERS = [
    ((1280, 800),),
    ((2560, 1440),),
    ((2560, 1440), (1280, 800)),
    ((1280, 800), (2560, 1440), (1024, 680)),
]


@pytest.mark.parametrize("sizes", ORDERS, ids=lambda sizes: "-".join(f"{w}x{h}" for w, h in sizes))
@pytest.mark.parametrize("count", [1, 2, 3, 4, 6, 8])
def test_every_device_is_seen_whole_whatever_the_size_was_before(fed, count, sizes):
    for width, height in sizes:
        fed.window.resize(width, height)
        fed.feed(snapshots.gpu_snapshot(count, replay=True))
    strip = fed.window.strip
    tiles = list(strip.tiles.values())
    for tile in tiles:
        assert (
            strip.lines.viewport()
            .rect()
            .contains(tile.geometry().translated(tile.parentWidget().pos()))
        )
        assert tile.height() == tile.sizeHint().height()
        assert "REPLAY" in [cell.text for cell in tile.cells]
        assert [cell.text for cell in tile.cells if too_narrow(cell)] == []
    assert max(t.width() for t in tiles) - min(t.width() for t in tiles) <= 1
    assert len({t.form for t in tiles}) == 1
    assert strip.height() < 0.28 * fed.window.height()
    assert (
        len({t.y() for t in tiles}) == {1280: 2, 2560: 1, 1024: 2}[sizes[-1][0]]
        if count == 8
        else True
    )


def too_narrow(cell: Cell) -> bool:
    """Whether its text needs more room than there is."""
    metrics = QFontMetricsF(cell.font)
    return (
        metrics.horizontalAdvance(cell.text) > cell.box.width()
        or metrics.height() > cell.box.height() + 0.01
    )


@pytest.mark.parametrize(("width", "height"), [(1024, 680), (1280, 800), (2560, 1440)])
def test_the_largest_values_fit_their_tile(fed, width, height):
    devices = [snapshots.gpu(i) for i in range(8)]
    values = {"util": 100.0, "mem_used": 178.4 * snapshots.GIB, "mem_total": 179.1 * snapshots.GIB}
    values |= {"tflops": 2250.0, "temp": 100.0, "power": 1000.0}
    states = [
        snapshots.DeviceState(d, snapshots.Reading(d.id, NOW, values), snapshots.Idle(0))
        for d in devices
    ]
    fed.window.resize(width, height)
    for count in (1, 2, 8):
        fed.feed(snapshots.snapshot(tuple(states[:count])))
        for tile in fed.window.strip.tiles.values():
            assert [cell.text for cell in tile.cells if too_narrow(cell)] == []


def test_many_devices_scroll_by_whole_tiles_and_leave_room_for_the_page(fed, monkeypatch):
    fed.window.resize(1024, 680)
    fed.feed(snapshots.gpu_snapshot(16))
    strip = fed.window.strip
    assert (strip.lines.verticalScrollBar().maximum(), fed.window.height()) == (0, 680), (
        "low tiles have room"
    )
    monkeypatch.setattr(strip_module, "_MOST_OF_WINDOW", 0.2)
    fed.feed(snapshots.gpu_snapshot(16))
    assert strip.lines.verticalScrollBar().maximum() > 0
    assert strip.height() < 0.2 * 680
    tiles = [t.geometry().translated(t.parentWidget().pos()) for t in strip.tiles.values()]
    seen = [t for t in tiles if strip.lines.viewport().rect().intersects(t)]
    assert len(seen) == 8
    assert all(strip.lines.viewport().rect().contains(t) for t in seen)
    assert {c.text() for c in fed.window.dashboard.legend.chips.values()} == {
        str(i) for i in range(16)
    }


class Painted(QObject):
    """Collects what of a widget is painted."""

    def __init__(self, widget: QWidget) -> None:
        super().__init__()
        self.region = QRegion()
        widget.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if isinstance(event, QPaintEvent):
            self.region = self.region.united(event.region())
        return False


def test_a_tile_paints_what_changed_and_no_more(fed):
    fed.feed(snapshots.gpu_snapshot(2))
    tile = fed.window.strip.tiles[GPU0]
    old, painted = [*tile.values], Painted(tile)
    fed.feed(snapshots.gpu_snapshot(2, NOW + 9))
    changed = [new for was, new in zip(old, tile.values, strict=True) if was != new]
    assert len(changed) == 5
    assert all(painted.region.contains(cell.area) for cell in changed)
    assert not any(painted.region.intersects(cell.area) for cell in tile.header[:2])
    theme.apply(fed.app, "dark")
    fed.settle()
    assert tile.grab().toImage().pixelColor(6, 12) == QColor(theme.DARK.surface)


def test_devices_come_and_go(fed):
    fed.feed(snapshots.gpu_snapshot(8))
    fed.feed(snapshots.gpu_snapshot(2, NOW + 1))
    assert len(fed.window.strip.tiles) == 2
    fed.feed(snapshots.snapshot((), time=NOW + 2))
    assert fed.window.strip.lines.empty.isVisible()
    fed.feed(snapshots.cpu_snapshot(NOW + 3))
    assert list(fed.window.strip.tiles) == ["cpu"]


def test_hot_and_throttled_have_their_colour(fed):
    device = snapshots.gpu(0)
    reading = snapshots.gpu_reading(device, temp=86, throttle="power limit")
    fed.feed(snapshots.snapshot((snapshots.DeviceState(device, reading, snapshots.Idle(0)),)))
    tile = fed.window.strip.tiles[device.id]
    _, _, _, temperature, power = tile.values
    assert temperature.meaning == "hot"
    assert power.meaning == "throttled"
    assert "power limit" in power.tooltip
    image = tile.grab(power.area).toImage()
    assert QColor(theme.LIGHT.throttled) in [
        image.pixelColor(x, y) for x in range(image.width()) for y in range(image.height())
    ]


# the dashboard


def test_charts_show_values_methods_and_reasons(fed):
    fed.feed(snapshots.cpu_snapshot(), history=True)
    charts = fed.window.dashboard.charts
    assert charts["util"].values.text == "55 %"
    assert charts["temp"].absent.text() == "N/A: the kernel exposes no temperature sensor here"
    assert charts["temp"].values.text.strip() == "°C"
    fed.feed(snapshots.gpu_snapshot(1, NOW + 1))
    assert snapshots.TFLOPS_METHOD in charts["tflops"].frame.toolTip()
    assert charts["mem_used"].view.curves.limit == pytest.approx(79.6)


def test_one_curve_a_device_and_a_gap_where_nothing_was_read(fed):
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
    assert "looking back" in dashboard.where.text()
    assert not dashboard.live.isChecked()
    QTest.keyClick(dashboard, Qt.Key.Key_L)
    assert NOW <= dashboard.charts["util"].view.box.viewRange()[0][1] < NOW + 2, (
        "a live axis moves two pixels at a time"
    )


def test_the_mouse_pans_and_zooms(fed):
    fed.feed(snapshots.gpu_snapshot(1), history=True)
    dashboard = fed.window.dashboard
    dashboard.charts["temp"].view.box.zoomed.emit(0.5, NOW - 300)
    dashboard.charts["power"].view.box.panned.emit(-50.0)
    assert dashboard.span.limits == (NOW - 500, NOW - 200)
    dashboard.spans[0].click()
    assert dashboard.span.limits == (NOW - 60, NOW)


def test_the_legend_hides_a_device(fed):
    fed.feed(snapshots.gpu_snapshot(2), history=True)
    dashboard = fed.window.dashboard
    dashboard.legend.chips[GPU0].click()
    assert list(dashboard.charts["util"].view.curves.paths) == [snapshots.gpu(1).id]
    assert dashboard.charts["util"].values.text == "93 %"
    fed.feed(snapshots.gpu_snapshot(1, NOW + 1))
    assert dashboard.legend.chips == {}


def test_times_below_the_charts_are_whole(fed):
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


@pytest.mark.parametrize(
    ("field", "peak"),
    [
        ("power", 812.0),
        ("temp", 96.0),
        ("tflops", 2100.0),
        ("mem_used", 79.6 * snapshots.GIB),
        ("util", 100),
    ],
)
def test_every_value_lies_inside_its_chart(fed, field, peak):
    made = snapshots.gpu_snapshot(1)
    fed.feed(made, history=True)
    columns = snapshots.history(made)[GPU0]
    columns.columns[field][700] = peak
    fed.window.load_history(GPU0, columns)
    fed.window.refresh()
    chart = fed.window.dashboard.charts[field].view
    _, top = chart.box.viewRange()[1]
    shown = chart.curves.paths[GPU0][1].boundingRect()
    assert shown.bottom() == pytest.approx(peak / scale(field))
    assert shown.bottom() + 0.01 * top < top
    at = chart.curves.mapRectToScene(shown)
    assert chart.box.sceneBoundingRect().top() < at.top()


def test_the_band_says_which_job_ran_when(fed):
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


def test_the_band_leaves_out_hidden_devices(fed):
    fed.feed(snapshots.gpu_snapshot(2), history=True)
    fed.window.dashboard.legend.chips[GPU0].click()
    assert fed.window.dashboard.jobs.spans == ()


def test_a_curve_at_zero_can_be_seen(fed):
    device = snapshots.gpu(0)
    reading = snapshots.gpu_reading(device, busy=False)
    fed.feed(snapshots.snapshot((snapshots.DeviceState(device, reading, snapshots.Idle(0)),)))
    low, high = fed.window.dashboard.charts["util"].view.box.viewRange()[1]
    assert low < 0
    assert high > 100


def test_hidden_pages_cost_nothing(fed):
    fed.feed(snapshots.gpu_snapshot(1), history=True)
    fed.window.show_page("jobs")
    before = fed.window.dashboard.charts["util"].view.curves.paths
    fed.feed(snapshots.gpu_snapshot(1, NOW + 5))
    assert fed.window.dashboard.charts["util"].view.curves.paths is before


@pytest.mark.parametrize(("away", "back"), [("hide", "show"), ("showMinimized", "showNormal")])
def test_a_window_that_nobody_sees_draws_nothing_and_catches_up_when_it_is_seen(
    fed, qtbot, away, back
):
    fed.feed(snapshots.gpu_snapshot(1), history=True)
    box = fed.window.dashboard.charts["util"].view.box
    getattr(fed.window, away)()
    drawn = []
    refresh = fed.window.dashboard.refresh
    fed.window.dashboard.refresh = lambda: (drawn.append(1), refresh())
    fed.window._pace.setInterval(0)
    for i in range(3):
        fed.window.show_snapshot(snapshots.gpu_snapshot(1, NOW + 1 + i))
        fed.settle()
    assert drawn == []
    getattr(fed.window, back)()
    qtbot.waitUntil(lambda: box.viewRange()[0][1] == pytest.approx(NOW + 3))
    assert len(drawn) <= 2


def test_ten_repaints_a_second_at_most(fed, qtbot):
    fed.feed(snapshots.gpu_snapshot(1), history=True)
    drawn = []
    refresh = fed.window.dashboard.refresh
    fed.window.dashboard.refresh = lambda: (drawn.append(1), refresh())
    for i in range(50):
        fed.window.show_snapshot(snapshots.gpu_snapshot(1, NOW + 1 + i / 100))
    assert len(drawn) <= 1
    qtbot.waitUntil(
        lambda: (
            fed.window.dashboard.charts["util"].view.box.viewRange()[0][1]
            == pytest.approx(NOW + 1.49)
        )
    )
    assert len(drawn) <= 2


def test_ten_thousand_snapshots_do_not_grow_the_window(fed):
    settings = Settings(telemetry_hz=10)
    for i in range(10_000):
        fed.window.show_snapshot(snapshots.gpu_snapshot(1, NOW + i / 10, settings=settings))
    fed.settle()
    assert fed.window.state.history.rows() == 6000
    assert len(fed.window.jobs.model.rows) <= 9
    _, path = fed.window.dashboard.charts["util"].view.curves.paths[GPU0]
    assert path.elementCount() <= fed.window.dashboard.charts["util"].view.pixels + 4


# jobs


def test_the_table_has_every_job_and_follows_changes_in_place(fed):
    fed.window.show_page("jobs")
    fed.feed(snapshots.cpu_snapshot())
    model, table = fed.window.jobs.model, fed.window.jobs.table
    assert model.rowCount() == 9
    assert model.index(0, 5).data() == "42 % · timing · 28 s left"
    assert model.index(5, 2).data(Qt.ItemDataRole.ForegroundRole) == QColor(theme.LIGHT.failed)
    table.selectRow(5)
    assert "Job 4 · train" in texts(fed.window.jobs.details)
    made = snapshots.cpu_snapshot(NOW + 1)
    fewer = (
        snapshots.job(10, snapshots.Queued("the CPU is held by job 8")),
        *made.jobs[:2],
        *made.jobs[3:],
    )
    fed.feed(msgspec.structs.replace(made, jobs=fewer))
    assert [r.id for r in model.rows] == [8, 9, 10, 6, 5, 4, 3, 2, 1]
    assert table.currentIndex().row() == 5
    assert "Job 4 · train" in texts(fed.window.jobs.details)


def test_details_show_the_reason_and_the_result(fed):
    fed.window.show_page("jobs")
    fed.feed(snapshots.cpu_snapshot())
    fed.window.jobs.choose(4)
    facts = fed.window.jobs.details.facts.toPlainText()
    assert "CUDA out of memory (exit status 1)" in facts
    assert "python train.py --epochs=3" in facts
    fed.window.jobs.choose(6)
    facts = fed.window.jobs.details.facts.toPlainText()
    assert "within 1.00e-05" in facts
    assert "0.085" in facts


def test_long_details_begin_at_their_first_line(fed):
    fed.window.show_page("jobs")
    fed.feed(snapshots.cpu_snapshot(with_jobs=False))
    fed.window.show_page("dashboard")
    made = snapshots.cpu_snapshot(NOW + 1)
    spec = msgspec.structs.replace(
        made.jobs[3].spec, argv=tuple(f"--a-long-argument={i}" for i in range(99))
    )
    fed.feed(
        msgspec.structs.replace(made, jobs=(msgspec.structs.replace(made.jobs[3], spec=spec),))
    )
    fed.window.show_page("jobs")  # its details were filled before they had any height
    fed.settle()
    bar = fed.window.jobs.details.facts.verticalScrollBar()
    assert bar.maximum() > 0
    assert bar.value() == 0


@pytest.mark.parametrize("height", [800, 813, 827, 1000])
def test_no_row_of_the_table_is_cut(fed, height):
    fed.window.resize(1280, height)
    fed.window.show_page("jobs")
    fed.feed(snapshots.cpu_snapshot())
    table = fed.window.jobs.table
    for at in (0, table.model().rowCount() - 1):
        table.scrollTo(table.model().index(at, 0))
        seen = table.viewport().rect()
        rows = [
            table.visualRect(table.model().index(i, 0)) for i in range(table.model().rowCount())
        ]
        assert sum(r.top() < seen.bottom() and r.bottom() > seen.bottom() + 1 for r in rows) == 0
        assert seen.height() >= 5 * 30


def test_cancel_and_run_again_ask_for_it(fed):
    fed.window.show_page("jobs")
    fed.feed(snapshots.cpu_snapshot())
    fed.window.jobs.choose(8)
    fed.window.jobs.details.cancel.click()
    fed.window.jobs.choose(4)
    assert not fed.window.jobs.details.cancel.isVisible()
    fed.window.jobs.details.again.click()
    verbs = [r for r in fed.asked if not isinstance(r, Tail | Timeline)]
    assert verbs[0] == Cancel(8)
    assert verbs[1] == Repeat(4)


def test_the_log_is_followed_one_question_at_a_time(fed):
    fed.window.show_page("jobs")
    fed.feed(snapshots.cpu_snapshot())
    fed.window.jobs.choose(8)
    fed.asked.clear()
    details = fed.window.jobs.details
    assert not fed.asked  # the first question is still open
    fed.window.deliver(Tailed(8, 0, b"epoch 1\n", 8))
    fed.window.deliver(Tailed(5, 0, b"somebody else's\n", 16))
    assert details.log.toPlainText() == "epoch 1\n"
    fed.feed(snapshots.cpu_snapshot(NOW + 1))
    fed.feed(snapshots.cpu_snapshot(NOW + 2))
    assert fed.asked == [Tail(8, 8)]
    fed.window.deliver(Tailed(8, 8, b"epoch 2\n", 16))
    assert details.log.toPlainText() == "epoch 1\nepoch 2\n"
    fed.window.jobs.choose(6)
    assert details.log.toPlainText() == ""
    assert fed.asked[-1] == Tail(6, None)
    fed.window.deliver(Tailed(6, 0, b"done\n", 5))
    fed.asked.clear()
    fed.feed(snapshots.cpu_snapshot(NOW + 3))
    assert fed.asked == []  # it has ended: nothing more will come


def test_a_long_log_is_bounded_and_does_not_pull_a_reader_down(fed):
    fed.window.show_page("jobs")
    fed.feed(snapshots.cpu_snapshot())
    fed.window.jobs.choose(8)
    log = fed.window.jobs.details.log
    fed.window.deliver(Tailed(8, 0, b"line\n" * 6000, 30000))
    assert log.blockCount() <= 5000
    bar = log.verticalScrollBar()
    assert bar.value() == bar.maximum()
    bar.setValue(100)
    fed.window.deliver(Tailed(8, 30_000, b"more\n" * 3, 30_015))
    assert bar.value() == 100


def test_the_filter_and_the_empty_states(fed, qtbot):
    def nothing_more(times: int) -> None:
        qtbot.waitUntil(lambda: len(fed.finds) == times, timeout=20_000)
        fed.window.deliver(Found(fed.finds[-1], (), None))

    fed.window.show_page("jobs")
    fed.feed(snapshots.cpu_snapshot())
    QTest.keyClick(fed.window.jobs, Qt.Key.Key_F, Qt.KeyboardModifier.ControlModifier)
    fed.window.jobs.filter.setText("train")
    fed.window.jobs.kinds.setCurrentText("Failed")
    assert [r.id for r in fed.window.jobs.model.rows] == [4, 2]
    fed.finds.clear()
    fed.window.jobs.filter.setText("zzz")
    assert (fed.window.jobs.empty.isVisible(), fed.window.jobs.empty.text()) == (True, SEARCHING)
    nothing_more(1)
    assert (fed.window.jobs.empty.isVisible(), fed.window.jobs.empty.text()) == (
        True,
        NOTHING_FOUND,
    )
    fed.window.jobs.chooser.clear()
    nothing_more(2)
    fed.feed(snapshots.cpu_snapshot(NOW + 1, with_jobs=False))
    nothing_more(3)
    assert fed.window.jobs.empty.text() == EMPTY
    assert not fed.window.jobs.details.isVisible()


def test_the_queue_is_paused_and_resumed(fed):
    fed.window.show_page("jobs")
    fed.feed(snapshots.cpu_snapshot())
    fed.window.jobs.pause.click()
    fed.feed(snapshots.cpu_snapshot(NOW + 1, paused=True))
    assert "resume" in fed.window.jobs.pause.text()
    assert "the queue is paused" in fed.window.status.message.text()
    fed.window.jobs.pause.click()
    assert [r for r in fed.asked if isinstance(r, Pause)] == [Pause(True), Pause(False)]


# workloads


def test_the_form_has_the_defaults_of_the_device(fed):
    fed.window.show_page("workloads")
    fed.feed(snapshots.cpu_snapshot())
    page = fed.window.workloads
    assert page.form.editors["seq"].text() == "1024"
    fed.feed(snapshots.gpu_snapshot(1, NOW + 1))
    assert page.form.editors["seq"].text() == "16384"
    assert "2.20 TFLOP a call" in page.estimate.text()


def test_what_is_wrong_is_said_beside_the_field_as_it_is_typed(fed):
    fed.window.show_page("workloads")
    fed.feed(snapshots.cpu_snapshot())
    page = fed.window.workloads
    page.form.editors["seq"].setFocus()
    page.form.editors["seq"].selectAll()
    QTest.keyClicks(page.form.editors["seq"], "12x")
    assert "whole number" in page.form.notes["seq"].text()
    assert page.form.notes["seq"].property("meaning") == "failed"
    assert not page.run.isEnabled()
    page.form.editors["seq"].setText("2048")
    assert page.form.notes["seq"].text().startswith("tokens a sequence")
    assert page.run.isEnabled()


def test_run_submits_the_form(fed, qtbot):
    fed.window.show_page("workloads")
    fed.feed(snapshots.cpu_snapshot())
    page = fed.window.workloads
    page.form.editors["seq"].setText("512")
    page.form.editors["causal"].setCurrentText("yes")
    page.form.editors["backend"].setCurrentText("math")
    QTest.keyClick(fed.window, Qt.Key.Key_Return, Qt.KeyboardModifier.ControlModifier)
    qtbot.waitUntil(lambda: any(isinstance(r, Submit) for r in fed.asked))
    (request,) = [r for r in fed.asked if isinstance(r, Submit)]
    assert {"--seq=512", "--causal=yes", "--backend=math"} <= set(request.argv)
    assert (
        request.wishes["workload"],
        request.wishes["gpus"],
        request.wishes["params"]["seq"],
    ) == ("attention", 1, "512")


def test_progress_then_the_result_then_the_earlier_ones(fed):
    fed.window.show_page("workloads")
    fed.feed(snapshots.cpu_snapshot())
    page = fed.window.workloads
    assert page.run_line.title.text() == "Job 9 · attention"
    assert "held by job 8" in page.run_line.doing.text()
    assert page.result.title.text() == "Job 6 · attention"
    assert (page.result.verdict.text(), page.result.figure.text()) == ("pass", "0.085")
    assert "CPU: AMD EPYC" in page.result.facts.toPlainText()
    assert len(page.bars.boxes()) == 3
    page.choices["gemm"].click()
    assert page.empty.isVisible()
    assert not page.result.isVisible()
    assert not page.bars.isVisible()


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (2560, 1440)])
def test_cards_are_as_large_as_what_is_in_them(fed, width, height):
    fed.window.resize(width, height)
    fed.window.show_page("workloads")
    fed.feed(snapshots.gpu_snapshot(1))
    page = fed.window.workloads
    result, form = page.result.parentWidget(), page.run.parentWidget()
    assert 0 <= result.height() - page.result.geometry().bottom() < 2 * theme.L
    assert 0 <= form.height() - page.run.geometry().bottom() < 2 * theme.L
    assert page.result.facts.verticalScrollBar().maximum() == 0
    assert result.width() <= 1100
    assert page.bars.height() > 150
    fed.window.show_page("settings")
    fed.settle()
    row = fed.window.settings.rows["theme"]
    left = row.mapTo(fed.window.settings, QPoint(0, 0)).x()
    assert left == pytest.approx(fed.window.settings.width() - left - row.width(), abs=12)


@pytest.mark.parametrize("count", [1, 8])
def test_the_smallest_window_has_room_for_form_and_result(fed, count):
    fed.window.resize(1024, 680)
    fed.window.show_page("workloads")
    fed.feed(snapshots.gpu_snapshot(count))
    page = fed.window.workloads
    result, form = page.result.parentWidget(), page.run.parentWidget()
    assert form.geometry().right() < result.mapTo(page, QPoint(0, 0)).x()
    assert page.result.figure.height() >= page.result.figure.sizeHint().height()
    assert page.result.figure.width() >= page.result.figure.sizeHint().width()


def test_figures_beside_a_low_chart_do_not_overlap(fed):
    fed.window.resize(1024, 680)
    fed.feed(snapshots.gpu_snapshot(8), history=True)
    fed.window.refresh()
    for made in fed.window.dashboard.charts.values():
        (figures,) = made.view.axis._tickLevels
        high, figure = (
            made.view.box.height(),
            QFontMetricsF(made.view.axis.style["tickFont"]).ascent(),
        )
        assert len(figures) >= 2 and high / (len(figures) - 1) > figure, made.title.text()


def test_values_that_do_not_fit_are_told_from_lowest_to_highest(fed):
    values = Values()
    values.show_values([(text, "#000000") for text in ("35.4", "N/A", "9.5", "120.1")], "GiB")
    values.resize(values.sizeHint())
    assert [text for text, _ in values.shown] == ["35.4", "N/A", "9.5", "120.1"]
    values.resize(values.width() - 1, values.height())
    assert [text for text, _ in values.shown] == ["9.5\u2013120.1"]


def test_a_failed_verdict_is_marked(fed):
    fed.window.show_page("workloads")
    made = snapshots.cpu_snapshot()
    fed.feed(msgspec.structs.replace(made, jobs=made.jobs[4:]))
    assert fed.window.workloads.result.verdict.text().startswith("fail: out is off")
    assert fed.window.workloads.result.verdict.property("meaning") == "failed"


# workloads: what a grid shows


@pytest.fixture
def compared(fed):
    """The workloads page with a comparison whose Result is too large for a snapshot."""
    whole = snapshots.job(
        30,
        Done(NOW - 300, NOW - 20, (GPU0,), snapshots.raw(snapshots.grid())),
        "compare",
        "compare",
    )
    made = snapshots.gpu_snapshot(1)
    fed.window.show_page("workloads")
    fed.window.workloads.choose("compare")
    fed.feed(msgspec.structs.replace(made, jobs=(listed(whole), *snapshots.ceilings(), *made.jobs)))
    return fed, whole


def test_a_large_result_is_asked_for_once_and_then_shown(compared):
    fed, whole = compared
    page = fed.window.workloads
    assert (
        page.result.figure.text() == "745" and not page.result.cells.isVisible()
    )  # its headline, meanwhile
    fed.feed(msgspec.structs.replace(fed.window.state.snapshot, time=NOW + 1))
    assert [r for r in fed.asked if isinstance(r, Fetch)] == [Fetch(30)]
    fed.window.deliver(Fetched(whole))
    fed.settle()
    assert page.result.cells.heat.isVisible()
    assert len(page.result.cells.heat.marks()) == 36
    assert page.result.unit.text() == "TFLOP/s at best"


def test_a_result_that_cannot_be_fetched_says_so(compared):
    fed, _ = compared
    fed.window.deliver(Refused(Fetch(30), "there is no job 30. See: gpudeck jobs"))
    assert "there is no job 30" in texts(fed.window.workloads.result)


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
@pytest.mark.parametrize("size", render.SIZES)
def test_no_chart_is_clipped(compared, scheme, size):
    fed, whole = compared
    fed.window.deliver(Fetched(whole))
    theme.apply(fed.app, scheme)
    fed.window.resize(*size)
    cells = fed.window.workloads.result.cells
    for i, name in enumerate(VIEWS):
        cells.tabs[name].click()
        fed.settle()
        assert clipped(fed.window) == [], name
        frame = cells.rect()
        for part in (cells.stack, cells.told, cells.note, *cells.tabs.values()):
            assert not part.isVisible() or frame.contains(part.geometry()), name
        page = fed.window.workloads
        bottom = page.result.mapTo(page, QPoint(0, page.result.height())).y()
        assert bottom <= page.height(), name
        if i < len(cells.charts):
            chart = cells.charts[i]
            assert chart.isVisible() and chart.marks()
            assert all(QRectF(chart.rect()).contains(mark.box.center()) for mark in chart.marks())


def test_a_mark_is_reached_by_keyboard_and_by_mouse(compared):
    fed, whole = compared
    fed.window.deliver(Fetched(whole))
    fed.settle()
    cells = fed.window.workloads.result.cells
    heat = cells.heat
    assert heat.focusPolicy() & Qt.FocusPolicy.TabFocus
    heat.setFocus()
    seen = []
    for key in (
        Qt.Key.Key_Right,
        Qt.Key.Key_Right,
        Qt.Key.Key_Down,
        Qt.Key.Key_Left,
        Qt.Key.Key_Up,
        Qt.Key.Key_Up,
    ):
        QTest.keyClick(heat, key)
        seen.append(heat.current)
    assert seen == [0, 1, 7, 6, 0, 0]
    told = cells.told.text()
    assert "sequence 512, head size 64, bfloat16, forward" in told and "J per TFLOP" in told
    assert heat.accessibleDescription() == told
    last = heat.marks()[-1].box.center().toPoint()
    QTest.mouseClick(heat, Qt.MouseButton.LeftButton, pos=last)
    assert "sequence 16384, head size 256, bfloat16, causal, forward" in cells.told.text()


def test_every_cell_of_a_chart_is_reached_by_arrow_keys(compared):
    fed, whole = compared
    fed.window.deliver(Fetched(whole))
    fed.settle()
    cells = fed.window.workloads.result.cells
    for name, chart in zip(VIEWS, cells.charts, strict=False):
        cells.tabs[name].click()
        fed.settle()
        chart.choose(0)
        reached, edge = {0}, [0]
        while edge:
            at = edge.pop()
            for step in (QPointF(1, 0), QPointF(-1, 0), QPointF(0, 1), QPointF(0, -1)):
                chart.current = at
                if (found := chart._next(step)) is not None and found not in reached:
                    reached.add(found)
                    edge.append(found)
        assert len(reached) == len(chart.marks()), name


def test_figures_in_the_heat_map_can_be_read(qapp):
    for scheme in ("light", "dark"):
        theme.apply(qapp, scheme)
        for share in np.linspace(0, 1, 21):
            ground = heat_map.shade(float(share))
            assert contrast(heat_map.readable(ground).name(), ground.name()) >= 4.5, (scheme, share)


def test_selectors_choose_what_is_shown(compared):
    fed, whole = compared
    fed.window.deliver(Fetched(whole))
    fed.settle()
    cells = fed.window.workloads.result.cells
    before = cells.heat.heat
    cells.direction.setCurrentText("backward")
    cells.contender.setCurrentText("flash")
    cells.quantity.setCurrentText("J per TFLOP")
    assert cells.heat.heat.unit == "J per TFLOP" and cells.heat.heat != before
    assert [t.small for t in cells.heat.heat.tiles[4]][-1] == "–"
    cells.tabs["Comparison"].click()
    assert not cells.contender.isVisible() and cells.rows.isVisible()
    cells.rows.setCurrentText("d 128, causal")
    assert "head size 128, bfloat16, causal, backward" in cells.contest.marks()[0].tooltip
    assert "72 shapes: geometric mean" in cells.note.text()
    cells.tabs["Roofline"].click()
    assert {p.contender for p in cells.roofline.roofline.points} == {
        "flash"
    } and not cells.note.isVisible()
    cells.tabs["Details"].click()
    assert fed.window.workloads.result.facts.isVisible() and not cells.stack.isVisible()
    assert "made-up refusal" in fed.window.workloads.result.facts.toPlainText()
    # what was chosen stays with the next result of the workload
    again = msgspec.structs.replace(whole, id=31)
    snapshot = fed.window.state.snapshot
    fed.feed(msgspec.structs.replace(snapshot, jobs=(again, *snapshot.jobs), time=NOW + 1))
    assert (
        fed.window.workloads.result.title.text().startswith("Job 31")
        and cells.contender.currentText() == "flash"
    )


def test_a_roofline_without_ceilings_says_what_to_run(fed):
    made = snapshots.gpu_snapshot(1)
    small = msgspec.structs.replace(
        snapshots.grid("attention", ("auto",)), cells=snapshots.grid().cells[:1]
    )
    job = snapshots.job(30, Done(NOW - 300, NOW - 20, (GPU0,), snapshots.raw(small)))
    fed.window.show_page("workloads")
    fed.feed(msgspec.structs.replace(made, jobs=(job, *made.jobs)))
    cells = fed.window.workloads.result.cells
    assert [name for name, tab in cells.tabs.items() if tab.isVisible()] == ["Roofline", "Details"]
    assert fed.window.workloads.result.facts.isVisible()
    cells.tabs["Roofline"].click()
    fed.settle()
    assert "run Matrix product" in cells.note.text() and "run Memory copy" in cells.note.text()
    assert clipped(fed.window) == []


def test_save_asks_for_a_file_and_says_where_it_went(compared, qtbot, monkeypatch):
    fed, _ = compared
    monkeypatch.setattr(
        QFileDialog, "open", lambda self: None
    )  # offscreen, Qt warns of any second window
    result = fed.window.workloads.result
    QTest.keyClick(fed.window, Qt.Key.Key_S, Qt.KeyboardModifier.ControlModifier)
    qtbot.waitUntil(lambda: bool(result.findChildren(QFileDialog)))
    (dialog,) = result.findChildren(QFileDialog)
    assert dialog.selectedFiles()[0].endswith("compare-30.csv")
    dialog.fileSelected.emit("/data/grid.json")
    assert Save(30, "/data/grid.json") in fed.asked
    fed.window.deliver(Accepted(Save(30, "/data/grid.json")))
    assert "Saved to /data/grid.json" in texts(result)
    fed.window.deliver(
        Refused(
            Save(30, "/data/grid.json"), "cannot write /data/grid.json: No space left on device"
        )
    )
    assert "No space left on device" in texts(result)


def test_charts_are_painted_in_both_schemes(compared):
    fed, whole = compared
    fed.window.deliver(Fetched(whole))
    cells = fed.window.workloads.result.cells
    seen = set()
    for scheme in ("light", "dark"):
        theme.apply(fed.app, scheme)
        for name, chart in zip(VIEWS, cells.charts, strict=False):
            cells.tabs[name].click()
            fed.settle()
            image = chart.grab().toImage()
            colors = {
                image.pixel(x, y)
                for x in range(0, image.width(), 3)
                for y in range(0, image.height(), 3)
            }
            assert len(colors) > 4, name
            seen.add(frozenset(colors))
    assert len(seen) == 6


# assistant


def test_an_answer_with_its_writer_and_sources(fed, qtbot):
    fed.feed(snapshots.cpu_snapshot())
    fed.window.show_page("assistant")
    page = fed.window.assistant.talk
    assert page.empty.isVisible()
    QTest.keyClicks(page.entry.input, "how hot was it?")
    QTest.keyClick(page.entry.input, Qt.Key.Key_Return)
    (ask,) = fed.asked
    assert isinstance(ask, Ask)
    assert ask.text == "how hot was it?"
    fed.window.deliver(Waits("waits for idle devices (GPU 0: utilisation 98 %)", ask.id))
    qtbot.waitUntil(lambda: "utilisation 98 %" in page.messages.bubbles[1].note.text())
    fed.window.deliver(Wrote("It was **61", ask.id))
    qtbot.waitUntil(lambda: "61" in page.messages.bubbles[1].text.toPlainText())
    assert page.entry.stop.isVisible()
    assert not page.entry.send.isEnabled()
    fed.window.deliver(
        Answered("It was **61 °C**.", "template", (("Temperature", "61 °C", "reading"),), ask.id)
    )
    qtbot.waitUntil(
        lambda: page.messages.bubbles[1].writer.text().startswith("written by template")
    )
    assert page.messages.bubbles[1].text.toPlainText() == "It was 61 °C."
    page.messages.bubbles[1].sources.click()
    assert "61 °C (reading)" in page.messages.bubbles[1].facts.toPlainText()
    assert page.entry.send.isEnabled()


def test_the_two_buttons_and_stop(fed, qtbot):
    fed.feed(snapshots.cpu_snapshot())
    fed.window.show_page("assistant")
    page = fed.window.assistant.talk
    page.entry.happened.click()
    page.entry.stop.click()
    page.entry.brief.click()
    QTest.keyClick(fed.window, Qt.Key.Key_Escape)
    qtbot.waitUntil(lambda: not fed.window.state.conversation.busy)
    kinds = [type(r) for r in fed.asked]
    assert kinds == [Ask, StopAnswer, Report, StopAnswer]
    assert [b.note.text() for b in page.messages.bubbles[1::2]] == ["stopped", "stopped"]


def test_a_failure_is_said_in_the_conversation(fed, qtbot):
    fed.window.show_page("assistant")
    fed.window.assistant.talk.entry.happened.click()
    fed.window.deliver(Refused(fed.asked[0], "the model folder /m has no config.json"))
    qtbot.waitUntil(
        lambda: "no config.json" in fed.window.assistant.talk.messages.bubbles[1].note.text()
    )
    assert fed.window.assistant.talk.messages.bubbles[1].note.property("meaning") == "failed"


def test_an_answer_is_data_and_loads_nothing(fed, tmp_path):
    secret = tmp_path / "secret.png"
    fed.window.grab().save(str(secret))
    evil = f"![x](file://{secret})\n\n<img src='file://{secret}'>\n\n[go](file:///etc/passwd) <script>1</script>"
    fed.window.show_page("assistant")
    fed.window.assistant.show_answer("q", Answered(evil, "model tiny"))
    fed.settle()
    text = fed.window.assistant.talk.messages.bubbles[1].text
    loaded = text.document().resource(QTextDocument.ResourceType.ImageResource, f"file://{secret}")
    assert loaded.width() == 1
    assert not text.openLinks()
    assert not text.openExternalLinks()
    assert "<script>" in text.toPlainText()
    assert fed.window.assistant.talk.messages.bubbles[1].height() < 300


LONG = "# Much\n\n" + "word " * 3000


def test_a_long_answer_is_read_from_its_beginning(fed):
    fed.feed(snapshots.cpu_snapshot())
    fed.window.show_page("assistant")
    page = fed.window.assistant.talk
    for _ in range(2):
        page.show_answer("What happened?", Answered(LONG, "template"))
        fed.settle()
    assert on_top(page) == 3


def test_what_is_written_is_followed_only_from_the_end(fed, qtbot):
    fed.feed(snapshots.cpu_snapshot())
    fed.window.show_page("assistant")
    page = fed.window.assistant.talk
    page.show_answer("What happened?", Answered(LONG, "template"))
    page.entry.happened.click()
    number = fed.asked[-1].id
    bar = page.messages.verticalScrollBar()

    def write() -> None:
        end = bar.maximum()
        fed.window.deliver(Wrote("word " * 3000, number))
        qtbot.waitUntil(lambda: bar.maximum() > end)
        fed.settle()

    fed.settle()
    write()
    qtbot.waitUntil(lambda: on_top(page) == 3)  # the question stays, and the answer grows below it
    bar.triggerAction(bar.SliderAction.SliderToMaximum)
    write()
    assert bar.value() == bar.maximum()
    bar.triggerAction(bar.SliderAction.SliderPageStepSub)
    place = bar.value()
    write()
    assert bar.value() == place


def on_top(page: Talk) -> int | None:
    """The number of the message at the top of the view."""
    return next((b.number for b in page.messages.bubbles if b.y() == 0), None)


# settings


def test_settings_show_what_is_in_force(fed):
    fed.window.show_page("settings")
    fed.feed(snapshots.cpu_snapshot(settings=Settings(telemetry_hz=5, source="cpu")))
    rows = fed.window.settings.rows
    assert (rows["telemetry_hz"].text(), rows["source"].text(), rows["theme"].text()) == (
        "5",
        "cpu",
        "system",
    )
    assert "GPU Deck 0." in fed.window.settings.about.toPlainText()


def test_a_change_is_asked_for_and_a_wrong_one_is_explained(fed):
    fed.window.show_page("settings")
    fed.feed(snapshots.cpu_snapshot())
    row = fed.window.settings.rows["telemetry_hz"]
    row.line.setText("99")
    row.line.editingFinished.emit()
    assert row.error.isVisible()
    assert fed.asked == []
    fed.feed(snapshots.cpu_snapshot(NOW + 1))
    assert row.line.text() == "99"  # what was typed stays until it is put right
    row.line.setText("4")
    row.line.editingFinished.emit()
    assert fed.asked == [Configure({"telemetry_hz": 4.0})]
    assert not row.error.isVisible()
    fed.window.deliver(Refused(fed.asked[0], "the disk is full: free some space"))
    assert row.error.text() == "the disk is full: free some space"
    fed.window.deliver(Configured(Settings(telemetry_hz=4)))
    assert not row.error.isVisible()


def test_a_choice_is_asked_for(fed):
    fed.window.show_page("settings")
    fed.feed(snapshots.cpu_snapshot())
    fed.window.settings.rows["theme"].box.textActivated.emit("dark")
    assert fed.asked == []  # nothing was chosen yet
    fed.window.settings.rows["theme"].box.setCurrentText("dark")
    fed.window.settings.rows["theme"].box.textActivated.emit("dark")
    assert fed.asked == [Configure({"theme": "dark"})]


def test_without_a_daemon_a_change_says_so(fed):
    fed.window.show_page("settings")
    row = fed.window.settings.rows["telemetry_hz"]
    row.line.setText("4")
    row.line.editingFinished.emit()
    assert "daemon does not answer" in row.error.text()


# the whole window


def test_the_keyboard_reaches_every_page(fed):
    fed.feed(snapshots.cpu_snapshot())
    for number, name in enumerate(PAGES, 1):
        QTest.keyClick(
            fed.window, getattr(Qt.Key, f"Key_{number}"), Qt.KeyboardModifier.ControlModifier
        )
        assert fed.window.rail.buttons[name].isChecked()
        assert fed.window.pages.currentWidget() is getattr(fed.window, name)
    fed.window.rail.buttons["jobs"].click()
    assert fed.window.pages.currentWidget() is fed.window.jobs


def test_the_link_and_errors_are_one_line_at_the_bottom(fed):
    fed.window.show_link(Link(connected=False, text="the daemon is gone; reconnecting"))
    assert "reconnecting" in fed.window.status.link.text()
    fed.feed(snapshots.cpu_snapshot(notices=("the probe is being replaced",)))
    assert fed.window.status.message.text() == "the probe is being replaced"
    fed.window.deliver(Refused(Cancel(7), "job 7 has ended already"))
    assert fed.window.status.message.text() == "job 7 has ended already"
    fed.window.status.dismiss.click()
    fed.feed(snapshots.cpu_snapshot(NOW + 1))
    assert fed.window.status.message.text() == ""
    assert fed.window.status.source.text() == "source: cpu"


def test_settings_ask_for_a_theme_once(fed):
    asked = []
    fed.window.themed.connect(asked.append)
    fed.feed(snapshots.cpu_snapshot(settings=Settings(theme="dark")))
    fed.feed(snapshots.cpu_snapshot(NOW + 1, settings=Settings(theme="dark")))
    assert asked == ["dark"]


def test_the_theme_switches_live_charts_included(fed):
    fed.feed(snapshots.gpu_snapshot(2), history=True)
    theme.apply(fed.app, "dark")
    fed.settle()
    view = fed.window.dashboard.charts["util"].view
    assert view.curves.paths[GPU0][0].color() == QColor(theme.DARK.series[0])
    image = fed.window.grab().toImage()
    corner = image.pixelColor(image.width() - 3, 3)
    assert corner == QColor(theme.DARK.window)
    assert view.grab().toImage().pixelColor(2, 2) == QColor(theme.DARK.surface)


def contrast(one: str, other: str) -> float:
    """WCAG 2 contrast ratio."""

    def luminance(color: str) -> float:
        channels = [
            c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4
            for c in QColor(color).getRgbF()[:3]
        ]
        return float(np.dot(channels, (0.2126, 0.7152, 0.0722)))

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("t", [theme.LIGHT, theme.DARK], ids=lambda t: t.scheme)
def test_text_and_curves_can_be_read(t):
    for color in (t.text, t.muted, t.accent, t.warm, t.hot, t.throttled, t.failed):
        assert contrast(color, t.surface) >= 4.5
        assert contrast(color, t.window) >= 4.5
    assert contrast(t.on_accent, t.accent) >= 4.5
    for color in t.series:
        assert contrast(color, t.surface) >= 2.6


def clipped(window: QWidget) -> list[str]:
    """Visible texts that have less room than they need. Elided ones are meant to be short."""
    found = []
    for widget in window.findChildren(QWidget):
        if (
            not isinstance(widget, QLabel | QAbstractButton | QComboBox | QLineEdit)
            or not widget.isVisible()
            or isinstance(widget, Elided)
        ):
            continue
        need, have = (
            widget.minimumSizeHint() if isinstance(widget, QLineEdit) else widget.sizeHint(),
            widget.size(),
        )
        high = (
            widget.heightForWidth(have.width())
            if isinstance(widget, QLabel) and widget.wordWrap()
            else need.height()
        )
        wide = 0 if isinstance(widget, QLabel) and widget.wordWrap() else need.width()
        if have.width() < wide or have.height() < high:
            found.append(
                f"{type(widget).__name__} {getattr(widget, 'text', lambda: '')()!r}: {have} of {wide} x {high}"
            )
    return found


@pytest.mark.parametrize(("scheme", "size"), [("light", (1280, 800)), ("dark", (1024, 680))])
@pytest.mark.parametrize(
    "kind",
    [*(pytest.param(kind, marks=pytest.mark.slow) for kind in ("nothing", "two", "eight")), "cpu"],
)
def test_no_text_is_clipped(fed, scheme, size, kind):
    theme.apply(fed.app, scheme)
    fed.window.resize(*size)
    if kind != "nothing":
        made = {
            "cpu": snapshots.cpu_snapshot(notices=("the probe is being replaced",)),
            "two": snapshots.gpu_snapshot(2),
            "eight": snapshots.gpu_snapshot(8, replay=True),
        }
        fed.feed(made[kind], history=True)
        fed.window.assistant.show_answer(
            "What happened?", Answered("# Much\n\n" + "word " * 200, "template", (("a", "b", "c"),))
        )
    for page in PAGES:
        fed.window.show_page(page)
        fed.settle()
        assert clipped(fed.window) == [], page


@pytest.mark.slow
def test_pages_are_rendered_as_pictures(fed, tmp_path):
    fed.feed(snapshots.cpu_snapshot(), history=True)
    files = render.render_pages(fed.window, tmp_path, [(1280, 800)], ["light", "dark"])
    assert [f.name for f in files] == [
        f"{p}-{s}-1280x800.png" for s in ("light", "dark") for p in render.VIEWS
    ]
    assert all(f.stat().st_size > 5000 for f in files)
    assert len({f.read_bytes() for f in files}) == 2 * len(render.VIEWS)


def test_a_picture_that_cannot_be_written_is_an_error(fed, tmp_path):
    (tmp_path / "dashboard-light-1280x800.png").mkdir()
    with pytest.raises(render.UserError, match="cannot write"):
        render.render_pages(fed.window, tmp_path, [(1280, 800)], ["light"])


def test_there_is_one_application():
    assert QApplication.instance() is not None


def test_a_replay_runs_no_workload_and_says_why(fed):
    fed.window.show_page("workloads")
    fed.feed(snapshots.gpu_snapshot(2, replay=True))
    page = fed.window.workloads
    assert (page.run.isEnabled(), "--source auto" in page.estimate.text()) == (False, True)
    fed.feed(snapshots.gpu_snapshot(2, NOW + 1))
    assert (page.run.isEnabled(), "REPLAY" in page.estimate.text()) == (True, False)
