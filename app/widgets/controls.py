"""The small widgets that every page uses."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from html import escape

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent
from PySide6.QtWidgets import (
    QBoxLayout,
    QFileDialog,
    QFrame,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)

from app.widgets import theme


class ElidedLabel(QLabel):
    """A line of text that ends in … where there is no room; the tooltip has all of it."""

    def __init__(self, text: str = "", parent: QWidget | None = None) -> None:
        super().__init__(text, parent)
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)

    def minimumSizeHint(self) -> QSize:
        return QSize(0, super().minimumSizeHint().height())

    def paintEvent(self, event: QPaintEvent) -> None:
        text = self.fontMetrics().elidedText(self.text(), Qt.TextElideMode.ElideRight, self.width())
        painter = QPainter(self)
        painter.setPen(self.palette().windowText().color())
        painter.drawText(self.rect(), int(self.alignment() | Qt.TextFlag.TextSingleLine), text)


class Bar(QWidget):
    """A thin line filled to a share of its length."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.share: float | None = None
        self.setFixedHeight(3)

    def set_share(self, share: float | None) -> None:
        """`share` from 0 to 1; None: an empty line."""
        if share != self.share:
            self.share = share
            self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, t = QPainter(self), theme.tokens()
        painter.fillRect(self.rect(), QColor(t.line))
        if self.share is not None:
            painter.fillRect(
                QRectF(0, 0, self.width() * self.share, self.height()), QColor(t.accent)
            )


def label(
    text: str = "", *, size: str = "", meaning: str = "", strong: bool = False, wrap: bool = False
) -> QLabel:
    """A label of plain text; `size` small, large or huge; `meaning` muted, warm, hot, throttled or failed."""
    made = QLabel(text)
    made.setTextFormat(Qt.TextFormat.PlainText)
    made.setProperty("scale", size)
    made.setProperty("meaning", meaning)
    made.setProperty("strong", "true" if strong else "")
    made.setWordWrap(wrap)
    return made


def elided(text: str = "", *, size: str = "", meaning: str = "") -> ElidedLabel:
    made = ElidedLabel(text)
    made.setProperty("scale", size)
    made.setProperty("meaning", meaning)
    return made


def button(text: str, *, kind: str = "", tooltip: str = "", checkable: bool = False) -> QPushButton:
    """`kind`: primary (one a page), quiet, or none."""
    made = QPushButton(text)
    made.setProperty("kind", kind)
    made.setToolTip(tooltip)
    made.setCheckable(checkable)
    made.setAutoDefault(False)
    return made


def card(layout: QBoxLayout | None = None) -> QFrame:
    """A framed surface that holds `layout`."""
    frame = QFrame()
    frame.setProperty("card", "true")
    if layout is not None:
        layout.setContentsMargins(theme.L, theme.M, theme.L, theme.M)
        frame.setLayout(layout)
    return frame


def rule() -> QFrame:
    """A thin horizontal line."""
    frame = QFrame()
    frame.setProperty("rule", "true")
    frame.setFixedHeight(1)
    return frame


def column(*widgets: QWidget, spacing: int = theme.S) -> QVBoxLayout:
    layout = QVBoxLayout()
    _fill(layout, widgets, spacing)
    return layout


def row(*widgets: QWidget, spacing: int = theme.S) -> QHBoxLayout:
    layout = QHBoxLayout()
    _fill(layout, widgets, spacing)
    return layout


def _fill(layout: QBoxLayout, widgets: Iterable[QWidget], spacing: int) -> None:
    layout.setContentsMargins(0, 0, 0, 0)
    layout.setSpacing(spacing)
    for widget in widgets:
        layout.addWidget(widget)


def set_text(target: QLabel, text: str) -> None:
    """Set the text where it changed: a label that is told the same again would be laid out again."""
    if target.text() != text:
        target.setText(text)


def set_tooltip(target: QWidget, text: str) -> None:
    """Plain text, whatever it looks like: names and words of others are among it."""
    plain = plain_tooltip(text)
    if target.toolTip() != plain:
        target.setToolTip(plain)


def plain_tooltip(text: str) -> str:
    """A tooltip that shows `text` as it is: Qt would take what looks like HTML for that."""
    return escape(text).replace("\n", "<br>") if "<" in text else text


def ask_save_path(
    parent: QWidget, title: str, name: str, formats: str, chosen: Callable[[str], object]
) -> None:
    """Ask for a file to save to, `name` proposed; `chosen` gets its path. Nothing waits meanwhile."""
    dialog = QFileDialog(parent, title, name, formats)
    dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
    dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    dialog.fileSelected.connect(chosen)
    dialog.open()
