"""Name the page, and show the devices: beside the name as chips, or below it as tiles or a map."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QEvent
from PySide6.QtGui import QFontMetrics, QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QSizePolicy, QWidget

from gpudeck.app.format.free_devices import FreeDevices
from gpudeck.app.language.texts import tr, tr_noop
from gpudeck.app.shell.page_titles import titles
from gpudeck.app.strip.device_picker import DevicePicker
from gpudeck.app.strip.strip import Strip
from gpudeck.app.strip.summary import REPLAY, device_names
from gpudeck.app.strip.tile_model import Tile
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import (
    Stretch,
    badge,
    column,
    elided,
    label,
    row,
    set_text,
    set_tooltip,
)

_RECORDED = tr_noop("These are recordings, not live readings")


class Header(QWidget):
    """Show the title of the page, one badge if there are recordings, and the strip."""

    def __init__(self, strip: Strip) -> None:
        super().__init__()
        self._strip = strip
        self.title = label(size="large", strong=True)
        self.replay = badge(REPLAY, tr(_RECORDED))
        self.replay.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        self.devices = elided(meaning="muted")
        """The names of the devices, where the strip has no room for them."""
        self._head = QWidget()
        self.free = elided(strong=True)
        """How many devices are free, and which of the others is next."""
        self.free.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Preferred)
        self.free.setAccessibleName(tr("What is free"))
        self._head.setLayout(
            row(self.title, self.replay, self.free, Stretch(self.devices), spacing=theme.M)
        )
        self.picker = DevicePicker()
        self.picker.opened.connect(strip.opened)
        self.picker.hide()
        self._box = column(self._head, Stretch(strip), self.picker)
        self.setLayout(self._box)
        self.replay.hide()
        self._found = FreeDevices((), "", "")
        self._fit_title()

    def show_title(self, text: str) -> None:
        """Name the page that is shown."""
        set_text(self.title, text)

    def collapse(self, collapsed: bool) -> None:
        """Show the strip as chips beside the title, or as a whole below it."""
        directions = QBoxLayout.Direction
        self._box.setDirection(directions.LeftToRight if collapsed else directions.TopToBottom)
        self._box.setStretch(0, 0)
        self.devices.setVisible(not collapsed)
        self.free.setVisible(not collapsed and bool(self.free.text()))
        self._strip.collapse(collapsed)
        self._offer()

    def _offer(self) -> None:
        """Offer the picker where the strip has one chip for many devices."""
        self.picker.setVisible(self._strip.collapsed and self._strip.many)

    def show_tiles(self, tiles: Sequence[Tile]) -> None:
        """Say which devices there are, and which of them are recordings."""
        self.picker.show_tiles(tuple(tiles))
        self._offer()
        recorded = [tile.title for tile in tiles if tile.replay]
        self.replay.setVisible(bool(recorded))
        part = 0 < len(recorded) < len(tiles)
        set_text(self.replay, f"{REPLAY}: {recorded[0]}" if part else REPLAY)
        if part and len(recorded) > 1:
            last = recorded[-1].split()[-1]
            text = tr("{first} to {last}", first=recorded[0], last=last)
            set_text(self.replay, f"{REPLAY}: {text}")
        notes = dict.fromkeys(tile.note for tile in tiles if tile.replay and tile.note)
        set_tooltip(self.replay, "\n".join((tr(_RECORDED), *notes)))
        set_text(self.devices, device_names(tiles))

    def show_free(self, found: FreeDevices) -> None:
        """Say what is free, where the devices are not beside the title."""
        self._found = found
        self._fit_free()
        self.free.setVisible(bool(found.text) and not self._strip.collapsed)

    def _fit_free(self) -> None:
        """Say as much of what is free as has room, in whole sentences."""
        found, metrics = self._found, QFontMetrics(theme.font(theme.BASE, strong=True))
        room = self.width() - self.title.minimumWidth() - 2 * theme.M
        texts = (found.text, "; ".join(filter(None, (found.headline, found.next))))
        fitting = (text for text in texts if metrics.horizontalAdvance(text) <= room)
        set_text(self.free, next(fitting, found.headline))
        set_tooltip(self.free, found.text if self.free.text() != found.text else "")

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit_free()

    def changeEvent(self, event: QEvent) -> None:
        if event.type() == QEvent.Type.FontChange:
            self._fit_title()
        super().changeEvent(event)

    def _fit_title(self) -> None:
        """Give every title the same width, so that the chips beside it stay in their places."""
        metrics = QFontMetrics(theme.font(theme.LARGE, strong=True))
        self.title.setMinimumWidth(max(metrics.size(0, text).width() for text in titles()))
