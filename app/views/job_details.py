"""Everything about one job, its log, and what can be done with it."""

from __future__ import annotations

from PySide6.QtCore import QEvent, Qt, Signal
from PySide6.QtGui import QFontDatabase
from PySide6.QtWidgets import QPlainTextEdit, QSplitter, QVBoxLayout, QWidget

from app import theme
from app.models.jobs import Details
from app.models.log import LogTail
from app.models.requests import Tail, Tailed
from app.views.safe_text import SafeText
from app.views.widgets import button, card, column, elided, label, row, set_text

_MOST_LINES = 5000


class JobDetails(QWidget):
    """Emits `cancelled` and `repeated` with the job's id, `wanted` with the next piece of log to read."""

    cancelled = Signal(int)
    repeated = Signal(int)
    wanted = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self._shown: Details | None = None
        self._tail: LogTail | None = None
        self._asked = False
        self.title = label(strong=True)
        self.state = label()
        self.doing = elided(meaning="muted")
        self.cancel = button("Cancel", tooltip="Take it from the queue, or end its processes (Del)")
        self.again = button("Run again", tooltip="Queue the same command once more (Ctrl+R)")
        self.cancel.clicked.connect(self._cancel)
        self.again.clicked.connect(self._again)
        self.facts = SafeText()
        self.log = QPlainTextEdit()
        self.log.setProperty("log", "true")
        self.log.setReadOnly(True)
        self.log.setMaximumBlockCount(_MOST_LINES)
        self.log.setPlaceholderText("No output yet")
        self.log.setAccessibleName("Log")
        self._follows = True
        bar = self.log.verticalScrollBar()
        bar.valueChanged.connect(lambda at: setattr(self, "_follows", at >= bar.maximum() - 2))
        bar.rangeChanged.connect(lambda _, end: bar.setValue(end) if self._follows else None)
        header = row(self.title, self.state, self.doing, self.cancel, self.again, spacing=theme.M)
        header.setStretch(2, 1)
        both = QSplitter(Qt.Orientation.Horizontal)
        both.setChildrenCollapsible(False)
        both.addWidget(self.facts)
        both.addWidget(self.log)
        both.setSizes([430, 570])
        inner = QVBoxLayout()
        inner.setSpacing(theme.S)
        inner.addLayout(header)
        inner.addWidget(both, 1)
        self.setLayout(column(card(inner)))
        self._monospace()

    def show_job(self, details: Details) -> None:
        if self._tail is None or self._tail.job != details.id:
            self._tail, self._asked = LogTail(details.id), False
            self.log.clear()
            self._follows = True
        ended = self._shown is not None and self._shown.id == details.id and self._shown.active and not details.active
        if self._shown is None or self._shown.facts != details.facts:
            self.facts.show_table(details.facts)
        self._shown = details
        set_text(self.title, details.title)
        set_text(self.state, details.state)
        theme.mark(self.state, "meaning", details.meaning)
        set_text(self.doing, details.doing if details.active else "")
        self.cancel.setVisible(details.active)
        if details.active or ended or self._tail.offset is None:
            self._want()

    def add_log(self, piece: Tailed) -> None:
        """A piece of log that was asked for. Follows the end unless the user scrolled away from it."""
        if self._tail is None or piece.job != self._tail.job:
            return
        self._asked = False
        if text := self._tail.feed(piece.start, piece.data):
            bar = self.log.verticalScrollBar()
            follows, at = self._follows, bar.value()
            cursor = self.log.textCursor()
            cursor.movePosition(cursor.MoveOperation.End)
            cursor.insertText(text)
            bar.setValue(bar.maximum() if follows else at)

    def log_failed(self) -> None:
        """The piece could not be read; the next refresh asks again."""
        self._asked = False

    def changeEvent(self, event: QEvent) -> None:
        if event.type() == QEvent.Type.PaletteChange and self._shown is not None:
            self.facts.show_table(self._shown.facts)
        super().changeEvent(event)

    def _cancel(self) -> None:
        if self._shown is not None:
            self.cancelled.emit(self._shown.id)

    def _again(self) -> None:
        if self._shown is not None:
            self.repeated.emit(self._shown.id)

    def _want(self) -> None:
        if self._tail is not None and not self._asked:
            self._asked = True
            self.wanted.emit(Tail(self._tail.job, self._tail.offset))

    def _monospace(self) -> None:
        font = QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont)
        font.setPixelSize(theme.SMALL + 1)
        self.log.setFont(font)
