"""Show the rail on the left, with one button for each page."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QFontMetricsF, QPainter, QPaintEvent
from PySide6.QtWidgets import (
    QAbstractButton,
    QButtonGroup,
    QSizePolicy,
    QWidget,
)

from gpudeck.app.language.texts import tr_count
from gpudeck.app.shell.page_titles import page_key, title
from gpudeck.app.widgets import icons, theme
from gpudeck.app.widgets.action_table import key_names
from gpudeck.app.widgets.controls import column

_WIDTH, _HEIGHT = 92, 60
"""The size of a button at the usual size of text."""
_SMALL_WIDTH, _SMALL_HEIGHT, _LOWEST = 52, 46, 34
"""The width of a button without a text, its height, and its least height."""
_ICON = 22
_WIDE_WINDOW = 1000
"""The least width of a window that leaves room for texts."""


class RailButton(QAbstractButton):
    """Show an icon over the name of a page; the current page has the accent colour."""

    def __init__(self, name: str, shortcut: str) -> None:
        super().__init__()
        self.name = name
        self.badge = 0
        """The number of new things on the page, painted unless it is 0."""
        self._icon_only = False
        self.setText(title(name))
        self.setCheckable(True)
        self.setToolTip(f"{title(name)} ({key_names(shortcut)})")
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAttribute(Qt.WidgetAttribute.WA_Hover)
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Preferred)

    def show_text(self, shown: bool) -> None:
        """Show or hide the text below the icon."""
        if shown == self._icon_only:
            self._icon_only = not shown
            self.updateGeometry()
            self.update()

    def show_badge(self, count: int) -> None:
        """Show how many things on the page are new."""
        if count != self.badge:
            self.badge = count
            name = self.text()
            self.setAccessibleName(
                tr_count("{page}, {n} new", "{page}, {n} new", count, page=name) if count else name
            )
            self.update()

    def sizeHint(self) -> QSize:
        if self._icon_only:
            return QSize(_SMALL_WIDTH, _SMALL_HEIGHT)
        return QSize(theme.px(_WIDTH), theme.px(_HEIGHT))

    def minimumSizeHint(self) -> QSize:
        return QSize(_SMALL_WIDTH, _LOWEST)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, t = QPainter(self), theme.tokens()
        color = t.accent if self.isChecked() else t.text if self.underMouse() else t.muted
        if self.isChecked():
            painter.fillRect(QRectF(0, 8, 3, self.height() - 16), QColor(t.accent))
        font = theme.font(theme.SMALL)
        line = 0.0 if self._icon_only else QFontMetricsF(font).height() + 2
        top = (self.height() - _ICON - line) / 2
        middle = self.width() / 2
        icons.draw(painter, self.name, QRectF(middle - _ICON / 2, top, _ICON, _ICON), color)
        if not self._icon_only:
            painter.setFont(font)
            painter.setPen(QColor(t.text if self.isChecked() else color))
            box = QRectF(0, top + _ICON + 2, self.width(), line)
            painter.drawText(box, int(Qt.AlignmentFlag.AlignCenter), self.text())
        if self.badge:
            _draw_badge(painter, middle, str(self.badge) if self.badge < 100 else "99+")
        if self.hasFocus():
            painter.setPen(QColor(t.accent))
            painter.drawRoundedRect(QRectF(self.rect()).adjusted(6.5, 3.5, -6.5, -3.5), 6, 6)


def _draw_badge(painter: QPainter, middle: float, text: str) -> None:
    """Draw a number at the upper right of the icon, whose middle is given."""
    t = theme.tokens()
    painter.setFont(theme.font(theme.SMALL, strong=True))
    high = max(painter.fontMetrics().height(), 16)
    width = max(painter.fontMetrics().horizontalAdvance(text) + 8, high)
    box = QRectF(middle + 3, 3, width, high)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(QColor(t.hot))
    painter.drawRoundedRect(box, high / 2, high / 2)
    painter.setBrush(Qt.BrushStyle.NoBrush)
    painter.setPen(QColor(t.surface))
    painter.drawText(box, int(Qt.AlignmentFlag.AlignCenter), text)


class Rail(QWidget):
    """Show the buttons of all pages."""

    chosen = Signal(str)
    """The user chose the page with this name."""

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__()
        self.buttons = {name: RailButton(name, page_key(i)) for i, name in enumerate(names, 1)}
        self._group = QButtonGroup(self)
        layout = column(margins=(0, theme.M, 0, theme.M), spacing=theme.XS)
        self.setLayout(layout)
        for name, made in self.buttons.items():
            self._group.addButton(made)
            if name == "settings":
                layout.addStretch()  # apart from the pages, at the bottom
            layout.addWidget(made)
        self._group.buttonClicked.connect(self._clicked)

    def fit(self, width: int, height: int) -> None:
        """Show icons alone where a window of this size has little room."""
        needed = len(self.buttons) * (theme.px(_HEIGHT) + theme.XS) + 2 * theme.M
        for made in self.buttons.values():
            made.show_text(width >= theme.px(_WIDE_WINDOW) and height >= needed)

    def show_chosen(self, name: str) -> None:
        """Mark the button of a page; none for a page without one."""
        self._group.setExclusive(name in self.buttons)
        for page, made in self.buttons.items():
            made.setChecked(page == name)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, t = QPainter(self), theme.tokens()
        painter.fillRect(self.rect(), QColor(t.surface))
        painter.fillRect(QRectF(self.width() - 1, 0, 1, self.height()), QColor(t.line))

    def _clicked(self, made: QAbstractButton) -> None:
        if isinstance(made, RailButton):
            self.chosen.emit(made.name)
