"""Show the bookings of GPUs, make them, and cancel them."""

from __future__ import annotations

import time

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from gpudeck.app.format.bookings import BookingRow, booking_rows, outlasting_text
from gpudeck.app.jobs.bookings_model import describe_booking, read_booking
from gpudeck.app.language.texts import tr, tr_noop, tr_text
from gpudeck.app.link.link import Link
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import (
    Stretch,
    add_shortcuts,
    button,
    card,
    column,
    empty_label,
    label,
    line_box,
    row,
    set_text,
)
from gpudeck.app.widgets.list_table import (
    RowTable,
    TableColumn,
    chosen_row,
    list_card,
    list_table,
    show_rows,
)
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.bookings import Booking
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.snapshot import Snapshot
from gpudeck.scheduler.verbs.bookings import Booked, CancelBooking, Reserve

COLUMNS = (
    TableColumn(tr_noop("Number"), 70, right=True),
    TableColumn(tr_noop("GPUs"), 0),
    TableColumn(tr_noop("For"), 190),
    TableColumn(tr_noop("From"), 130),
    TableColumn(tr_noop("Until"), 130),
    TableColumn(tr_noop("State"), 90),
)
EMPTY = tr_noop(
    "Nothing is reserved. Enter GPUs and a time below to keep them for a group, or free of jobs."
)
ADMINS_ONLY = tr_noop("On this shared machine only administrators reserve GPUs.")
_COLORS = {"Upcoming": "accent", "Now": "succeeded", "Over": "muted"}


class BookingTable(RowTable[BookingRow]):
    """List bookings; the state has a colour."""

    def color(self, row: BookingRow, column: int) -> str | None:
        over = row.phase == "Over"
        state = column == len(COLUMNS) - 1
        return getattr(theme.tokens(), _COLORS[row.phase]) if state or over else None


class BookingsPanel(QWidget):
    """Keep GPUs for a user or a group for a time. Esc closes the panel."""

    closed = Signal()

    def __init__(self, link: Link) -> None:
        super().__init__()
        self._link = link
        self._snapshot: Snapshot | None = None
        self.model = BookingTable(COLUMNS)
        self.table = list_table(self.model, [c.width for c in COLUMNS], tr_noop("Bookings"))
        self.gpus = line_box(tr("GPUs"), "0, 2-3")
        self.begin = line_box(tr("From"), tr("now, 22:00 or +1h"))
        self.until = line_box(tr("Until"), tr("08:00 or +2h"))
        self.group = line_box(tr("For the group"), tr("nobody"))
        self.user = line_box(tr("For the user"), tr("anybody"))
        self.lines = (self.gpus, self.begin, self.until, self.group, self.user)
        for line in self.lines:
            line.textChanged.connect(self._preview)
            line.returnPressed.connect(self._reserve)
        self.make = button(tr("Reserve"), self._reserve, kind="primary")
        self.cancel = button(tr("Cancel booking"), self._cancel)
        self.close_button = button(tr("Close"), self.closed, tooltip="Esc")
        self.said = label(meaning="muted", wrap=True)
        self.said.setAccessibleName(tr("Outcome"))
        add_shortcuts(self, {"Esc": self.closed.emit})
        self.setFocusProxy(self.gpus)
        self._lay_out()

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """Show the bookings that the daemon knows."""
        self._snapshot = snapshot
        show_rows(self.table, self.model, booking_rows(snapshot))
        self._stack.setCurrentIndex(0 if self.model.rows else 1)
        self.cancel.setEnabled(bool(self.model.rows))

    def _typed(self) -> Booking:
        """Return the booking of the boxes. Raises UserError that says what to type."""
        assert self._snapshot is not None
        texts = [line.text() for line in self.lines]
        gpus, begin, until, group, user = texts
        return read_booking(gpus, begin, until, group, user, self._snapshot, time.time())

    def _preview(self) -> None:
        """Say what the boxes mean while the user types."""
        if self._snapshot is None or not (self.gpus.text().strip() and self.until.text().strip()):
            return self._say("")
        try:
            described = describe_booking(self._typed(), self._snapshot)
            self._say(tr("Will reserve {booking}", booking=described))
        except UserError as e:
            self._say(tr_text(e.message), failed=True)

    def _reserve(self) -> None:
        if self._snapshot is None:
            return
        try:
            booking = self._typed()
        except UserError as e:
            self._say(tr_text(e.message), failed=True)
            return
        self._link.send(
            self,
            Reserve(booking),
            lambda made: self._made(made, booking),
            lambda problem: self._say(problem, failed=True),
        )

    def _made(self, made: Booked, booking: Booking) -> None:
        for line in self.lines:
            line.clear()
        if self._snapshot is not None:
            parts = (
                tr(
                    "Booking {n}: {booking}",
                    n=made.number,
                    booking=describe_booking(booking, self._snapshot),
                ),
                outlasting_text(made.outlasting),
            )
            self._say(". ".join(filter(None, parts)))

    def _cancel(self) -> None:
        """Cancel the chosen booking; it can be made again, so there is no question."""
        chosen = chosen_row(self.table, self.model)
        if chosen is None:
            self._say(tr("Choose the booking to cancel."), failed=True)
            return
        self._link.send(
            self,
            CancelBooking(chosen.key),
            lambda _: self._say(tr("Booking {n} was cancelled.", n=chosen.key)),
            lambda problem: self._say(problem, failed=True),
        )

    def _say(self, text: str, failed: bool = False) -> None:
        set_text(self.said, text)
        theme.mark(self.said, "meaning", "failed" if failed else "muted")

    def _lay_out(self) -> None:
        frame, self._stack = list_card(self.table, empty_label(tr(EMPTY)))
        boxes = [
            Stretch(column(label(line.accessibleName(), size="small", meaning="muted"), line))
            for line in (self.lines if paths.uses_shared() else self.lines[:-1])
        ]
        inner = column(
            label(tr("Bookings"), strong=True),
            Stretch(frame),
            row(*boxes, spacing=theme.M),
            spacing=theme.M,
        )
        if paths.uses_shared():
            inner.addWidget(label(tr(ADMINS_ONLY), size="small", meaning="muted"))
        buttons = (self.make, self.cancel, self.close_button)
        inner.addLayout(row(Stretch(self.said), *buttons, spacing=theme.M))
        self.setLayout(column(card(inner)))
