"""A conversation with the assistant: what was said, by whom, in which branches, and how far the
answer is."""

from __future__ import annotations

import itertools
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from app.assistant.captions import said
from app.assistant.message_tree import (
    ROOT,
    Message,
    MessageNode,
    MessageTree,
    RemovedMessages,
    SavedConversation,
    Wanted,
)
from assistant.intents.tool_call import ToolCall
from assistant.reports.files import write_private
from assistant.tools.proposal import Decision
from scheduler.protocol.errors import UserError

if TYPE_CHECKING:
    from app.assistant.requests import FinishedAnswer


MOST = 2000
"""Messages of one conversation, all branches together."""
LONGEST_TITLE = 80
NEW = "New conversation"
_TOLD = (
    "text",
    "writer",
    "facts",
    "curves",
    "tokens",
    "seconds",
    "device",
    "tool",
    "proposal",
    "report",
    "note",
    "choices",
)
"""What a message takes from its answer."""
_FEWEST = 8
"""Pieces from which on there is a rate."""
_NUMBERS = itertools.count(1)


class Conversation:
    """A tree of messages, of which one way down is shown; at most the last one of those is being
    written."""

    def __init__(self, saved: SavedConversation | None = None) -> None:
        """Raises ValueError where the messages of `saved` are no tree."""
        self.key = saved.key if saved else uuid.uuid4().hex
        self.title = saved.title if saved else NEW
        self.changed = saved.changed if saved else time.time()
        self.tree = MessageTree(map(_ended, saved.nodes), saved.chosen) if saved else MessageTree()
        self.number, self._answer = 0, 0
        """By which the answer is told that was awaited last."""
        self._pieces = (0, 0.0, 0.0)
        """How many of it came, and when the first and the last did."""

    @property
    def path(self) -> list[int]:
        """The numbers of the messages that are shown, the first one first."""
        return self.tree.path

    @property
    def messages(self) -> list[Message]:
        """Those that are shown, the first one first."""
        return [self.tree.message(number) for number in self.path]

    @property
    def busy(self) -> bool:
        """Whether an answer is awaited."""
        return self._answer in self.tree and self.tree.message(self._answer).pending

    @property
    def writing(self) -> Message | None:
        """The answer that is awaited."""
        return self.tree.message(self._answer) if self.busy else None

    def ask(
        self,
        text: str,
        wants: Wanted = "answer",
        instead: int | None = None,
        meant: ToolCall | None = None,
    ) -> int:
        """Your words, and room for the answer, by whose number it is told (not the message's).

        `instead`: they branch off where this message of yours stands. `meant`: they choose what was
        asked back. Raises UserError while another answer is awaited, and where there is no room for
        more.
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
            self.title = " ".join(text.split())[:LONGEST_TITLE] or NEW
        return self._await(
            self.tree.add(parent, Message("you", text, wants=wants, at=time.time(), meant=meant))
        )

    def again(self, answer: int) -> int:
        """Room for another answer beside one there is; as `ask`."""
        self._check()
        return self._await(self.tree.parent(answer))

    def question(self, answer: int) -> Message:
        """What an answer answers."""
        return self.tree.message(self.tree.parent(answer))

    def asked(self, answer: int) -> tuple[str, ToolCall | None]:
        """What an answer is asked for by: your words; where you chose what they mean, those
        before the choice, and what you chose."""
        question = self.tree.parent(answer)
        message = self.tree.message(question)
        return (
            (message.text, None)
            if message.meant is None
            else (self.question(self.tree.parent(question)).text, message.meant)
        )

    def turns(self) -> tuple[str, ...]:
        """What was chatted before the answer that is awaited, yours and the model's in turn:
        what is no chat stays out of it."""
        *before, (question, _) = zip(self.messages[::2], self.messages[1::2], strict=True)
        chatted = [
            (said.text, answer.text)
            for said, answer in before
            if said.wants == "chat" and answer.text
        ]
        return (*itertools.chain.from_iterable(chatted), question.text)

    @property
    def rate(self) -> float | None:
        """Pieces a second of the answer that is being written; None while too few have come to
        tell."""
        count, first, last = self._pieces
        return (
            (count - 1) / (last - first) if self.busy and count > _FEWEST and last > first else None
        )

    def decide(self, answer: int, how: Decision) -> int:
        """Your word on what an answer proposes, and room for what comes of it; as `ask`. Raises
        UserError where it was given already."""
        message = self.tree.message(answer)
        if message.proposal is None or message.decision:
            raise UserError("this was decided already")
        number = self.ask(said(message.proposal, how), "decision")
        self.tree.replace(answer, msgspec.structs.replace(message, decision=how))
        return number

    def step(self, number: int, by: int) -> None:
        """Show another one of a message's siblings."""
        siblings = self.tree.siblings(number)
        self.tree.choose(siblings[(siblings.index(number) + by) % len(siblings)])

    def cut(self, number: int) -> RemovedMessages:
        """Take a message out, with all that followed it. Raises UserError where that is being
        written."""
        if self.busy:
            raise UserError("stop the answer that is being written first")
        return self.tree.cut(number)

    def waits(self, reason: str, number: int, cpu: bool = False) -> None:
        """`cpu`: it would go on at once with the CPU."""
        self._change(number, state="waiting", note=reason, cpu=cpu)

    def wrote(self, text: str, number: int) -> None:
        if number == self.number and (message := self.writing):
            count, first, _ = self._pieces
            now = time.monotonic()
            self._pieces = (count + 1, first if count else now, now)
            self._change(number, state="writing", note="", cpu=False, text=message.text + text)

    def answered(self, answer: FinishedAnswer, number: int) -> None:
        told = {name: getattr(answer, name) for name in _TOLD}
        self._change(number, state="done", cpu=False, at=time.time(), **told)

    def stopped(self) -> None:
        self._change(self.number, state="stopped", note="stopped", cpu=False)

    def failed(self, reason: str, number: int) -> None:
        self._change(number, state="failed", note=reason, cpu=False)

    def saved(self) -> SavedConversation:
        return SavedConversation(self.key, self.title, self.changed, *self.tree.saved())

    def _check(self) -> None:
        if self.busy:
            raise UserError("one answer at a time: stop the one that is being written first")
        if len(self.tree) + 2 > MOST:
            raise UserError(f"this conversation is full ({MOST} messages); begin a new one")

    def _await(self, question: int) -> int:
        self._answer = self.tree.add(
            question,
            Message(
                "assistant",
                "",
                "waiting",
                "asks the assistant",
                wants=self.tree.message(question).wants,
            ),
        )
        self.number = next(_NUMBERS)
        self._pieces = (0, 0.0, 0.0)
        self.changed = time.time()
        return self.number

    def _change(self, number: int, **changes: object) -> None:
        """What comes after Stop, for an answer nobody waits for any more, is dropped."""
        if self.busy and number == self.number:
            self.tree.replace(
                self._answer, msgspec.structs.replace(self.tree.message(self._answer), **changes)
            )


