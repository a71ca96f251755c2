"""Show everything that is known of one device."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QFrame, QVBoxLayout, QWidget

from app.charts.spark_row import SparkRow
from app.devices.device_facts import FactGroup, device_facts
from app.devices.fact_table import FactTable
from app.format.calibration import calibration_request, gpus_to_calibrate
from app.link.details_poller import DetailsPoller
from app.link.link import Link
from app.state import State
from app.widgets import theme
from app.widgets.actions import bind_actions
from app.widgets.controls import (
    REACHES_EDGE,
    EdgeScrollArea,
    Stretch,
    button,
    card,
    clear_panel,
    column,
    elided,
    label,
    row,
    set_text,
)
from scheduler.protocol.devices import Detail

_WIDE, _LEAST = 1000, 156
"""Pixels of width from which on sparklines are at least this high, and so have a scale."""
_HIGHEST = 320
"""The most pixels of height of a sparkline."""
_NARROWEST = 330
"""Pixels that a column of groups needs."""


class DevicePage(QWidget):
    """Show groups of values in columns. Emits `left` when the user goes back."""

    left = Signal()
    titled = Signal(str)
    """Carries the name of the device, as the title of the page."""

    def __init__(self, state: State, link: Link) -> None:
        super().__init__()
        self._state, self._link = state, link
        self._device = ""
        self.back = button("Back", self.left, tooltip="Back to the dashboard (Esc)")
        self.before = button(
            "Previous", lambda: self._step(-1), tooltip="Previous device (Alt+Left)"
        )
        self.after = button("Next", lambda: self._step(1), tooltip="Next device (Alt+Right)")
        self.calibrate = button(
            "Calibrate",
            self._calibrate,
            tooltip="Measure the true clock of all GPUs, so that TFLOP/s from hardware counters "
            "are right: a job that holds them for about a minute each",
        )
        self.name = elided(meaning="muted")
        self.read = label(size="small", meaning="muted")
        self.groups: dict[str, FactTable] = {}
        self._frames: list[QFrame] = []
        self._columns: list[QVBoxLayout] = []
        self.poller = DetailsPoller(self, link)
        self.poller.read.connect(self._show_details)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        slots = {
            "device.leave": self.back.click,
            "device.before": self.before.click,
            "device.after": self.after.click,
        }
        bind_actions(self, slots)
        bar = row(self.back, Stretch(self.name), self.read, self.calibrate)
        for step in (self.before, self.after):
            bar.addWidget(step)
        bar.setSpacing(theme.M)
        self.sparks = SparkRow(_HIGHEST)
        self._body = row()
        self._inner = clear_panel(column(self.sparks, self._body))
        self._area = EdgeScrollArea(self._inner)
        self.setProperty(REACHES_EDGE, True)
        bar.setContentsMargins(0, 0, theme.M, 0)
        self.setLayout(column(bar, Stretch(self._area)))

    def show_device(self, device: str) -> None:
        """Show the device with this id."""
        self._device = device
        self.refresh()

    def refresh(self) -> None:
        """Show what is known of the device now."""
        snapshot = self._state.snapshot
        detail = next((d for d in self._state.details or () if d.device == self._device), None)
        facts = device_facts(snapshot, self._device, detail) if snapshot else None
        if facts is None or snapshot is None:
            set_text(self.read, "This device is no longer available")
            return
        tile = facts.tile
        self.titled.emit(tile.title)
        set_text(self.name, " · ".join(t for t in (tile.name, tile.note, tile.holder) if t))
        set_text(self.read, facts.read)
        self.calibrate.setVisible(self._device in gpus_to_calibrate(snapshot))
        self.before.setVisible(len(snapshot.devices) > 1)
        self.after.setVisible(len(snapshot.devices) > 1)
        self._show_groups(facts.groups)
        state = next(s for s in snapshot.devices if s.device.id == self._device)
        self.sparks.show_device(state, self._state.history)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit_sparks()

    def _fit_sparks(self) -> None:
        """Give the sparklines the height that the groups leave, up to a limit."""
        heights = (made.sizeHint().height() for made in self._columns)
        left = self._area.height() - max(heights, default=0) - theme.S
        least = theme.px(_LEAST) if self.width() >= theme.px(_WIDE) else 0
        self.sparks.fit(max(left, least))

    def _show_details(self, details: tuple[Detail, ...]) -> None:
        self._state.details = details
        if self.isVisible():
            self.refresh()

    def _show_groups(self, groups: tuple[FactGroup, ...]) -> None:
        columns = max(min(self.width() // _NARROWEST, 4), 1)
        titles = tuple(group.title for group in groups)
        if tuple(self.groups) != titles or columns != len(self._columns):
            self._rebuild(groups, columns)
        for group in groups:
            self.groups[group.title].show_facts(group.facts)
        self._fit_sparks()

    def _rebuild(self, groups: tuple[FactGroup, ...], columns: int) -> None:
        """Put each group into the column that is shortest so far."""
        for frame in self._frames:
            frame.hide()
            frame.deleteLater()
        while (item := self._body.takeAt(0)) is not None:
            item.layout().deleteLater()  # type: ignore[union-attr]
        self._columns = [column() for _ in range(columns)]
        for made in self._columns:
            self._body.addLayout(made, 1)
        heights = [0] * columns
        self.groups, self._frames = {}, []
        for group in groups:
            table = self.groups[group.title] = FactTable(group.title)
            frame = card(column(label(group.title, strong=True), table, spacing=theme.XS))
            self._frames.append(frame)
            at = heights.index(min(heights))
            heights[at] += len(group.facts) + 3
            self._columns[at].addWidget(frame)
            frame.show()  # hidden frames have no height, which the sparklines must know
        for made in self._columns:
            made.addStretch(1)

    def _calibrate(self) -> None:
        if self._state.snapshot is not None:
            self._link.send(self, calibration_request(self._state.snapshot))

    def _step(self, by: int) -> None:
        snapshot = self._state.snapshot
        devices = [s.device.id for s in snapshot.devices] if snapshot else []
        if self._device in devices:
            self.show_device(devices[(devices.index(self._device) + by) % len(devices)])
