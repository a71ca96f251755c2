"""Place two groups of controls beside each other, or one below the other where they lack room."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QSize, Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QWidget

from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import row


class FoldRow(QWidget):
    """Show two widgets in a row, of which the second has what the first leaves."""

    def __init__(
        self, first: QWidget, second: QWidget, stretches: tuple[int, int] | None = None
    ) -> None:
        """Share what is left of a row as `stretches` say; without them leave it on both sides."""
        super().__init__()
        self._parts = first, second
        self._box = row()
        self.setLayout(self._box)
        if stretches is None:
            self._box.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        for part, stretch in zip(self._parts, stretches or (0, 0), strict=True):
            self._box.addWidget(part, stretch)

    @property
    def folded(self) -> bool:
        """Report if one widget is below the other."""
        return self._box.direction() == QBoxLayout.Direction.TopToBottom

    def minimumSizeHint(self) -> QSize:
        """Return the width of the wider part, since the parts can stand below each other."""
        width = max((_least(part) for part in self._shown), default=0)
        return QSize(width, super().minimumSizeHint().height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fold()

    def event(self, event: QEvent) -> bool:
        """Look again when a part needs more room or less."""
        if event.type() == QEvent.Type.LayoutRequest:
            self._fold()
        return super().event(event)

    @property
    def _shown(self) -> list[QWidget]:
        return [part for part in self._parts if part.isVisibleTo(self)]

    def _fold(self) -> None:
        shown = self._shown
        needed = sum(_least(part) for part in shown) + theme.S * (len(shown) - 1)
        directions = QBoxLayout.Direction
        below = needed > self.width()
        self._box.setDirection(directions.TopToBottom if below else directions.LeftToRight)


def _least(part: QWidget) -> int:
    return max(part.minimumSizeHint().width(), part.minimumWidth())
