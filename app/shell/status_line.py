"""Show the line at the bottom: the link to the daemon, a message, the source of the readings."""

from __future__ import annotations

from PySide6.QtCore import QRectF
from PySide6.QtGui import QColor, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from gpudeck.app.format.sources import reader_name
from gpudeck.app.language.texts import tr
from gpudeck.app.state import State
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import Stretch, button, elided, row, set_text, set_tooltip


class LinkDot(QWidget):
    """Show a filled circle while the daemon answers, and a ring while it does not."""

    def __init__(self) -> None:
        super().__init__()
        self.on = False
        self.setFixedSize(10, 10)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, t = QPainter(self), theme.tokens()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QColor(t.accent if self.on else t.hot))
        if self.on:
            painter.setBrush(QColor(t.accent))
        painter.drawEllipse(QRectF(1.5, 1.5, 7, 7))


class StatusLine(QWidget):
    """Show one message until it is dismissed or replaced, and otherwise if the queue is paused."""

    def __init__(self) -> None:
        super().__init__()
        self.dot = LinkDot()
        self.link = elided(size="small")
        self.link.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Preferred)
        self.message = elided(size="small")
        self.dismiss = button(tr("Dismiss"), kind="quiet", tooltip=tr("Hide this message"))
        self.dismiss.clicked.connect(lambda: self.show_message(""))
        self.source = elided(size="small", meaning="muted")
        self.source.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Preferred)
        self.compact = button(
            tr("Compact"),
            kind="quiet",
            tooltip=tr("Show a small strip that stays on top of all windows (Ctrl+T)"),
        )
        layout = row(
            self.dot,
            self.link,
            Stretch(self.message),
            self.dismiss,
            self.source,
            self.compact,
            margins=(theme.M, 0, theme.M, 0),
        )
        layout.insertSpacing(2, theme.M)
        self.setLayout(layout)
        self.setFixedHeight(theme.px(28))
        self._message = ""
        self.dismiss.hide()

    def refresh(self, state: State) -> None:
        """Show the link, the source and the notices of the newest snapshot."""
        if self.dot.on != state.link.connected:
            self.dot.on = state.link.connected
            self.dot.update()
        set_text(self.link, state.link.text)
        theme.mark(self.link, "meaning", "" if state.link.connected else "hot")
        snapshot = state.snapshot
        source = tr("source: {name}", name=reader_name(snapshot.source)) if snapshot else ""
        set_text(self.source, source)
        paused = snapshot is not None and snapshot.paused
        set_text(self.message, self._message or (tr("The queue is paused") if paused else ""))
        set_tooltip(self.message, self.message.text())
        theme.mark(self.message, "meaning", "failed" if self._message else "warm")

    def show_message(self, text: str) -> None:
        """Show one line about what failed until it is dismissed; an empty text hides it."""
        self._message = text
        set_text(self.message, text)
        set_tooltip(self.message, text)
        theme.mark(self.message, "meaning", "failed" if text else "warm")
        self.dismiss.setVisible(bool(text))

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, t = QPainter(self), theme.tokens()
        painter.fillRect(self.rect(), QColor(t.surface))
        painter.fillRect(QRectF(0, 0, self.width(), 1), QColor(t.line))
