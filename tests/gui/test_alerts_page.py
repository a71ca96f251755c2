"""Test the alerts page, its badge in the rail, and desktop notifications."""

from __future__ import annotations

import time

import msgspec
import numpy as np
import pytest
from PySide6.QtCore import QPoint, QRect, Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest

from gpudeck.app.alerts.page import EMPTY, MENU, NOTHING_FOUND
from gpudeck.app.charts.spark_card import SparkCard
from gpudeck.app.charts.thresholds import ChartThreshold, stepped
from gpudeck.app.report.history_export import ExportHistory
from gpudeck.app.shell.notifications import Notifier
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.protocol.snapshot import Alert
from gpudeck.scheduler.verbs.alerts import Acknowledge, GetAlerts
from gpudeck.scheduler.verbs.control import Configure
from tests.gui import snapshots
from tests.gui.snapshots import NOW

HOT = Alert(
    3,
    "too hot",
    snapshots.gpu(1).id,
    None,
    "GPU 1 is over 84 °C, peak 86 °C",
    NOW - 20,
    NOW - 10,
)
STUCK = Alert(
    4,
    "no progress",
    "",
    8,
    "job 8 (attention) has made no progress for 30 min",
    NOW - 1900,
    NOW - 100,
)
OVER = Alert(
    1,
    "throttled",
    snapshots.gpu(0).id,
    None,
    "GPU 0 was throttled",
    NOW - 500,
    NOW - 490,
    NOW - 300,
)


def show(fed, *alerts: Alert, time: float = NOW, **rest: object) -> None:
    fed.feed(snapshots.gpu_snapshot(2, time, alerts=alerts, **rest))


def cells(fed) -> list[list[str]]:
    model = fed.window.alerts.model
    return [
        [model.index(r, c).data() for c in range(model.columnCount())]
        for r in range(model.rowCount())
    ]


def test_alerts_are_listed_acknowledged_and_opened(fed):
    show(fed, HOT, STUCK)
    button = fed.window.rail.buttons["alerts"]
    assert (button.badge, button.accessibleName()) == (2, "Alerts, 2 new")
    page = fed.window.alerts
    button.click()
    assert fed.asked == [GetAlerts()]
    fed.reply(GetAlerts, (STUCK, HOT, OVER))
    assert [(c[0], c[2]) for c in cells(fed)] == [
        ("Active", "31 min 40 s"),
        ("Active", "20 s"),
        ("Resolved", "3 min 20 s"),
    ]
    assert "Job 8" in cells(fed)[0][3]
    QTest.keyClick(page.table, Qt.Key.Key_Down)
    QTest.keyClick(page.table, Qt.Key.Key_A)
    assert fed.asked[-1] == Acknowledge(3)
    show(fed, msgspec.structs.replace(HOT, acknowledged=True), STUCK, time=NOW + 1)
    assert cells(fed)[1][0] == "Acknowledged"
    assert page.chosen().key == 3, "the selection stays"
    assert button.badge == 1
    assert not page.acknowledge.isEnabled()
    page.acknowledge_all.click()
    assert fed.asked[-1] == Acknowledge(4)
    QTest.keyClick(page.table, Qt.Key.Key_Up)
    QTest.keyClick(page.table, Qt.Key.Key_Return)
    assert fed.window.rail.buttons["jobs"].isChecked()
    assert "Job 8" in fed.window.jobs.details.title.text()


def test_a_badge_counts_to_99(fed):
    button = fed.window.rail.buttons["alerts"]

    def drawn(count: int):
        button.show_badge(count)
        return button.grab().toImage()

    assert drawn(9) != drawn(99) != drawn(100)
    assert drawn(100) == drawn(1000), "it reads 99+, which has room"


def test_the_log_is_requested_only_when_alerts_change(fed):
    show(fed, HOT)
    fed.window.show_page("alerts")
    for second in range(1, 5):
        show(fed, HOT, time=NOW + second)
    assert fed.asked == [GetAlerts()]
    show(fed, time=NOW + 9)
    assert fed.asked == [GetAlerts(), GetAlerts()]
    fed.reply(GetAlerts, (msgspec.structs.replace(HOT, cleared=NOW + 9),))
    assert [c[0] for c in cells(fed)] == ["Resolved"]
    assert fed.window.rail.buttons["alerts"].badge == 0


