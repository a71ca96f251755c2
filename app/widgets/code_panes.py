"""Show code in panes."""

from __future__ import annotations

from PySide6.QtWidgets import QPlainTextEdit

from gpudeck.app.widgets import theme


def code_pane(name: str) -> QPlainTextEdit:
    """Return a pane for lines of code that are not edited."""
    pane = QPlainTextEdit()
    pane.setReadOnly(True)
    pane.setAccessibleName(name)
    pane.setPlaceholderText(name)
    pane.setTabChangesFocus(True)
    pane.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
    pane.setFont(theme.monospace(theme.SMALL))
    return pane


def scroll_together(a: QPlainTextEdit, b: QPlainTextEdit) -> None:
    """Scroll two panes together."""
    for one, other in ((a, b), (b, a)):
        one.verticalScrollBar().valueChanged.connect(other.verticalScrollBar().setValue)
        one.horizontalScrollBar().valueChanged.connect(other.horizontalScrollBar().setValue)
