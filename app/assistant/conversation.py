"""Hold a conversation with the assistant, and export it."""

from __future__ import annotations

import itertools
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gpudeck.app.assistant.captions import DISMISSED, decision_text
from gpudeck.app.assistant.message_tree import (
    ROOT,
    AnswerKind,
    Message,
    MessageNode,
    MessageTree,
    RemovedMessages,
    SavedConversation,
)
from gpudeck.app.assistant.notes import ASKING, CLOSED, STOPPED, note_text
from gpudeck.app.language.texts import tr, tr_noop, tr_text
from gpudeck.assistant.intents.state import State
from gpudeck.assistant.language.origins import written_by
from gpudeck.assistant.query.request import Query, Request, Span
from gpudeck.assistant.reports.files import write_private
from gpudeck.assistant.tools.proposal import Decision
from gpudeck.language import text
from gpudeck.scheduler.protocol.errors import UserError

if TYPE_CHECKING:
    from gpudeck.app.assistant.requests import FinishedAnswer


MAX_MESSAGES = 2000
"""Messages of one conversation, in all branches."""
MAX_TITLE = 80
ONE_AT_A_TIME = tr_noop("stop the current answer first: there is one answer at a time")
NEW = tr_noop("New conversation")
_ANSWER_FIELDS = (
    "text",
    "writer",
    "facts",
    "curves",
    "tokens",
    "seconds",
    "device",
    "tool",
    "reader",
    "proposal",
    "report",
    "note",
    "choices",
    "about",
    "code_path",
    "steps",
)
"""The fields that a message takes from its answer."""
_SAME_S = 5.0
"""Seconds between a question and the end of the time that it is about, if that is now."""
_MIN_PIECES = 8
"""Pieces of text before a rate is shown."""
_NUMBERS = itertools.count(1)


