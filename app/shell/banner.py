"""Show above every page what keeps the daemon from its work, such as a full disk."""

from __future__ import annotations

from collections.abc import Iterable

from PySide6.QtCore import QRectF
from PySide6.QtGui import QColor, QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from gpudeck.app.language.texts import tr, tr_text
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import Stretch, button, label, row, set_text
from gpudeck.language.numbers import capitalized
from gpudeck.language.text import Message

_EDGE = 4


class Banner(QWidget):
    """Show the daemon's notices; hidden while there are none that the user has not dismissed."""

    def __init__(self) -> None:
        super().__init__()
        self.text = label(meaning="warm", wrap=True)
        self.dismiss = button("✕", self._dismiss, kind="quiet", tooltip=tr("Dismiss"))
        self.dismiss.setAccessibleName(tr("Dismiss the message"))
        self._notices: frozenset[Message] = frozenset()
        self._dismissed: frozenset[Message] = frozenset()
        """Notices that are not shown again unless they went away meanwhile."""
        self.setLayout(
            row(
                Stretch(self.text),
                self.dismiss,
                margins=(theme.M + _EDGE, theme.XS, theme.M, theme.XS),
            )
        )
        self.setAccessibleName(tr("Notices"))
        self.hide()

    def show_notices(self, notices: Iterable[Message]) -> None:
        """Show these problems, each as a sentence of its own."""
        shown = tuple(notices)
        self._notices = frozenset(shown)
        self._dismissed &= self._notices
        new = (notice for notice in shown if notice not in self._dismissed)
        text = "  ·  ".join(capitalized(tr_text(notice)) for notice in new)
        set_text(self.text, text)
        self.setVisible(bool(text))

    def _dismiss(self) -> None:
        self._dismissed = self._notices
        self.hide()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, t = QPainter(self), theme.tokens()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QColor(t.line))
        painter.setBrush(QColor(t.surface))
        painter.drawRoundedRect(QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5), 6, 6)
        painter.fillRect(QRectF(0, 4, _EDGE, self.height() - 8), QColor(t.warm))
