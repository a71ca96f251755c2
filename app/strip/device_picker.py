"""Find one of many devices by typing a part of its name, value or job."""

from __future__ import annotations

from PySide6.QtCore import QStringListModel, Qt, Signal
from PySide6.QtGui import QFocusEvent
from PySide6.QtWidgets import QCompleter, QLineEdit

from gpudeck.app.language.texts import tr
from gpudeck.app.strip.tile_model import TEMPERATURE, UTILISATION, Tile
from gpudeck.app.widgets import theme

_WIDTH = 150


class DevicePicker(QLineEdit):
    """List the devices that contain what is typed. Emits `opened` with the chosen device."""

    opened = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self._tiles: tuple[Tile, ...] = ()
        self._listed: dict[str, str] = {}
        """The devices by the text of their lines."""
        self.setPlaceholderText(tr("Go to GPU…"))
        self.setAccessibleName(tr("Go to a GPU"))
        self.setToolTip(tr("Type a part of a GPU's name, its number or its job"))
        self.setFixedWidth(theme.px(_WIDTH))
        self._lines = QStringListModel(self)
        completer = QCompleter(self._lines, self)
        completer.setFilterMode(Qt.MatchFlag.MatchContains)
        completer.setCaseSensitivity(Qt.CaseSensitivity.CaseInsensitive)
        # queued, as the line takes the text of the chosen entry after this signal
        completer.activated.connect(self._open, Qt.ConnectionType.QueuedConnection)
        self.setCompleter(completer)
        self.returnPressed.connect(self._choose_first)

    def show_tiles(self, tiles: tuple[Tile, ...]) -> None:
        """Offer these devices."""
        self._tiles = tiles

    def focusInEvent(self, event: QFocusEvent) -> None:
        """List the devices with their present values, which stay while the list is open."""
        self._listed = {_line(tile): tile.device for tile in self._tiles}
        self._lines.setStringList(list(self._listed))
        super().focusInEvent(event)

    def _choose_first(self) -> None:
        """Open the first device that fits, so that a number and Return suffice."""
        fitting = (line for line in self._listed if self.text().lower() in line.lower())
        if self.text() and (line := next(fitting, "")):
            self._open(line)

    def _open(self, line: str) -> None:
        device = self._listed[line]
        self.clear()
        self.opened.emit(device)


def _line(tile: Tile) -> str:
    values = (tile.metrics[at].text for at in (UTILISATION, TEMPERATURE))
    holder = "" if tile.quiet else tile.holder
    return "   ".join(filter(None, (tile.title, *values, holder)))
