"""Show a file before and after side by side, as plain text that scrolls together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import QEvent
from PySide6.QtGui import QColor, QTextCursor, QTextFormat
from PySide6.QtWidgets import QTextEdit, QWidget

from gpudeck.app.code.rows import Line
from gpudeck.app.language.texts import tr
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.code_panes import code_pane, scroll_together
from gpudeck.app.widgets.controls import Stretch, row

_GAP = "…"
_TINT = 0.16


class DiffView(QWidget):
    """Show the lines of a change in two panes."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: Sequence[Line] = ()
        self.left, self.right = code_pane(tr("Before")), code_pane(tr("After"))
        scroll_together(self.left, self.right)
        self.setLayout(row(Stretch(self.left), Stretch(self.right)))
        self.setFocusProxy(self.right)

    def show_lines(self, lines: Sequence[Line]) -> None:
        """Show other lines."""
        self._lines = lines
        width = len(str(max([line.left_number for line in lines] + [999])))

        def text(number: Callable[[Line], int], content: Callable[[Line], str]) -> str:
            return "\n".join(
                f"{_GAP:>{width}}"
                if line.kind == "gap"
                else f"{number(line) or '':>{width}}  {content(line)}"
                for line in lines
            )

        self.left.setPlainText(text(lambda x: x.left_number, lambda x: x.left))
        self.right.setPlainText(text(lambda x: x.right_number, lambda x: x.right))
        self._tint()

    def changeEvent(self, event: QEvent) -> None:
        if event.type() == QEvent.Type.PaletteChange:
            self._tint()
        super().changeEvent(event)

    def _tint(self) -> None:
        """Colour the changed lines."""
        t = theme.tokens()
        for pane, colour in ((self.left, t.failed), (self.right, t.succeeded)):
            ground = theme.blend(QColor(colour), QColor(t.surface), _TINT)
            marks = []
            for at, line in enumerate(self._lines):
                if line.kind != "changed" or not (
                    line.left_number if pane is self.left else line.right_number
                ):
                    continue
                mark = QTextEdit.ExtraSelection()
                mark.cursor = QTextCursor(pane.document().findBlockByNumber(at))
                mark.format.setBackground(ground)
                mark.format.setProperty(QTextFormat.Property.FullWidthSelection, True)
                marks.append(mark)
            pane.setExtraSelections(marks)
