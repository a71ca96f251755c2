"""Show the open conversation, and ask the assistant."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from PySide6.QtCore import Signal
from PySide6.QtGui import QAccessible, QAccessibleAnnouncementEvent, QGuiApplication
from PySide6.QtWidgets import QWidget

from gpudeck.app.assistant.captions import empty_text, pace
from gpudeck.app.assistant.cards import UndoLine
from gpudeck.app.assistant.composer import Composer
from gpudeck.app.assistant.conversation import ONE_AT_A_TIME, Conversation, code_blocks
from gpudeck.app.assistant.first_questions import FirstQuestions
from gpudeck.app.assistant.message_list import MessageList
from gpudeck.app.assistant.message_tree import RemovedMessages
from gpudeck.app.assistant.presets import Preset
from gpudeck.app.assistant.requests import (
    Ask,
    Chat,
    ChatServed,
    Decide,
    FinishedAnswer,
    UseCpu,
    WriteBrief,
)
from gpudeck.app.language.texts import tr, tr_text
from gpudeck.app.link.call import Call, Request
from gpudeck.app.link.link import Link
from gpudeck.app.models.offer_card import OfferCard
from gpudeck.app.report.file import FILTER, SaveReport
from gpudeck.app.state import State
from gpudeck.app.widgets.controls import Stretch, ask_save_path, column, delay
from gpudeck.assistant.host_protocol import Event, Waiting
from gpudeck.assistant.intents.choices import Choice, choice_by_number
from gpudeck.assistant.query.request import Query
from gpudeck.assistant.query.steps import ShowManual, ShowPage
from gpudeck.assistant.tools.proposal import Decision, Proposal
from gpudeck.extras import missing_of
from gpudeck.scheduler.protocol.errors import UserError

_REDRAW_MS = 50


class ConversationView(QWidget):
    """Show the open conversation and ask the assistant."""

    changed = Signal(object)
    """Carries a `Conversation` that should be saved."""
    code_opened = Signal(str)
    """The user wants to see what would change in this folder or file of code."""
    page_opened = Signal(object)
    """The user wants to see a page; carries a `ShowPage` or a `ShowManual`."""

    def __init__(self, state: State, link: Link, offer: OfferCard) -> None:
        super().__init__()
        self._state, self._link, self.offer = state, link, offer
        self._call: Call | None = None
        self.conversation = Conversation()
        """The open conversation."""
        self.asked = self.conversation
        """The conversation that awaits an answer, whichever is open."""
        self.writers = ""
        """Who writes the answers, as an empty conversation says it."""
        self._shown: set[str] = set()
        """The proposals of programs that messages show."""
        self.messages, self.composer, self.undo = MessageList(), Composer(), UndoLine()
        self.empty = FirstQuestions()
        self.empty.asked.connect(self._ask_preset)
        self._redraw = delay(self, _REDRAW_MS, self.refresh)
        self.messages.acted.connect(self._act)
        self.messages.stepped.connect(self._step_on)
        self.composer.asked.connect(self._ask_preset)
        self.composer.stop.clicked.connect(self._stop)
        self.composer.brief.triggered.connect(self.write_brief)
        self.composer.input.recalled.connect(self._edit_last)
        self.setLayout(
            column(
                Stretch(self.empty), Stretch(self.messages), self.offer, self.undo, self.composer
            )
        )

    def refresh(self) -> None:
        """Show the newest state of the conversation."""
        path, busy = self.conversation.path, self.asked.busy
        able = missing_of("assistant", "compute") is None and not busy
        snapshot = self._state.snapshot
        self.empty.show_text(empty_text(self.writers), can_ask=able)
        self.empty.setVisible(not path)
        self.offer.show_wanted(not path)
        self.messages.setVisible(bool(path))
        self.messages.show_conversation(
            self.conversation, snapshot is not None and bool(snapshot.settings.model)
        )
        elsewhere = busy and self.asked is not self.conversation
        self.composer.show_state(
            busy,
            tr("“{title}” is being answered", title=self.asked.title)
            if elsewhere
            else pace(self.asked, snapshot),
            bool(path),
        )

    def _take_event(self, number: int, event: Event) -> None:
        """Take an event of an answer. Pieces of text are drawn at most twenty times a second."""
        if isinstance(event, Waiting):
            self.asked.waits(event.reason, number, event.cpu)
        else:
            self.asked.wrote(event.text, number)
        if not self._redraw.isActive():
            self._redraw.start()

    def _finish(self, number: int, answer: FinishedAnswer) -> None:
        self.asked.answered(answer, number)
        self._ended()

    def _fail(self, number: int, message: str) -> None:
        self.asked.failed(message, number)
        self._ended()

    def _ended(self) -> None:
        self.changed.emit(self.asked)
        if QAccessible.isActive() and self.asked is self.conversation and self.asked.path:
            last = self.asked.messages[-1]  # screen readers read it out
            announcement = QAccessibleAnnouncementEvent(self, last.text or tr_text(last.note))
            QAccessible.updateAccessibility(announcement)
        self.refresh()

    def open(self, conversation: Conversation) -> None:
        """Show the end of another conversation."""
        if conversation.key == self.asked.key:
            conversation = self.asked  # its file lacks the answer that is being written
        self.conversation = conversation
        self.composer.leave_edit()
        self.composer.show_message("")
        self.messages.goal = "end"
        self.refresh()

    def reveal(self, words: str) -> None:
        """Scroll to the first message with one of these words."""
        wanted = words.lower().split()
        for number in self.conversation.path:
            if any(word in self.conversation.tree.message(number).text.lower() for word in wanted):
                self.messages.reveal(number)
                return

    def ask(self, text: str, query: Query | None = None) -> None:
        """Ask a question by its query, or as the user typed it; in free chat, talk to the model."""
        instead = self.composer.instead
        last = self.conversation.path[-1] if self.conversation.path and instead is None else None
        if (
            last is not None
            and (chosen := choice_by_number(self.conversation.tree.message(last).choices, text))
            is not None
        ):
            self._choose(last, chosen)
        elif self.composer.free.isChecked() and query is None:
            self._await(lambda: self.conversation.ask(text, "chat", instead))
        else:
            self._await(
                lambda: self.conversation.ask(text, instead=instead, meant=query),
                Ask(text, query, self.conversation.about),
            )

    def _ask_preset(self, preset: Preset) -> None:
        self.ask(preset.text, preset.query)

    def write_brief(self) -> None:
        """Request a brief of the last ten minutes."""
        self._await(lambda: self.conversation.ask(tr("Write a brief."), "brief"), WriteBrief())

    def again(self, answer: int) -> None:
        """Request another answer beside an existing one."""
        question, (text, meant) = (
            self.conversation.question(answer),
            self.conversation.asked(answer),
        )
        requests: dict[str, Request[FinishedAnswer] | None] = {"brief": WriteBrief(), "chat": None}
        asked = Ask(text, meant, self.conversation.about)
        request = requests.get(question.wants, asked)
        self._await(lambda: self.conversation.again(answer), request)

    def _choose(self, answer: int, choice: Choice) -> None:
        """Ask again with the meaning that the user chose."""
        text = self.conversation.question(answer).text
        self._await(
            lambda: self.conversation.ask(choice.words, meant=choice.request),
            Ask(text, choice.request, self.conversation.about),
        )

    def _step_on(self, place: int, answer: int) -> None:
        """Ask for what a step of an answer orders, or open its page."""
        step = self.conversation.tree.message(answer).steps[place]
        request = step.does
        if isinstance(request, ShowPage | ShowManual):
            self.page_opened.emit(request)
            return
        title = tr_text(step.title)
        self._await(
            lambda: self.conversation.ask(title, meant=request),
            Ask(title, request, self.conversation.about),
        )

    def _dismiss(self, answer: int, proposal: Proposal | None) -> None:
        """Close a proposal; a program learns that its own was refused."""
        if proposal is not None and proposal.by:
            self._decide(answer, "no")
            return
        self.conversation.dismiss(answer)
        self._changed()

    def _decide(self, answer: int, decision: Decision) -> None:
        """Send the user's decision on a proposal."""
        proposal = self.conversation.tree.message(answer).proposal
        if proposal is not None:
            self._await(
                lambda: self.conversation.decide(answer, decision),
                Decide(proposal, decision),
            )

    def again_last(self) -> None:
        """Request another last answer; a decision is not made twice."""
        last = self.conversation.messages[-1] if self.conversation.path else None
        if last is not None and last.author == "assistant" and last.wants != "decision":
            self.again(self.conversation.path[-1])

    def show_answer(self, question: str, answer: FinishedAnswer) -> None:
        """Add a question and its finished answer to the conversation."""
        self.asked = self.conversation
        self.asked.answered(answer, self.asked.ask(question))
        self.messages.goal = "question"
        self.refresh()

    def show_proposals(self, waiting: tuple[Proposal, ...]) -> None:
        """Add the proposals of programs that no message shows yet."""
        for proposal in waiting:
            if proposal.id not in self._shown and not self.asked.busy:
                self._shown.add(proposal.id)
                question = tr("{program} proposes something", program=proposal.by)
                told = tr("{program} waits for your decision.", program=proposal.by)
                self.show_answer(question, FinishedAnswer(told, "template", proposal=proposal))

    def _await(
        self, make_room: Callable[[], int], request: Request[FinishedAnswer] | None = None
    ) -> None:
        """Make room for an answer and request it; without a request, chat with the model.

        If there can be no answer now, show why.
        """
        try:
            if self.asked.busy:
                raise UserError(tr(ONE_AT_A_TIME))
            number = make_room()
        except UserError as e:
            self.composer.show_message(str(e))
            return
        self.asked = self.conversation
        self.composer.leave_edit()
        self.composer.input.clear()
        self.composer.show_message("")
        self.undo.clear()
        self.messages.goal = "question"
        self.refresh()
        self.changed.emit(self.asked)
        self._call = self._link.send(
            self,
            self._chat() if request is None else request,
            partial(self._finish, number),
            partial(self._fail, number),
            partial(self._take_event, number),
        )

    def _chat(self) -> Request[FinishedAnswer]:
        """Return the request for the next message of the model that free chat uses."""
        folder, turns = self.composer.chat_folder, self.conversation.turns()
        return ChatServed(folder, turns) if folder else Chat(turns)

    def _stop(self) -> None:
        self.asked.stopped()
        self.changed.emit(self.asked)
        self.refresh()
        if self._call is not None:
            self._call.cancel()

    def _act(self, what: str, number: int) -> None:
        message = self.conversation.tree.message(number)
        match what:
            case "copy" | "code":
                self._copy(message.text, code=what == "code")
            case "report":
                self._save_report(message.report, message.at)
            case "again":
                self.again(number)
            case "cpu":
                self._link.send(self, UseCpu())
            case "edit":
                self.composer.edit(number, message.text)
            case "cancelled":
                self._dismiss(number, message.proposal)
            case "once" | "session" | "never":
                self._decide(number, what)
            case "1" | "2" | "3":
                self._choose(number, message.choices[int(what) - 1])
            case "none":
                self.composer.edit(
                    self.conversation.tree.parent(number), self.conversation.question(number).text
                )
            case "your code":
                self.code_opened.emit(message.code_path)
            case "delete":
                self._delete(number)
            case "earlier" | "later":
                self._step(number, -1 if what == "earlier" else 1)

    def _copy(self, text: str, *, code: bool) -> None:
        QGuiApplication.clipboard().setText("\n\n".join(code_blocks(text)) if code else text)
        done = tr("The code was copied") if code else tr("The message was copied")
        self.composer.show_message(done)

    def _save_report(self, report: bytes, at: float) -> None:
        name = time.strftime("report-%Y-%m-%d-%H%M.html", time.localtime(at))
        ask_save_path(
            self,
            tr("Save the report"),
            name,
            FILTER,
            partial(self._write_report, report),
        )

    def _write_report(self, report: bytes, file: str) -> None:
        self._link.send(
            self, SaveReport(report, file), lambda _: self._link.announce_file(tr("Report"), file)
        )

    def _edit_last(self) -> None:
        """Edit the last question, as the Up key does in a shell."""
        for number in reversed(self.conversation.path):
            message = self.conversation.tree.message(number)
            if message.author == "you" and message.wants in ("answer", "chat"):
                self.composer.edit(number, message.text)
                return

    def _step(self, number: int, by: int) -> None:
        if self.conversation.busy:
            self.composer.show_message(tr("Stop the current answer first."))
            return
        self.conversation.step(number, by)
        self._changed()

    def _delete(self, number: int) -> None:
        conversation = self.conversation
        try:
            removed = conversation.remove(number)
        except UserError as e:
            self.composer.show_message(str(e))
            return
        self.composer.leave_edit()
        self._changed()
        text = (
            tr("A message was deleted.")
            if len(removed.nodes) == 1
            else tr("{n} messages were deleted.", n=len(removed.nodes))
        )
        self.undo.offer(text, lambda: self._restore(conversation, removed))

    def _restore(self, conversation: Conversation, removed: RemovedMessages) -> None:
        try:
            conversation.tree.restore(removed)
        except ValueError as e:
            self.composer.show_message(tr("The messages cannot be restored: {why}.", why=e))
            return
        self._changed(conversation)

    def _changed(self, conversation: Conversation | None = None) -> None:
        self.messages.goal = "place"
        self.changed.emit(conversation or self.conversation)
        self.refresh()
