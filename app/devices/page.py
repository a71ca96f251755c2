"""Everything about one device."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QFrame, QHBoxLayout, QScrollArea, QVBoxLayout, QWidget

from app.devices.device_facts import DeviceFacts, device_facts
from app.devices.fact_table import Facts
from app.devices.parts import Group
from app.link.details_poller import DetailsPoller
from app.link.link import Link
from app.link.state import State
from app.widgets import theme
from app.widgets.controls import button, card, elided, label, row, set_text
from scheduler.protocol.devices import Detail

_NARROWEST = 330
"""Pixels that a column of groups needs."""


class DevicePage(QWidget):
    """Groups of values in columns. Emits `left` when the user goes back."""

    left = Signal()

    def __init__(self, state: State, link: Link) -> None:
        super().__init__()
        self._state = state
        self._device = ""
        self.back = button("Back", tooltip="Back to the dashboard (Esc)")
        self.back.clicked.connect(self.left)
        self.before = button("Previous", tooltip="The device before (Alt+Left)")
        self.before.clicked.connect(lambda: self._step(-1))
        self.after = button("Next", tooltip="The device after (Alt+Right)")
        self.after.clicked.connect(lambda: self._step(1))
        self.title, self.name = label(size="large", strong=True), elided(meaning="muted")
        self.read = label(size="small", meaning="muted")
        self.groups: dict[str, Facts] = {}
        self._frames: list[QFrame] = []
        self._columns: list[QVBoxLayout] = []
        self.poller = DetailsPoller(self, link)
        self.poller.read.connect(self._show_details)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        for keys, slot in (
            ("Esc", self.back.click),
            ("Alt+Left", self.before.click),
            ("Alt+Right", self.after.click),
        ):
            QShortcut(QKeySequence(keys), self, slot)
        self._lay_out()

    def show_device(self, device: str) -> None:
        self._device = device
        self.refresh()

    def refresh(self) -> None:
        snapshot = self._state.snapshot
        detail = next((d for d in self._state.details or () if d.device == self._device), None)
        page = device_facts(snapshot, self._device, detail) if snapshot else None
        if page is None or snapshot is None:
            set_text(self.read, "this device is not there any more")
            return
        set_text(self.title, page.tile.title)
        set_text(
            self.name,
            " · ".join(t for t in (page.tile.name, page.tile.note, page.tile.holder) if t),
        )
        set_text(self.read, page.read)
        several = len(snapshot.devices) > 1
        self.before.setVisible(several)
        self.after.setVisible(several)
        self._show_groups(page)

    def _show_details(self, details: tuple[Detail, ...]) -> None:
        self._state.details = details
        if self.isVisible():
            self.refresh()

    def _show_groups(self, page: DeviceFacts) -> None:
        columns = max(min(self.width() // _NARROWEST, 4), 1)
        if tuple(self.groups) != tuple(g.title for g in page.groups) or columns != len(
            self._columns
        ):
            self._rebuild(page.groups, columns)
        for group in page.groups:
            self.groups[group.title].show_facts(group.facts)

    def _rebuild(self, groups: tuple[Group, ...], columns: int) -> None:
        """Each group into the column that is shortest so far."""
        for frame in self._frames:
            frame.hide()
            frame.deleteLater()
        while (item := self._body.takeAt(0)) is not None:
            item.layout().deleteLater()  # type: ignore[union-attr]
        self._columns = [QVBoxLayout() for _ in range(columns)]
        for column in self._columns:
            column.setSpacing(theme.S)
            self._body.addLayout(column, 1)
        heights = [0] * columns
        self.groups, self._frames = {}, []
        for group in groups:
            facts = self.groups[group.title] = Facts(group.title)
            inner = QVBoxLayout()
            inner.setSpacing(theme.XS)
            inner.addWidget(label(group.title, strong=True))
            inner.addWidget(facts)
            frame = card(inner)
            self._frames.append(frame)
            at = heights.index(min(heights))
            heights[at] += len(group.facts) + 3
            self._columns[at].addWidget(frame)
        for column in self._columns:
            column.addStretch(1)

    def _step(self, by: int) -> None:
        devices = (
            [s.device.id for s in self._state.snapshot.devices] if self._state.snapshot else []
        )
        if self._device in devices:
            self.show_device(devices[(devices.index(self._device) + by) % len(devices)])

    def _lay_out(self) -> None:
        bar = row(
            self.back, self.title, self.name, self.read, self.before, self.after, spacing=theme.M
        )
        bar.setStretch(2, 1)
        inner = QWidget()
        inner.setProperty("clear", "true")
        self._body = QHBoxLayout(inner)
        self._body.setContentsMargins(0, 0, 0, 0)
        self._body.setSpacing(theme.S)
        scroll = QScrollArea()
        scroll.setWidgetResizable(True)
        scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        scroll.setWidget(inner)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(theme.S)
        layout.addLayout(bar)
        layout.addWidget(scroll, 1)
