"""The assistant page: the conversations that are kept, and the one that is open."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QTimer, Signal
from PySide6.QtGui import QKeySequence, QShortcut, QShowEvent
from PySide6.QtWidgets import QFileDialog, QHBoxLayout, QStackedWidget, QWidget

from app.assistant.conversation import Conversation
from app.assistant.conversation_export import exported
from app.assistant.preset_editor import PresetEditor
from app.assistant.session_list import SessionList
from app.assistant.session_requests import (
    PRESETS,
    BringBack,
    DropSession,
    FindSessions,
    KeepPresets,
    KeepSession,
    Opened,
    OpenSession,
    Preset,
    Presets,
    ReadPresets,
    RenameSession,
    SessionRequest,
    Sessions,
    Summary,
    WriteText,
)
from app.assistant.talk import Talk
from app.link.requests import Accepted, Answered, Refused, Reply, Wake
from app.link.state import State
from app.models.model_list import chat_offer
from app.models.model_requests import ListModels, ModelReply
from app.models.page import ModelsPage
from app.widgets import theme
from scheduler.protocol.errors import UserError

_WIDEST, _SIDE = 860, 210


class Assistant(QWidget):
    """Emits `requested` with what is asked of the assistant, and with what concerns the files of conversations."""

    requested = Signal(object)

    def __init__(self, state: State) -> None:
        super().__init__()
        self._state = state
        self._found: tuple[Summary, ...] = ()
        self._presets: tuple[Preset, ...] = PRESETS
        self._unread = False
        """The presets there are could not be read: these are not the user's."""
        self._listed = False
        self._listed_for: str | None = None
        """The model in use when the list of models was asked for."""
        self.talk, self.sessions, self.presets = Talk(state), SessionList(), PresetEditor()
        self.models = ModelsPage(state)
        self.stack = QStackedWidget()
        self._connect()
        self._lay_out()
        self.refresh()

    def refresh(self) -> None:
        self.talk.refresh()
        self.sessions.show_sessions(self._found, self._state.conversation.key)
        used = self._state.snapshot.settings.model if self._state.snapshot else ""
        if self.isVisible() and self._listed_for != used:
            self._listed_for = used
            self.requested.emit(ListModels(used))
        self.models.refresh()
        self.talk.entry.offer_chat(*chat_offer(self.models.found, used))

    def deliver(self, reply: Reply) -> None:
        """An event of the answer, or what came of a request for the files or the models."""
        self.models.deliver(reply)
        match reply:
            case Sessions(request=FindSessions(words=words), found=found, notice=notice):
                if words == self.sessions.search.text():
                    self._found = found
                if notice:
                    self.talk.entry.say(notice)
            case Opened(saved=saved):
                self.talk.open(Conversation(saved))
                self.talk.reveal(self.sessions.search.text())
                self.stack.setCurrentWidget(self.talk)
            case Presets(presets=presets):
                self._presets, self._unread = presets, False
                self.talk.entry.show_presets(presets)
            case _ if isinstance(reply, ModelReply):
                pass  # which of them is in use decides whether there is free chat
            case Accepted(request=WriteText(file=file)):
                self.talk.entry.say(f"written to {file}")
            case Refused(request=request, message=message) if isinstance(request, SessionRequest):
                self._unread |= isinstance(request, ReadPresets)
                self.talk.entry.say(message)
            case _:
                self.talk.deliver(reply)
                return
        self.refresh()

    def changeEvent(self, event: QEvent) -> None:
        if event.type() == QEvent.Type.PaletteChange:
            QTimer.singleShot(
                0, self, self.talk.messages.recolor
            )  # once all in it have the new style, and their heights
        super().changeEvent(event)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        if not self._listed:
            self._listed = True
            self.requested.emit(FindSessions())
            self.requested.emit(ReadPresets())
            self.requested.emit(Wake())

    def show_answer(self, question: str, answer: Answered) -> None:
        """Put a question and its answer, which came some other way, into the conversation."""
        self.talk.show_answer(question, answer)

    def save(self, file: str) -> None:
        """Have the conversation written to a file, as its name's ending says."""
        try:
            self.requested.emit(WriteText(file, exported(self._state.conversation, file)))
        except UserError as e:
            self.talk.entry.say(str(e))

    def _begin(self) -> None:
        self.talk.open(Conversation())
        self.refresh()
        self.show_talk()

    def _open(self, key: str) -> None:
        if key == self.talk.asked.key:
            self.talk.open(self.talk.asked)
            self.stack.setCurrentWidget(self.talk)
            self.refresh()
        elif key != self._state.conversation.key:
            self.requested.emit(OpenSession(key))
        else:
            self.stack.setCurrentWidget(self.talk)

    def _rename(self, key: str, title: str) -> None:
        title = " ".join(title.split())
        if not title:
            self.requested.emit(FindSessions(self.sessions.search.text()))
            return
        for known in (self._state.conversation, self.talk.asked):
            if known.key == key:
                known.title = title
        self._found = tuple(
            Summary(s.key, title, s.changed, s.excerpt) if s.key == key else s for s in self._found
        )
        self.requested.emit(RenameSession(key, title))

    def _drop(self, key: str) -> None:
        if self.talk.asked.busy and self.talk.asked.key == key:
            self.talk.entry.say("stop the answer that is being written first")
            return
        dropped = next(summary for summary in self._found if summary.key == key)
        self._found = tuple(summary for summary in self._found if summary.key != key)
        self.requested.emit(DropSession(key))
        if self._state.conversation.key == key:
            self.talk.asked = self._state.conversation = Conversation()
        self.refresh()
        self.talk.undo.offer(f"“{dropped.title}” was deleted.", lambda: self._bring_back(dropped))

    def _bring_back(self, summary: Summary) -> None:
        self._found = tuple(sorted((*self._found, summary), key=lambda s: -s.changed))
        self.requested.emit(BringBack(summary.key))
        self.requested.emit(OpenSession(summary.key))
        self.refresh()

    def _keep(self, conversation: Conversation) -> None:
        """Have it written, and show it first in the list."""
        if not self.sessions.search.text():
            mine = Summary(conversation.key, conversation.title, conversation.changed)
            self._found = (mine, *(s for s in self._found if s.key != mine.key))
            self.sessions.show_sessions(self._found, self._state.conversation.key)
        self.requested.emit(KeepSession(conversation.saved()))

    def _edit_presets(self) -> None:
        if self._unread:
            self.requested.emit(ReadPresets())
            self.talk.entry.say(
                "Your presets could not be read, so these cannot be edited; they are read once more now."
            )
            return
        self.stack.setCurrentWidget(self.presets)
        self.presets.show_presets(self._presets)

    def _keep_presets(self, presets: tuple[Preset, ...]) -> None:
        self._presets = presets
        self.talk.entry.show_presets(presets)
        self.requested.emit(KeepPresets(presets))
        self.show_talk()

    def show_models(self) -> None:
        """Go to the models."""
        self.stack.setCurrentWidget(self.models)
        self.models.refresh()
        self.models.name.setFocus()

    def show_talk(self) -> None:
        """Go to the conversation."""
        self.stack.setCurrentWidget(self.talk)
        self.talk.entry.input.setFocus()

    def _export(self) -> None:
        name = (
            "".join(
                c if c.isalnum() or c in " -_" else "" for c in self._state.conversation.title
            ).strip()
            or "conversation"
        )
        file, _ = QFileDialog.getSaveFileName(
            self, "Export the conversation", f"{name}.md", "Markdown (*.md);;JSON (*.json)"
        )
        if file:
            self.save(file)

    def _connect(self) -> None:
        self.talk.requested.connect(self.requested)
        self.talk.kept.connect(self._keep)
        self.talk.entry.edit_presets.triggered.connect(self._edit_presets)
        self.talk.entry.export.clicked.connect(self._export)
        self.sessions.created.connect(self._begin)
        self.sessions.opened.connect(self._open)
        self.sessions.renamed.connect(self._rename)
        self.sessions.dropped.connect(self._drop)
        self.sessions.searched.connect(lambda words: self.requested.emit(FindSessions(words)))
        self.presets.kept.connect(self._keep_presets)
        self.sessions.modelled.connect(self.show_models)
        self.models.left.connect(self.show_talk)
        self.models.requested.connect(self.requested)
        for keys, slot in (
            ("Ctrl+N", self._begin),
            ("Ctrl+R", self.talk.again_last),
            ("Ctrl+F", self.sessions.search.setFocus),
            ("Ctrl+L", self.talk.entry.input.setFocus),
            ("Ctrl+M", self.show_models),
        ):
            QShortcut(QKeySequence(keys), self, slot)

    def _lay_out(self) -> None:
        self.stack.addWidget(self.talk)
        self.stack.addWidget(self.presets)
        self.stack.addWidget(self.models)
        self.stack.setMaximumWidth(_WIDEST)
        self.sessions.setFixedWidth(_SIDE)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(theme.M)
        layout.addWidget(self.sessions)
        layout.addStretch(1)
        layout.addWidget(self.stack, 1000)
        layout.addStretch(1)
