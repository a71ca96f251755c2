"""The assistant page: a conversation, and the two things most people want to know."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from PySide6.QtCore import QEvent, Qt, QTimer, Signal
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QScrollArea, QVBoxLayout, QWidget

from app import theme
from app.models.requests import Answered, Ask, Refused, Reply, Report, Request, StopAnswer, Waits, Wrote
from app.models.state import State
from app.views.bubble import Bubble
from app.views.widgets import button, label, row

EMPTY = (
    "Ask what happened on your GPUs, or have a brief of the last ten minutes written.\n"
    "Every number in an answer comes from what was measured; its sources can be opened below it.\n"
    "Without a model folder (Settings) the answers are written from templates, and say so."
)
_WIDEST = 860
_REDRAW_MS = 100


class Assistant(QWidget):
    """Emits `requested` with the question, or with Stop."""

    requested = Signal(object)

    def __init__(self, state: State) -> None:
        super().__init__()
        self._state = state
        self._keeps: Literal["question", "end", "place"] = "question"
        """What stays in view while the conversation grows: the last question on top, its end, or what the user scrolled to."""
        self.bubbles: list[Bubble] = []
        self.empty = label(EMPTY, meaning="muted", wrap=True)
        self.empty.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.input = QLineEdit()
        self.input.setPlaceholderText("Ask something, e.g. how hot did the GPU get?")
        self.input.setAccessibleName("Question")
        self.input.returnPressed.connect(self._ask_typed)
        self.send = button("Ask", kind="primary")
        self.send.clicked.connect(self._ask_typed)
        self.stop = button("Stop", tooltip="End the answer that is being written (Esc)")
        self.stop.setShortcut("Esc")
        self.stop.clicked.connect(self._stop)
        self.happened = button("What happened?", tooltip="Ask what went on lately")
        self.happened.clicked.connect(lambda: self.ask("What happened?"))
        self.brief = button("Write a brief", tooltip="A report of the last ten minutes, written once the devices are idle")
        self.brief.clicked.connect(self.write_brief)
        self._redraw = QTimer(self)
        self._redraw.setSingleShot(True)
        self._redraw.setInterval(_REDRAW_MS)
        self._redraw.timeout.connect(self.refresh)
        self._lay_out()
        self.refresh()

    def refresh(self) -> None:
        conversation = self._state.conversation
        for old in self.bubbles[: max(len(self.bubbles) - len(conversation.messages), 0)]:
            self._body.removeWidget(old)
            old.deleteLater()
            self.bubbles.remove(old)
        for message, bubble in zip(conversation.messages, self.bubbles, strict=False):
            bubble.show_message(message)
        for message in conversation.messages[len(self.bubbles) :]:
            self.bubbles.append(Bubble(message))
            self._body.insertWidget(self._body.count() - 1, self.bubbles[-1])
        self.empty.setVisible(not conversation.messages)
        self.viewer.setVisible(bool(conversation.messages))
        self.stop.setVisible(conversation.busy)
        for made in (self.send, self.happened, self.brief):
            made.setEnabled(not conversation.busy)

    def deliver(self, reply: Reply) -> None:
        """An event of the answer; pieces are drawn at most ten times a second."""
        conversation = self._state.conversation
        match reply:
            case Waits(reason=reason, id=number):
                conversation.waits(reason, number)
            case Wrote(text=text, id=number):
                conversation.wrote(text, number)
            case Answered():
                conversation.answered(reply)
            case Refused(request=Ask(id=number) | Report(id=number), message=message):
                conversation.failed(message, number)
            case _:
                return
        if not self._redraw.isActive():
            self._redraw.start()

    def changeEvent(self, event: QEvent) -> None:
        if event.type() == QEvent.Type.PaletteChange:
            for bubble in self.bubbles:
                bubble.recolor()
        super().changeEvent(event)

    def ask(self, text: str) -> None:
        """Ask a question, as if it had been typed."""
        self._request(Ask(text, self._state.conversation.ask(text)))

    def write_brief(self) -> None:
        self._request(Report(self._state.conversation.ask("Write a brief.")))

    def show_answer(self, question: str, answer: Answered) -> None:
        """Put a question and its answer, which came some other way, into the conversation."""
        conversation = self._state.conversation
        conversation.answered(replace(answer, id=conversation.ask(question)))
        self._keeps = "question"
        self.refresh()

    def _ask_typed(self) -> None:
        text = self.input.text().strip()
        if text and not self._state.conversation.busy:
            self.input.clear()
            self.ask(text)

    def _request(self, request: Request) -> None:
        self._keeps = "question"
        self.refresh()
        self.requested.emit(request)

    def _stop(self) -> None:
        self._state.conversation.stopped()
        self.refresh()
        self.requested.emit(StopAnswer())

    def _scrolled(self) -> None:
        """The user moved the view: to the end, to follow it, or elsewhere, to read there."""
        bar = self.viewer.verticalScrollBar()
        self._keeps = "end" if bar.sliderPosition() >= bar.maximum() else "place"

    def _keep_place(self) -> None:
        bar = self.viewer.verticalScrollBar()
        if self._keeps == "end":
            bar.setValue(bar.maximum())
        elif self._keeps == "question":
            self._body.activate()
            bar.setValue(next((b.y() for b in reversed(self.bubbles) if b.message.author == "you"), 0))

    def _lay_out(self) -> None:
        inner = QWidget()
        inner.setProperty("clear", "true")
        self._body = QVBoxLayout(inner)
        self._body.setContentsMargins(0, 0, 0, 0)
        self._body.setSpacing(theme.S)
        self._body.addStretch()
        self.viewer = QScrollArea()
        self.viewer.setAccessibleName("Conversation")
        self.viewer.setWidgetResizable(True)
        self.viewer.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.viewer.setWidget(inner)
        bar = self.viewer.verticalScrollBar()
        bar.actionTriggered.connect(self._scrolled)
        bar.rangeChanged.connect(self._keep_place)
        entry = row(self.input, self.stop, self.send, self.happened, self.brief)
        entry.setStretch(0, 1)
        column = QWidget()
        column.setMaximumWidth(_WIDEST)
        layout = QVBoxLayout(column)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(theme.M)
        layout.addWidget(self.empty, 1)
        layout.addWidget(self.viewer, 1)
        layout.addLayout(entry)
        middle = QHBoxLayout(self)
        middle.setContentsMargins(0, 0, 0, 0)
        middle.addStretch(1)
        middle.addWidget(column, 1000)
        middle.addStretch(1)
