"""Show and search the log of a job."""

from __future__ import annotations

from PySide6.QtCore import QEvent, Qt, Signal
from PySide6.QtGui import QColor, QKeyEvent, QTextCursor, QTextDocument, QTextFormat
from PySide6.QtWidgets import QLineEdit, QPlainTextEdit, QTextEdit, QWidget

from gpudeck.app.language.texts import tr
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import Stretch, button, column, label, row, set_text

_MOST_LINES = 5000
_MOST_MARKED = 1000


class LogView(QWidget):
    """Show the log as plain text, follow its end, and find text in it."""

    def __init__(self) -> None:
        super().__init__()
        self.text = QPlainTextEdit()
        self.text.setProperty("log", "true")
        self.text.setReadOnly(True)
        self.text.setMaximumBlockCount(_MOST_LINES)
        self.text.setPlaceholderText(tr("No output yet"))
        self.text.setAccessibleName(tr("Log"))
        self.box = _SearchBox()
        self.box.textChanged.connect(self._search_again)
        self.box.stepped.connect(self.step)
        self.found = label(size="small", meaning="muted")
        self.back = button("↑", kind="quiet", tooltip=tr("Previous match (Shift+F3)"))
        self.forth = button("↓", kind="quiet", tooltip=tr("Next match (F3)"))
        for step in (self.back, self.forth):
            step.setAccessibleName(step.toolTip())
        self.follow = button(
            tr("Follow"),
            kind="quiet",
            tooltip=tr("Stay at the end as the log grows"),
            checkable=True,
        )
        self.back.clicked.connect(lambda: self.step(-1))
        self.forth.clicked.connect(lambda: self.step(1))
        self.follow.clicked.connect(self._follow)
        bar = self.text.verticalScrollBar()
        bar.valueChanged.connect(lambda at: self.follow.setChecked(at >= bar.maximum() - 2))
        bar.rangeChanged.connect(
            lambda _, end: bar.setValue(end) if self.follow.isChecked() else None
        )
        self._matches: list[QTextCursor] = []
        self._cause = ""
        """The line that shows why the job failed, which is marked."""
        self.line = row(Stretch(self.box), self.found, self.back, self.forth, self.follow)
        self.setLayout(column(self.line, Stretch(self.text), spacing=theme.XS))
        self.text.setFont(theme.monospace())
        self.clear()

    def clear(self) -> None:
        """Start another log, with the same search."""
        self.text.clear()
        self._cause = ""
        self.follow.setChecked(True)
        self._mark()

    def add(self, text: str) -> None:
        """Append text, and keep the place of a reader who scrolled away from the end."""
        bar = self.text.verticalScrollBar()
        follows, at = self.follow.isChecked(), bar.value()
        cursor = QTextCursor(self.text.document())
        cursor.movePosition(QTextCursor.MoveOperation.End)
        cursor.insertText(text)
        bar.setValue(bar.maximum() if follows else at)
        if self.box.text():
            self._mark()

    def mark_cause(self, line: str) -> None:
        """Mark the last such line of the log, and show it; an empty text marks none."""
        if line == self._cause:
            return
        self._cause = line
        if found := self._cause_block():
            self.follow.setChecked(False)
            found.clearSelection()
            self.text.setTextCursor(found)
            self.text.centerCursor()
        self._mark()

    def _cause_block(self) -> QTextCursor | None:
        """Return the line that shows the cause, as it is in the log."""
        block = self.text.document().lastBlock()
        while self._cause and block.isValid():
            if block.text().strip() == self._cause:
                found = QTextCursor(block)
                keep = QTextCursor.MoveMode.KeepAnchor
                found.movePosition(QTextCursor.MoveOperation.EndOfBlock, keep)
                return found
            block = block.previous()
        return None

    def step(self, direction: int) -> None:
        """Go to the next match (1) or the previous one (-1); the first one follows the last."""
        self._mark()
        if not self._matches:
            return
        here = self.text.textCursor()
        if direction > 0:
            goal = next(
                (m for m in self._matches if m.selectionStart() >= here.selectionEnd()),
                self._matches[0],
            )
        else:
            goal = next(
                (m for m in reversed(self._matches) if m.selectionEnd() <= here.selectionStart()),
                self._matches[-1],
            )
        self.text.setTextCursor(goal)
        self.text.centerCursor()
        self._show_count()

    def changeEvent(self, event: QEvent) -> None:
        if event.type() == QEvent.Type.PaletteChange:
            self._mark()
        super().changeEvent(event)

    def _search_again(self) -> None:
        cursor = self.text.textCursor()
        cursor.setPosition(cursor.selectionStart())
        self.text.setTextCursor(cursor)
        self.step(1)

    def _mark(self) -> None:
        """Find and colour all matches in any case."""
        self._matches, document = [], self.text.document()
        match = (
            document.find(self.box.text(), 0, QTextDocument.FindFlag(0))
            if self.box.text()
            else QTextCursor()
        )
        while not match.isNull() and len(self._matches) < _MOST_MARKED:
            self._matches.append(match)
            match = document.find(self.box.text(), match, QTextDocument.FindFlag(0))
        color = _translucent(theme.tokens().warm, 0.35)
        marks = []
        for cursor in self._matches:
            mark = QTextEdit.ExtraSelection()
            mark.cursor = cursor
            mark.format.setBackground(color)
            marks.append(mark)
        if (found := self._cause_block()) is not None:
            mark = QTextEdit.ExtraSelection()
            mark.cursor = found
            mark.format.setBackground(_translucent(theme.tokens().failed, 0.2))
            mark.format.setProperty(QTextFormat.Property.FullWidthSelection, True)
            marks.append(mark)
        self.text.setExtraSelections(marks)
        self._show_count()

    def _show_count(self) -> None:
        total, here = len(self._matches), self.text.textCursor()
        at = next(
            (
                i
                for i, m in enumerate(self._matches, 1)
                if m == here and m.anchor() == here.anchor()
            ),
            0,
        )
        count = f"{total}{'+' if total == _MOST_MARKED else ''}"
        if not self.box.text():
            text = ""
        elif not total:
            text = tr("not found")
        else:
            text = tr("{n} of {total}", n=at, total=count) if at else count
        set_text(self.found, text)
        self.back.setEnabled(total > 0)
        self.forth.setEnabled(total > 0)

    def _follow(self, on: bool) -> None:
        bar = self.text.verticalScrollBar()
        if on:
            bar.setValue(bar.maximum())


def _translucent(name: str, share: float) -> QColor:
    color = QColor(name)
    color.setAlphaF(share)
    return color


class _SearchBox(QLineEdit):
    """Edit the text to find."""

    stepped = Signal(int)
    """The user pressed Enter (1) or Shift+Enter (-1)."""

    def __init__(self) -> None:
        super().__init__()
        self.setPlaceholderText(tr("Find in log"))
        self.setClearButtonEnabled(True)
        self.setAccessibleName(tr("Find in the log"))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.stepped.emit(-1 if event.modifiers() & Qt.KeyboardModifier.ShiftModifier else 1)
        else:
            super().keyPressEvent(event)