def test_the_page_without_alerts_explains_where_to_set_them_up(fed):
    fed.window.show_page("alerts")
    show(fed)
    assert fed.window.alerts.empty.text() == EMPTY
    assert fed.window.alerts.empty.isVisible()


def test_an_alert_is_set_where_its_value_is_shown(fed):
    show(fed, HOT)
    fed.window.resize(1280, 800)
    fed.window.show_page("alerts")
    fed.settle()
    chart = fed.window.alerts.rules.charts["temp"]
    assert chart.caption == "Alert at 82 °C"
    at = QPoint(chart.width() // 2, round(chart.line_y()))
    QTest.mousePress(chart, Qt.MouseButton.LeftButton, pos=at)
    lower = at + QPoint(0, 30)
    QTest.mouseMove(chart, lower)
    level = chart.value_at(lower.y())
    assert chart.caption == f"Alert at {level:.0f} °C", "it tells where it is let go"
    assert not [r for r in fed.asked if isinstance(r, Configure)], "nothing is set meanwhile"
    QTest.mouseRelease(chart, Qt.MouseButton.LeftButton, pos=lower)
    assert fed.asked[-1] == Configure({"alert_temperature": float(round(87 - level))})
    QTest.keyClick(chart, Qt.Key.Key_Down)
    assert fed.asked[-1] == Configure({"alert_temperature": 6.0}), "one °C lower"
    other = fed.window.alerts.rules.rows["alert_idle_job"]
    other.line.setText("many")
    other.line.editingFinished.emit()
    assert "must be a number, or off" in other.error.text()
    other.line.setText("7")
    other.line.editingFinished.emit()
    assert fed.asked[-1] == Configure({"alert_idle_job": 7.0})


def test_past_alerts_are_searched_and_copied(fed):
    show(fed, HOT)
    fed.window.show_page("alerts")
    fed.reply(GetAlerts, (HOT, OVER))
    page = fed.window.alerts
    page.kinds.setCurrentText("Resolved")
    assert [c[0] for c in cells(fed)] == ["Resolved"]
    page.filter.setText("86 °C")
    assert page.empty.text() == NOTHING_FOUND
    page.kinds.setCurrentText("All alerts")
    assert [c[0] for c in cells(fed)] == ["Active"]
    page.acts["alert.copy"].trigger()
    assert QGuiApplication.clipboard().text() == HOT.text


@pytest.mark.parametrize(
    ("level", "steps", "setting"),
    [(82.0, 1, 4.0), (86.0, 1, "off"), (None, -1, 1.0), (None, 1, 1.0)],
)
def test_a_threshold_moves_by_whole_degrees_and_off_above_the_limit(level, steps, setting):
    moved = stepped(ChartThreshold("temp", level, 87.0), steps)
    assert moved == Configure({"alert_temperature": setting})


def test_new_alerts_are_notified_once_outside_quiet_hours():
    told: list[tuple[str, str]] = []
    notifier = Notifier(lambda notice: told.append((str(notice.title), str(notice.text))))
    now = time.time() + 5
    old, new = (
        msgspec.structs.replace(HOT, raised=now - 60),
        msgspec.structs.replace(HOT, id=9, raised=now),
    )

    def hear(**settings: object) -> None:
        notifier.update(
            snapshots.gpu_snapshot(
                2, now, alerts=(old, new), settings=msgspec.structs.replace(Settings(), **settings)
            )
        )

    hear(alert_notify=False)
    hour = time.localtime(now).tm_hour
    hear(quiet_hours=f"{hour:02d}:00-{(hour + 1) % 24:02d}:00")
    assert told == []
    hear()
    hear()
    assert told == [("GPU Deck: too hot", HOT.text)]


def test_the_chart_shades_when_alerts_of_its_device_were_active(fed):
    fed.window.show_page("alerts")
    fed.feed(snapshots.gpu_snapshot(2, alerts=(HOT,)), history=True)
    past = msgspec.structs.replace(HOT, id=1, since=NOW - 400, cleared=NOW - 300)
    other = msgspec.structs.replace(past, id=2, device=snapshots.gpu(0).id, since=NOW - 100)
    fed.reply(GetAlerts, (past, other))
    fed.settle()
    charts = fed.window.alerts.rules.charts
    shown = [(round(begin, 2), round(end, 2)) for begin, end in charts["temp"].spans]
    assert shown == [(0.33, 0.5), (0.97, 1.0)], "those of GPU 1, which is the warmest"
    assert charts["mem_used"].spans == ()


def test_the_list_has_the_room_that_low_charts_leave(fed):
    fed.window.resize(2560, 1440)
    fed.window.show_page("alerts")
    show(fed, HOT, STUCK)
    page = fed.window.alerts
    temperature, memory = page.rules.charts.values()
    assert page.rules.x() > page._frame.geometry().right(), "beside the list"
    assert temperature.width() > 2 * temperature.height(), "one stands below the other"
    assert temperature.y() < memory.y() < page.rules.others.y()
    fed.window.resize(1280, 800)
    fed.settle()
    assert temperature.y() == memory.y() == page.rules.others.y()
    assert page._frame.height() > 1.5 * temperature.height()


def test_a_small_window_shows_the_charts_or_all_of_the_other_rules(fed):
    fed.window.resize(800, 560)
    fed.window.show_page("alerts")
    show(fed, HOT)
    rules = fed.window.alerts.rules
    assert all(chart.isVisible() for chart in rules.charts.values())
    assert not rules.others.isVisible()
    rules.tabs[1].click()
    fed.settle()
    assert not any(chart.isVisible() for chart in rules.charts.values())
    inside = rules.rect()
    assert all(
        inside.contains(QRect(row.mapTo(rules, QPoint()), row.size()))
        for row in rules.rows.values()
    )
    fed.window.resize(1280, 800)
    fed.settle()
    assert all(chart.isVisible() for chart in rules.charts.values())
    assert rules.others.isVisible()
    assert not any(tab.isVisible() for tab in rules.tabs)


def test_memory_and_its_threshold_are_in_percent(fed):
    fed.window.show_page("alerts")
    fed.feed(snapshots.gpu_snapshot(2), history=True)
    fed.settle()
    chart = fed.window.alerts.rules.charts["mem_used"]
    share = fed.window.state.snapshot.settings.alert_memory
    assert chart.level == pytest.approx(share)
    assert chart.caption == f"Alert at {share:.0f} %"
    assert " % · " in chart.text
    chart.dragged.emit(50.0, True)
    assert fed.asked[-1] == Configure({"alert_memory": 50.0})
    QTest.keyClick(chart, Qt.Key.Key_Down)
    assert fed.asked[-1] == Configure({"alert_memory": share - 1}), "one percent lower"


def test_the_curve_of_the_chosen_alerts_device_stands_out(fed):
    fed.window.show_page("alerts")
    cool = msgspec.structs.replace(HOT, id=9, device=snapshots.gpu(0).id, text="GPU 0 is at 86 °C")
    fed.feed(snapshots.gpu_snapshot(2, alerts=(HOT, cool)), history=True)
    page = fed.window.alerts
    for row in (0, 1):
        page.table.selectRow(row)
        fed.settle()
        name = page.chosen().text.partition(" is")[0]
        assert page.rules.charts["temp"].text.endswith(name)


def test_the_readings_around_an_alert_are_saved_as_a_recording(fed):
    show(fed, STUCK, HOT)
    fed.window.show_page("alerts")
    page = fed.window.alerts
    rows = {row.key: row for row in page.model.rows}
    page.save_recording(rows[HOT.id], "/tmp/x.trace.gz")
    device = fed.window.state.snapshot.devices[1].device
    assert fed.asked[-1] == ExportHistory((device,), NOW - 320, NOW + 300, "/tmp/x.trace.gz")
    at = [row.key for row in page.model.rows].index(STUCK.id)
    page.table.setCurrentIndex(page.model.index(at, 0))
    assert not page.acts["alert.save"].isEnabled(), "it is about no device"
    assert "alert.save" in MENU


def test_a_card_shows_the_present_text_also_where_its_curve_is_the_same(qapp):
    card = SparkCard("Power")
    card.resize(160, 90)
    values = np.array([1.0, 2.0, 3.0])
    card.show_values(values, 10.0, "3 W")
    before = card.grab().toImage()
    card.show_values(values.copy(), 10.0, "3.4 W")
    assert card.accessibleDescription() == card.text == "3.4 W"
    assert card.grab().toImage() != before
