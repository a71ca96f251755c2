"""Show the assistant page: the saved conversations, the open one, and presets."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from PySide6.QtCore import QEvent, QSize, QTimer, Signal
from PySide6.QtGui import QHideEvent, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QFileDialog, QWidget

from gpudeck.app.assistant.answer_pane import AnswerPane
from gpudeck.app.assistant.captions import writers_text
from gpudeck.app.assistant.conversation import Conversation, exported
from gpudeck.app.assistant.conversation_view import ConversationView
from gpudeck.app.assistant.message_tree import SavedConversation
from gpudeck.app.assistant.preset_editor import PresetEditor
from gpudeck.app.assistant.presets import Preset, own_presets
from gpudeck.app.assistant.requests import (
    DeleteSession,
    FindSessions,
    FinishedAnswer,
    OpenSession,
    ReadPresets,
    ReadProposals,
    RenameSession,
    RestoreSession,
    SavePresets,
    SaveSession,
    Wake,
    WriteText,
)
from gpudeck.app.assistant.session_files import Summary
from gpudeck.app.assistant.session_list import SessionList
from gpudeck.app.language.texts import tr
from gpudeck.app.link.call import Request
from gpudeck.app.link.link import Link
from gpudeck.app.models.chat_partners import chat_partners, no_partner_help
from gpudeck.app.models.model_list import is_used
from gpudeck.app.models.offer import ModelOffer
from gpudeck.app.models.offer_card import OfferCard
from gpudeck.app.models.page import ModelsPage
from gpudeck.app.state import State
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.actions import bind_actions
from gpudeck.app.widgets.controls import PageStack, Stretch, row
from gpudeck.scheduler.protocol.errors import UserError

_WIDEST, _SIDE, _LEAST_SIDE, _SIDE_SHARE = 860, 196, 188, 0.34
"""Pixels of width of the conversation and of the list of others, and the most of the page's width
that the list takes where text is large."""
_ROOMY, _ROOMY_WIDEST, _ROOMY_SIDE = 1700, 1100, 280
"""Pixels of width from which on the sources have a pane of their own, and of the conversation
and of the list in such a window."""
_LOOKS_MS = 2000
"""Milliseconds between two looks for what programs propose."""
T = TypeVar("T")


class AssistantPage(QWidget):
    """Show the open conversation beside the list of saved ones; or the presets."""

    models_opened = Signal()
    """The user wants to see the page of the models."""
    code_opened = Signal(str)
    """The user wants to see what would change in this folder or file of code."""
    page_opened = Signal(object)
    """The user wants to see a page; carries a `ShowPage` or a `ShowManual`."""

    def __init__(self, state: State, link: Link, offer: ModelOffer) -> None:
        super().__init__()
        self._state, self._link = state, link
        self._found: tuple[Summary, ...] = ()
        self._presets: tuple[Preset, ...] = own_presets()
        self._presets_failed = False
        """The user's presets could not be read, so those of the program are shown."""
        self._listed = False
        self.view, self.sessions, self.presets = (
            ConversationView(state, link, OfferCard(offer)),
            SessionList(),
            PresetEditor(),
        )
        self.pane = AnswerPane()
        self.models = ModelsPage(state, link, offer)
        self._programs = QTimer(self)
        """Looks for what programs propose, while the page is shown."""
        self._programs.setInterval(_LOOKS_MS)
        self._programs.timeout.connect(self.look_for_proposals)
        self.stack = PageStack()
        self._connect()
        self._lay_out()
        self.refresh()

    def refresh(self) -> None:
        """Show the newest state."""
        used = self._state.snapshot.settings.model if self._state.snapshot else ""
        if self.isVisible():
            self.models.list_models()
        self.models.refresh()
        found, served = self.models.found, self.models.serving.now.served
        own = next((model for model in found if is_used(model, used)), None)
        self.view.writers = writers_text(used, own, served)
        self.view.refresh()
        self.sessions.show_sessions(self._found, self.view.conversation.key)
        self._show_pane()
        partners = tuple(chat_partners(found, used, served))
        self.view.composer.offer_chat(partners, no_partner_help(found, used))

    def minimumSizeHint(self) -> QSize:
        """Need no room for the list beside, which is left out where there is little."""
        return QSize(self.stack.minimumSizeHint().width(), super().minimumSizeHint().height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Give a wide window a pane for the sources, and wider columns."""
        super().resizeEvent(event)
        roomy = self.width() >= theme.px(_ROOMY)
        self.stack.setMaximumWidth(theme.px(_ROOMY_WIDEST if roomy else _WIDEST))
        side = min(theme.px(_ROOMY_SIDE if roomy else _SIDE), int(_SIDE_SHARE * self.width()))
        self.sessions.setFixedWidth(max(side, _LEAST_SIDE))
        needed = self.stack.minimumSizeHint().width() + self.sessions.width() + theme.M
        self.sessions.setVisible(self.width() >= needed)
        self._show_pane()

    def _show_pane(self) -> None:
        roomy = self.width() >= theme.px(_ROOMY)
        self.pane.show_answer(*self.view.conversation.grounded() if roomy else ("", None))

    def _find(self, words: str = "") -> None:
        self._send(FindSessions(words), lambda reply: self._show_found(words, *reply))

    def _show_found(self, words: str, found: tuple[Summary, ...], notice: str) -> None:
        if words == self.sessions.search.text():
            self._found = found
        if notice:
            self.view.composer.show_message(notice)
        self.refresh()

    def _show_conversation(self, saved: SavedConversation) -> None:
        self.view.open(Conversation(saved))
        self.view.reveal(self.sessions.search.text())
        self.stack.setCurrentWidget(self.view)
        self.refresh()

    def _show_presets(self, presets: tuple[Preset, ...]) -> None:
        self._presets, self._presets_failed = presets, False
        self.view.composer.show_presets(presets)
        self.refresh()

    def _read_presets(self) -> None:
        self._link.send(self, ReadPresets(), self._show_presets, self._fail_presets)

    def _fail_presets(self, message: str) -> None:
        self._presets_failed = True
        self.view.composer.show_message(message)
        self.refresh()

    def _send(self, request: Request[T], on_reply: Callable[[T], object] | None = None) -> None:
        """Send a request for the files of conversations."""
        self._link.send(self, request, on_reply, self.view.composer.show_message)

    def changeEvent(self, event: QEvent) -> None:
        if event.type() == QEvent.Type.PaletteChange:
            QTimer.singleShot(
                0, self, self.view.messages.recolor
            )  # once all in it have the new style, and their heights
            QTimer.singleShot(0, self, self.pane.recolor)
        super().changeEvent(event)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._programs.start()
        self.models.serving.look()
        if not self._listed:
            self._listed = True
            self._find()
            self._read_presets()
            self._link.send(self, Wake(), on_error=lambda _: None)

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._programs.stop()

    def look_for_proposals(self) -> None:
        """Look for what programs propose, and show it as cards."""
        self._link.send(self, ReadProposals(), self.view.show_proposals, lambda _: None)

    def show_answer(self, question: str, answer: FinishedAnswer) -> None:
        """Add a question and its finished answer to the conversation."""
        self.view.show_answer(question, answer)

    def save(self, file: str) -> None:
        """Export the conversation to a file, in the format of its name's ending."""
        try:
            request = WriteText(file, exported(self.view.conversation, file))
        except UserError as e:
            self.view.composer.show_message(str(e))
            return
        self._send(request, lambda _: self._link.announce_file(tr("Conversation"), file))

    def _start(self) -> None:
        self.view.open(Conversation())
        self.refresh()
        self.show_view()

    def _open(self, key: str) -> None:
        if key == self.view.asked.key:
            self.view.open(self.view.asked)
            self.stack.setCurrentWidget(self.view)
            self.refresh()
        elif key != self.view.conversation.key:
            self._send(OpenSession(key), self._show_conversation)
        else:
            self.stack.setCurrentWidget(self.view)

    def _rename(self, key: str, title: str) -> None:
        title = " ".join(title.split())
        if not title:
            self._find(self.sessions.search.text())
            return
        for known in (self.view.conversation, self.view.asked):
            if known.key == key:
                known.title = title
        self._found = tuple(
            Summary(s.key, title, s.changed, s.excerpt) if s.key == key else s for s in self._found
        )
        self._send(RenameSession(key, title))

    def _delete(self, key: str) -> None:
        if self.view.asked.busy and self.view.asked.key == key:
            self.view.composer.show_message(tr("Stop the current answer first."))
            return
        deleted = next(summary for summary in self._found if summary.key == key)
        self._found = tuple(summary for summary in self._found if summary.key != key)
        self._send(DeleteSession(key))
        if self.view.conversation.key == key:
            self.view.asked = self.view.conversation = Conversation()
        self.refresh()
        deleted_text = tr("“{title}” was deleted.", title=deleted.title)
        self.view.undo.offer(deleted_text, lambda: self._restore(deleted))

    def _restore(self, summary: Summary) -> None:
        self._found = tuple(sorted((*self._found, summary), key=lambda s: -s.changed))
        self._send(RestoreSession(summary.key))
        self._send(OpenSession(summary.key), self._show_conversation)
        self.refresh()

    def _save(self, conversation: Conversation) -> None:
        """Save a conversation, and show it first in the list."""
        if not self.sessions.search.text():
            mine = Summary(conversation.key, conversation.title, conversation.changed)
            self._found = (mine, *(s for s in self._found if s.key != mine.key))
            self.sessions.show_sessions(self._found, self.view.conversation.key)
        self._send(SaveSession(conversation.saved()))

    def _edit_presets(self) -> None:
        if self._presets_failed:
            self._read_presets()
            self.view.composer.show_message(
                tr("Your presets could not be read, so they cannot be edited. Try again.")
            )
            return
        self.stack.setCurrentWidget(self.presets)
        self.presets.show_presets(self._presets)

    def _save_presets(self, presets: tuple[Preset, ...]) -> None:
        self._presets = presets
        self.view.composer.show_presets(presets)
        self._send(SavePresets(presets))
        self.show_view()

    def show_view(self) -> None:
        """Show the conversation."""
        self.stack.setCurrentWidget(self.view)
        self.view.composer.input.setFocus()

    def _export(self) -> None:
        name = "".join(
            c if c.isalnum() or c in " -_" else "" for c in self.view.conversation.title
        ).strip() or tr("conversation")
        file, _ = QFileDialog.getSaveFileName(
            self, tr("Export the conversation"), f"{name}.md", "Markdown (*.md);;JSON (*.json)"
        )
        if file:
            self.save(file)

    def _connect(self) -> None:
        self.view.changed.connect(self._save)
        self.view.code_opened.connect(self.code_opened)
        self.view.page_opened.connect(self.page_opened)
        self.view.composer.edit_presets.triggered.connect(self._edit_presets)
        self.view.composer.export.triggered.connect(self._export)
        self.sessions.created.connect(self._start)
        self.sessions.opened.connect(self._open)
        self.sessions.renamed.connect(self._rename)
        self.sessions.deleted.connect(self._delete)
        self.sessions.searched.connect(self._find)
        self.presets.finished.connect(self._save_presets)
        self.models.listed.connect(self.refresh)
        self.models.serving.changed.connect(self.refresh)
        self.view.composer.free.clicked.connect(self.models.serving.look)
        bind_actions(
            self,
            {
                "chat.new": self._start,
                "chat.again": self.view.again_last,
                "chat.search": self.sessions.search.setFocus,
                "chat.ask": self.show_view,
                "chat.models": self.models_opened.emit,
                "chat.brief": self.view.composer.brief.trigger,
                "chat.export": self._export,
            },
        )

    def _lay_out(self) -> None:
        self.stack.addWidget(self.view)
        self.stack.addWidget(self.presets)
        self.stack.setMaximumWidth(theme.px(_WIDEST))
        self.sessions.setFixedWidth(_LEAST_SIDE)
        self.setLayout(
            row(
                self.sessions,
                Stretch(),
                Stretch(self.stack, 1000),
                Stretch(self.pane, 800),
                Stretch(),
                spacing=theme.M,
            )
        )