def _ended(node: MessageNode) -> MessageNode:
    """An answer that was being written when the window went is one that was stopped."""
    if not node.message.pending:
        return node
    return MessageNode(
        node.id,
        node.parent,
        msgspec.structs.replace(
            node.message, state="stopped", note="the window was closed meanwhile", cpu=False
        ),
    )


def exported(conversation: Conversation, file: str) -> str:
    """The text of a file by what its name ends with. Raises UserError for another ending than
    .md and .json."""
    suffix = Path(file).suffix.lower()
    if suffix == ".md":
        return as_markdown(conversation)
    if suffix == ".json":
        return as_json(conversation)
    raise UserError(
        "the file's name must end with .md or .json, which says the format; got"
        f" {Path(file).name!r}"
    )


def as_json(conversation: Conversation) -> str:
    """The key, title and all messages with what each follows."""
    return msgspec.json.format(msgspec.json.encode(conversation.saved())).decode() + "\n"


def as_markdown(conversation: Conversation) -> str:
    """Questions as quotes, answers as they are, with who wrote each and what it rests on."""
    return "\n\n".join([f"# {conversation.title}", *map(_markdown, conversation.messages)]) + "\n"


def write_text(file: Path, text: str) -> None:
    """For its owner's eyes, and never half of it. Raises UserError where that is impossible."""
    write_private(file, text.encode(errors="replace"))


def _markdown(message: Message) -> str:
    if message.author == "you":
        return "\n".join(f"> {line}".rstrip() for line in message.text.splitlines())
    told = [f"written by {message.writer}"] if message.writer else []
    told += [time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(message.at))] if message.at else []
    told += [message.note] if message.note else []
    facts = [f"- {name} ({source})" if source else f"- {name}" for name, _, source in message.facts]
    parts = [
        message.text,
        f"*{', '.join(told)}*" if told else "",
        "Sources:\n" + "\n".join(facts) if facts else "",
    ]
    return "\n\n".join(part for part in parts if part)


def code_blocks(markdown: str) -> tuple[str, ...]:
    """The fenced code in a text, without its fences. A fence that is not closed yet goes to the
    end."""
    found: list[list[str]] = []
    fence = ""
    for line in markdown.splitlines():
        stripped = line.strip()
        if fence:
            if stripped.startswith(fence) and not stripped.strip(fence[0]):
                fence = ""
            else:
                found[-1].append(line)
        elif stripped.startswith(("```", "~~~")):
            fence = stripped[: len(stripped) - len(stripped.lstrip(stripped[0]))]
            found.append([])
    return tuple("\n".join(lines) for lines in found)
