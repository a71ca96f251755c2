"""Edit an amount by pressing or dragging: a number with buttons, and memory with a slider."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QLineEdit, QSlider, QWidget

from gpudeck.app.language.texts import tr
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import Stretch, button, row
from gpudeck.language.numbers import GIB
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.units import parse_size

_NUMBER_WIDTH, _SIZE_WIDTH = 44, 92
"""Pixels of the lines to type in."""


class Stepper(QWidget):
    """Edit a whole number, 0 or more, by typing, two buttons, or the keys Up and Down."""

    def __init__(self, name: str) -> None:
        """Call the editor `name` for screen readers."""
        super().__init__()
        self.line: QLineEdit = _SteppedLine(self)
        self.line.setAccessibleName(name)
        self.line.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        self.line.setFixedWidth(theme.px(_NUMBER_WIDTH))
        self.less = button("−", lambda: self.step(-1), tooltip=tr("One fewer (Down)"))
        self.more = button("+", lambda: self.step(1), tooltip=tr("One more (Up)"))
        for pressed, spoken in ((self.less, tr("One fewer")), (self.more, tr("One more"))):
            pressed.setAccessibleName(spoken)
            pressed.setFocusPolicy(Qt.FocusPolicy.NoFocus)  # the keys Up and Down do the same
            pressed.setAutoRepeat(True)
        self.setLayout(row(self.less, self.line, self.more, spacing=theme.XS))

    def step(self, by: int) -> None:
        """Add to the number; a text that is none counts as 0."""
        text = self.line.text().strip()
        number = int(text) if text.isdecimal() else 0
        self.line.setText(str(max(number + by, 0)))


class _SteppedLine(QLineEdit):
    """Take the keys Up and Down as steps."""

    def __init__(self, stepper: Stepper) -> None:
        super().__init__()
        self._stepper = stepper

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if (by := {Qt.Key.Key_Up: 1, Qt.Key.Key_Down: -1}.get(Qt.Key(event.key()))) is not None:
            self._stepper.step(by)
        else:
            super().keyPressEvent(event)


class MemorySlider(QWidget):
    """Edit an amount of memory by dragging in whole GiB, or by typing.

    The right end of the slider, and an empty line, stand for the whole GPU.
    """

    def __init__(self, name: str) -> None:
        """Call the editors `name` for screen readers."""
        super().__init__()
        self.slider = QSlider(Qt.Orientation.Horizontal)
        self.slider.setRange(1, 2)
        self.slider.setAccessibleName(name)
        self.slider.setFocusPolicy(Qt.FocusPolicy.ClickFocus)  # by keyboard it is typed
        self.line = QLineEdit()
        self.line.setAccessibleName(name)
        self.line.setFixedWidth(theme.px(_SIZE_WIDTH))
        self.slider.valueChanged.connect(self._take_place)
        self.line.textChanged.connect(self._take_text)
        self.line.editingFinished.connect(self._add_unit)
        self.setLayout(row(Stretch(self.slider), self.line, spacing=theme.M))
        self._take_text(self.line.text())

    def offer(self, total: float | None) -> None:
        """Let the slider reach over this many bytes of a GPU; without a number there is none."""
        self.slider.setVisible(total is not None)
        if total is not None:
            whole = max(int(total / GIB), 1) + 1
            if whole != self.slider.maximum():
                self.slider.setMaximum(whole)
                self._take_text(self.line.text())

    def _take_place(self, place: int) -> None:
        whole = place == self.slider.maximum()
        self.line.setText("" if whole else f"{place} GiB")

    def _take_text(self, text: str) -> None:
        """Move the slider to what was typed; leave it where that cannot be read."""
        try:
            size = parse_size(text) / GIB if text.strip() else self.slider.maximum()
        except UserError:
            return
        blocked = self.slider.blockSignals(True)  # the text stays as it was typed
        self.slider.setValue(round(size))
        self.slider.blockSignals(blocked)

    def _add_unit(self) -> None:
        """Show the unit that a number without one has."""
        if self.line.text().strip().isdecimal():
            self.line.setText(f"{self.line.text().strip()} GiB")