class Conversation:
    """Hold a tree of messages, of which one path is shown. At most the last one is unfinished."""

    def __init__(self, saved: SavedConversation | None = None) -> None:
        """Begin a conversation, or open a saved one.

        Raises:
            ValueError: The saved messages are not a tree.
        """
        self.key = saved.key if saved else uuid.uuid4().hex
        self.title = saved.title if saved else tr(NEW)
        self.changed = saved.changed if saved else time.time()
        self.tree = MessageTree(map(_ended, saved.nodes), saved.chosen) if saved else MessageTree()
        self.number, self._answer = 0, 0
        """The number of the last request, and of the message that awaits its answer."""
        self._pieces = (0, 0.0, 0.0)
        """The count of pieces of text, and the times of the first and the last."""

    @property
    def path(self) -> list[int]:
        """Return the numbers of the messages that are shown, in order."""
        return self.tree.path

    @property
    def messages(self) -> list[Message]:
        """Return the messages that are shown, in order."""
        return [self.tree.message(number) for number in self.path]

    @property
    def busy(self) -> bool:
        """Return whether an answer is awaited."""
        return self._answer in self.tree and self.tree.message(self._answer).pending

    @property
    def writing(self) -> Message | None:
        """Return the answer that is awaited."""
        return self.tree.message(self._answer) if self.busy else None

    def ask(
        self,
        text: str,
        wants: AnswerKind = "answer",
        instead: int | None = None,
        meant: Request | None = None,
    ) -> int:
        """Add a question and an empty answer. Return the number of the request.

        Args:
            instead: The message of the user that the question replaces in a new branch.
            meant: The meaning that the user chose.

        Raises:
            UserError: Another answer is awaited, or the conversation is full.
        """
        self._check()
        parent = (
            self.tree.parent(instead)
            if instead is not None
            else self.path[-1]
            if self.path
            else ROOT
        )
        if not len(self.tree):
            self.title = " ".join(text.split())[:MAX_TITLE] or tr(NEW)
        return self._await(
            self.tree.add(parent, Message("you", text, wants=wants, at=time.time(), meant=meant))
        )

    def again(self, answer: int) -> int:
        """Add another answer beside an existing one, as `ask` does."""
        self._check()
        return self._await(self.tree.parent(answer))

    def question(self, answer: int) -> Message:
        """Return the question of an answer."""
        return self.tree.message(self.tree.parent(answer))

    def grounded(self) -> tuple[str, Message | None]:
        """Return the newest answer with sources or charts, after its question; None if none has."""
        for number in reversed(self.path):
            message = self.tree.message(number)
            if message.author != "you" and (message.facts or message.curves):
                return self.question(number).text, message
        return "", None

    def asked(self, answer: int) -> tuple[str, Request | None]:
        """Return the words that an answer responds to, and the meaning that the user chose."""
        number = self.tree.parent(answer)
        question, before = self.tree.message(number), self.tree.parent(number)
        if before == ROOT or not self.tree.message(before).choices:
            return question.text, _until_now(question)
        return self.question(before).text, _until_now(question)

    @property
    def about(self) -> State:
        """Return what the conversation is about, by its last answer that says so."""
        found = (message.about for message in reversed(self.messages))
        return next(filter(None, found), State())

    def turns(self) -> tuple[str, ...]:
        """Return the free chat before the awaited answer: the user and the model in turn."""
        *before, (question, _) = zip(self.messages[::2], self.messages[1::2], strict=True)
        chatted = [
            (said.text, answer.text)
            for said, answer in before
            if said.wants == "chat" and answer.text
        ]
        return (*itertools.chain.from_iterable(chatted), question.text)

    @property
    def rate(self) -> float | None:
        """Return the pieces of text a second; None before enough pieces have come."""
        count, first, last = self._pieces
        return (
            (count - 1) / (last - first)
            if self.busy and count > _MIN_PIECES and last > first
            else None
        )

    def decide(self, answer: int, decision: Decision) -> int:
        """Add the user's decision on a proposal and an empty answer, as `ask` does.

        Raises:
            UserError: It was decided before.
        """
        message = self.tree.message(answer)
        if message.proposal is None or message.decision:
            raise UserError(tr("this has already been decided"))
        number = self.ask(decision_text(message.proposal, decision), "decision")
        self.tree.replace(answer, msgspec.structs.replace(message, decision=decision))
        return number

    def dismiss(self, answer: int) -> None:
        """Close a proposal without doing anything; it can be made again."""
        message = self.tree.message(answer)
        if message.proposal is not None and not message.decision:
            self.tree.replace(answer, msgspec.structs.replace(message, decision=DISMISSED))

    def step(self, number: int, by: int) -> None:
        """Show another sibling of a message."""
        siblings = self.tree.siblings(number)
        self.tree.choose(siblings[(siblings.index(number) + by) % len(siblings)])

    def remove(self, number: int) -> RemovedMessages:
        """Remove a message and its descendants. Raises UserError while an answer is awaited."""
        if self.busy:
            raise UserError(tr("stop the current answer first"))
        return self.tree.remove(number)

    def waits(self, reason: text.Message, number: int, cpu: bool = False) -> None:
        """Show why the answer waits; `cpu`: it could be written on the CPU at once."""
        self._change(number, state="waiting", note=reason, cpu=cpu)

    def wrote(self, text: str, number: int) -> None:
        """Append a piece of the answer."""
        if number == self.number and (message := self.writing):
            count, first, _ = self._pieces
            now = time.monotonic()
            self._pieces = (count + 1, first if count else now, now)
            self._change(number, state="writing", note="", cpu=False, text=message.text + text)

    def answered(self, answer: FinishedAnswer, number: int) -> None:
        """Show the finished answer."""
        fields = {name: getattr(answer, name) for name in _ANSWER_FIELDS}
        self._change(number, state="done", cpu=False, at=time.time(), **fields)

    def stopped(self) -> None:
        """Mark the awaited answer as stopped."""
        self._change(self.number, state="stopped", note=STOPPED, cpu=False)

    def failed(self, reason: str, number: int) -> None:
        """Mark the answer as failed."""
        self._change(number, state="failed", note=reason, cpu=False)

    def saved(self) -> SavedConversation:
        """Return what its file holds."""
        return SavedConversation(self.key, self.title, self.changed, *self.tree.saved())

    def _check(self) -> None:
        if self.busy:
            raise UserError(tr(ONE_AT_A_TIME))
        if len(self.tree) + 2 > MAX_MESSAGES:
            raise UserError(
                tr("this conversation is full ({n} messages); start a new one", n=MAX_MESSAGES)
            )

    def _await(self, question: int) -> int:
        self._answer = self.tree.add(
            question,
            Message(
                "assistant",
                "",
                "waiting",
                ASKING,
                wants=self.tree.message(question).wants,
            ),
        )
        self.number = next(_NUMBERS)
        self._pieces = (0, 0.0, 0.0)
        self.changed = time.time()
        return self.number

    def _change(self, number: int, **changes: object) -> None:
        """Change the awaited answer; ignore what comes for an answer that was stopped."""
        if self.busy and number == self.number:
            self.tree.replace(
                self._answer, msgspec.structs.replace(self.tree.message(self._answer), **changes)
            )


