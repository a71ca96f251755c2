"""Bookings of GPUs in the window: made, shown with jobs, devices and charts, and cancelled."""

from __future__ import annotations

import time

import msgspec
import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest

from gpudeck.app.format.bookings import booking_rows, outlook
from gpudeck.app.jobs.bookings_model import read_booking
from gpudeck.app.link.link import Link
from gpudeck.language.numbers import clock
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.bookings import Booking
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.verbs.bookings import Booked, CancelBooking, Reserve
from tests.gui import snapshots
from tests.gui.conftest import Fed, exchange
from tests.gui.snapshots import NOW
from tests.support import eventually, state_folder

CTRL_SHIFT = Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier
FIRST, SECOND = snapshots.gpu(0).id, snapshots.gpu(1).id
OVER = Booking((FIRST,), NOW - 8000, NOW - 3000, None, "night")
LATER = Booking((FIRST, SECOND), NOW + 3600, NOW + 7200, None, "night")
HELD = Booking((SECOND,), NOW - 60, NOW + 3600)


def reserved(**known: Booking) -> snapshots.Snapshot:
    made = snapshots.gpu_snapshot(2)
    numbers = {name.removeprefix("n"): booking for name, booking in known.items()}
    settings = msgspec.structs.replace(made.settings, reservations=numbers)
    return msgspec.structs.replace(made, settings=settings)


ALL = reserved(n1=OVER, n2=LATER, n3=HELD)


@pytest.fixture
def panel(fed: Fed):
    fed.window.show_page("jobs")
    fed.feed(ALL)
    fed.window.jobs.table.setFocus()
    QTest.keyClick(fed.window.jobs, Qt.Key.Key_B, CTRL_SHIFT)
    made = fed.window.jobs.bookings
    assert made.isVisible() and not fed.window.jobs.details.isVisible()
    return made


def test_bookings_are_listed_and_cancelled(fed: Fed, panel) -> None:
    assert [(row.cells[0], row.cells[1], row.cells[2], row.phase) for row in panel.model.rows] == [
        ("3", "GPU 1", "work outside of the queue", "Now"),
        ("2", "GPU 0, GPU 1", "group night", "Upcoming"),
        ("1", "GPU 0", "group night", "Over"),
    ]
    panel.table.selectRow(1)
    panel.cancel.click()
    assert fed.asked[-1] == CancelBooking(2)
    fed.fail(CancelBooking, "the shared daemon does this for administrators only")
    assert panel.said.property("meaning") == "failed"
    panel.cancel.click()
    fed.reply(CancelBooking)
    assert panel.said.text() == "Booking 2 was cancelled."
    fed.feed(reserved())
    assert not panel.model.rows and not panel.cancel.isEnabled()
    QTest.keyClick(panel, Qt.Key.Key_Escape)
    assert not panel.isVisible() and fed.window.jobs.table.hasFocus()


def test_a_reservation_is_typed_with_a_preview_and_made(fed: Fed, panel) -> None:
    assert panel.gpus.hasFocus()
    QTest.keyClicks(panel.gpus, "0-1")
    QTest.keyClicks(panel.until, "+")
    assert panel.said.property("meaning") == "failed", "it says at once what is wrong"
    QTest.keyClicks(panel.until, "2h")
    panel.group.setText("night")
    assert panel.said.text().startswith("Will reserve GPU 0, GPU 1 for group night, ")
    assert panel.said.text().endswith("(2 h 00 min)")
    before = time.time()
    QTest.keyClick(panel.until, Qt.Key.Key_Return)
    wanted = fed.asked[-1].booking
    assert (wanted.gpus, wanted.group, wanted.user) == ((FIRST, SECOND), "night", None)
    assert before <= wanted.begin <= time.time() and wanted.end == wanted.begin + 7200
    fed.reply(Reserve, Booked(4, (8,)))
    assert panel.said.text().startswith("Booking 4: GPU 0, GPU 1 for group night")
    assert "Job 8 may run on: no time limit ends it before the begin" in panel.said.text()
    assert (panel.gpus.text(), panel.until.text()) == ("", "")


@pytest.mark.parametrize(
    ("gpus", "begin", "until", "user", "said"),
    [
        ("", "", "+1h", "", "enter the numbers of GPUs"),
        ("x", "", "+1h", "", "enter the numbers of GPUs"),
        ("0, 7", "", "+1h", "", "there is no GPU 7 on this machine"),
        ("3-1", "", "+1h", "", "there is no GPU 3 on this machine"),
        ("0", "", " ", "", "enter when it ends"),
        ("0", "soon", "+1h", "", "is needed; got 'soon'"),
        ("0", "", "+1h", "no such user", "this machine has no user 'no such user'"),
    ],
)
def test_what_makes_no_reservation_is_explained(
    gpus: str, begin: str, until: str, user: str, said: str
) -> None:
    with pytest.raises(UserError, match=said):
        read_booking(gpus, begin, until, "", user, ALL, NOW)


def test_a_reservation_is_seen_on_the_charts_the_tile_and_the_page_of_its_device(fed: Fed) -> None:
    fed.feed(ALL, history=True)
    page = fed.window.dashboard
    assert page.gantt.isVisible()
    assert page.reserved.text() == (
        f"Reserved: GPU 1 for work outside of the queue now until {clock(NOW + 3600, NOW)}; "
        f"GPU 0, GPU 1 for group night from {clock(NOW + 3600, NOW)} until "
        f"{clock(NOW + 7200, NOW)}"
    )
    ((box, span),) = page.jobs.booking_boxes()
    assert span.device == SECOND and span.start == NOW - 60
    assert box.top() >= page.jobs.height() / 2 - 1, "in the row of its device"
    middle = QPoint(int(box.center().x()), int(box.center().y()))
    assert page.jobs.tooltip_at(middle.toPointF()).startswith("Booking 3 for work outside")
    fed.window.show_device(SECOND)
    fed.settle()
    facts = {fact.label: fact.value for fact in fed.window.device.groups["Card"].facts}
    assert facts["Booking 3"].endswith("for work outside of the queue")
    assert facts["Booking 2"].endswith("for group night") and "Booking 1" not in facts


def test_a_device_without_jobs_shows_its_reservation_over_time(fed: Fed) -> None:
    made = msgspec.structs.replace(reserved(n1=HELD), jobs=())
    fed.feed(made, history=True)
    assert list(fed.window.dashboard.jobs.rows) == [SECOND]
    fed.feed(msgspec.structs.replace(reserved(), jobs=(), time=NOW + 1))
    assert not fed.window.dashboard.gantt.isVisible() and outlook(reserved()) == ""


def test_the_window_reserves_and_cancels_with_a_real_daemon(clean_qt, qtbot, tmp_path) -> None:
    with state_folder(tmp_path / "home"), Client() as client:
        link = Link()
        snapshot = eventually(lambda: s if (s := client.snapshot()).devices else None)
        booking = read_booking("0", "+1h", "+1h", "night", "", snapshot, time.time())
        assert exchange(qtbot, link, Reserve(booking)) == Booked(1)
        (row,) = booking_rows(client.snapshot())
        assert (row.key, row.phase, row.cells[1:3]) == (1, "Upcoming", ("CPU", "group night"))
        with pytest.raises(UserError, match="booking 1 keeps one of these GPUs"):
            exchange(qtbot, link, Reserve(booking))
        exchange(qtbot, link, CancelBooking(1))
        assert booking_rows(client.snapshot()) == ()
        link.stop()
