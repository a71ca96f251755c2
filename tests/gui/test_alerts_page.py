"""Test the alerts page, its badge in the rail, and desktop notifications."""

from __future__ import annotations

import time

import msgspec
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from app.alerts.page import EMPTY
from app.shell.notifications import Notifier
from scheduler.protocol.settings import Settings
from scheduler.protocol.snapshot import Alert
from scheduler.verbs.alerts import Acknowledge, GetAlerts
from tests.gui import snapshots
from tests.gui.snapshots import NOW

HOT = Alert(
    3,
    "too hot",
    snapshots.gpu(1).id,
    None,
    "GPU 1 is at 86 °C, 3 °C below its slow-down temperature",
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
    "slowed down",
    snapshots.gpu(0).id,
    None,
    "GPU 0 has been slowed down",
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
    assert "job 8" in cells(fed)[0][3]
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


def test_new_alerts_are_notified_once_outside_quiet_hours():
    told: list[tuple[str, str]] = []
    notifier = Notifier(lambda title, text: told.append((title, text)))
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