def _until_now(question: Message) -> Request | None:
    """Return the meaning of a question; a time that ended when it was asked ends now."""
    meant, now = question.meant, time.time()
    if not isinstance(meant, Query) or meant.time is None:
        return meant
    span = meant.time
    if abs(span.until - question.at) > _SAME_S:
        return meant
    return msgspec.structs.replace(meant, time=Span(now - (span.until - span.since), now))


def _ended(node: MessageNode) -> MessageNode:
    """Mark an answer that was unfinished when the window closed as stopped."""
    if not node.message.pending:
        return node
    return MessageNode(
        node.id,
        node.parent,
        msgspec.structs.replace(node.message, state="stopped", note=CLOSED, cpu=False),
    )


def exported(conversation: Conversation, file: str) -> str:
    """Return the text of a file, in the format of its name's ending: .md or .json.

    Raises:
        UserError: The name has another ending.
    """
    suffix = Path(file).suffix.lower()
    if suffix == ".md":
        return as_markdown(conversation)
    if suffix == ".json":
        return as_json(conversation)
    raise UserError(
        tr("the file's name must end with .md or .json, not {name!r}", name=Path(file).name)
    )


def as_json(conversation: Conversation) -> str:
    """Return the key, the title and all messages as JSON."""
    return msgspec.json.format(msgspec.json.encode(conversation.saved())).decode() + "\n"


def as_markdown(conversation: Conversation) -> str:
    """Return questions as quotes and answers with their writers and sources as Markdown."""
    return "\n\n".join([f"# {conversation.title}", *map(_markdown, conversation.messages)]) + "\n"


def write_text(file: Path, text: str) -> None:
    """Write a file atomically, readable by its owner only. Raises UserError."""
    write_private(file, text.encode(errors="replace"))


def _markdown(message: Message) -> str:
    if message.author == "you":
        return "\n".join(f"> {line}".rstrip() for line in message.text.splitlines())
    notes = [tr_text(written_by(message.writer))] if message.writer else []
    notes += [time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(message.at))] if message.at else []
    notes += [note] if (note := note_text(message)) else []
    facts = [f"- {name} ({source})" if source else f"- {name}" for name, _, source in message.facts]
    parts = [
        message.text,
        f"*{', '.join(notes)}*" if notes else "",
        tr("Sources:") + "\n" + "\n".join(facts) if facts else "",
    ]
    return "\n\n".join(part for part in parts if part)


def code_blocks(markdown: str) -> tuple[str, ...]:
    """Return the fenced code in a text, without fences. An open fence goes to the end."""
    blocks: list[list[str]] = []
    fence = ""
    for line in markdown.splitlines():
        stripped = line.strip()
        if fence:
            if stripped.startswith(fence) and not stripped.strip(fence[0]):
                fence = ""
            else:
                blocks[-1].append(line)
        elif stripped.startswith(("```", "~~~")):
            fence = stripped[: len(stripped) - len(stripped.lstrip(stripped[0]))]
            blocks.append([])
    return tuple("\n".join(lines) for lines in blocks)
