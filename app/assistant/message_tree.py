"""Hold the messages of a conversation as a tree, of which one path is shown.

An edited question and a second answer become siblings of the first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal, NamedTuple

import msgspec

from gpudeck.assistant.intents.choices import Choice
from gpudeck.assistant.intents.state import State
from gpudeck.assistant.query.request import Request
from gpudeck.assistant.query.steps import Step
from gpudeck.assistant.tools.proposal import Proposal
from gpudeck.language import text as words

ROOT = 0
"""The parent of the first messages."""


class MessageNode(msgspec.Struct, frozen=True):
    """Hold a message and the number of its parent."""

    id: int
    parent: int
    message: Message


class SavedConversation(msgspec.Struct, frozen=True):
    """Describe a conversation in its file."""

    key: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
    """The name of the file."""
    title: str
    changed: float
    """When its last message came, in seconds since the epoch."""
    nodes: tuple[MessageNode, ...]
    chosen: dict[int, int] = {}


class RemovedMessages(NamedTuple):
    """Hold a removed message with its descendants and its place, for an undo."""

    nodes: tuple[MessageNode, ...]
    place: int
    chosen: dict[int, int]


class MessageTree:
    """Number the messages. A number is never used again."""

    def __init__(
        self, nodes: Iterable[MessageNode] = (), chosen: dict[int, int] | None = None
    ) -> None:
        """Build the tree.

        Args:
            chosen: The child that is shown, by parent.

        Raises:
            ValueError: The nodes are not a tree.
        """
        self._nodes: dict[int, MessageNode] = {}
        self._children: dict[int, list[int]] = {ROOT: []}
        self._chosen = dict(chosen or {})
        self._path: list[int] | None = None
        for node in nodes:
            if node.id in self._children or node.parent not in self._children:
                raise ValueError(
                    f"message {node.id} is there twice, or its parent {node.parent} is missing"
                )
            self._put(node, len(self._children[node.parent]))

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, number: int) -> bool:
        return number in self._nodes

    @property
    def path(self) -> list[int]:
        """Return the numbers of the messages that are shown, in order."""
        if self._path is None:
            self._path, at = [], ROOT
            while self._children[at]:
                at = self._shown_child(at)
                self._path.append(at)
        return self._path

    def message(self, number: int) -> Message:
        """Return a message."""
        return self._nodes[number].message

    def parent(self, number: int) -> int:
        """Return the number of the message that a message follows."""
        return self._nodes[number].parent

    def add(self, parent: int, message: Message) -> int:
        """Add a message after another one and show it. Return its number."""
        number = max(self._nodes, default=ROOT) + 1
        self._put(MessageNode(number, parent, message), len(self._children[parent]))
        self.choose(number)
        return number

    def replace(self, number: int, message: Message) -> None:
        """Put another message in the place of one."""
        self._nodes[number] = MessageNode(number, self._nodes[number].parent, message)

    def siblings(self, number: int) -> list[int]:
        """Return the messages with the same parent, itself among them, oldest first."""
        return self._children[self._nodes[number].parent]

    def choose(self, number: int) -> None:
        """Show a message instead of its siblings."""
        self._chosen[self._nodes[number].parent] = number
        self._path = None

    def remove(self, number: int) -> RemovedMessages:
        """Remove a message and its descendants."""
        place, family = self.siblings(number).index(number), self._descendants(number)
        nodes = tuple(self._nodes[n] for n in family)
        chosen = {parent: child for parent, child in self._chosen.items() if child in family}
        self._children[nodes[0].parent].remove(number)
        for n in family:
            del self._nodes[n], self._children[n]
        self._chosen = {
            parent: child
            for parent, child in self._chosen.items()
            if parent not in family and child not in family
        }
        self._path = None
        return RemovedMessages(nodes, place, chosen)

    def restore(self, removed: RemovedMessages) -> None:
        """Put removed messages back. Raises ValueError if their parent is gone."""
        if removed.nodes[0].parent not in self._children:
            raise ValueError("the message before it is gone")
        self._put(removed.nodes[0], removed.place)
        for node in removed.nodes[1:]:
            self._put(node, len(self._children[node.parent]))
        self._chosen |= removed.chosen
        self._path = None

    def saved(self) -> tuple[tuple[MessageNode, ...], dict[int, int]]:
        """Return the nodes and choices, which the constructor takes."""
        return tuple(self._nodes[n] for n in self._descendants(ROOT)[1:]), dict(self._chosen)

    def _put(self, node: MessageNode, place: int) -> None:
        self._nodes[node.id] = node
        self._children[node.id] = []
        self._children[node.parent].insert(place, node.id)
        self._path = None

    def _shown_child(self, number: int) -> int:
        chosen = self._chosen.get(number)
        return chosen if chosen in self._children[number] else self._children[number][-1]

    def _descendants(self, number: int) -> list[int]:
        """Return a message and its descendants, parents first."""
        found = [number]
        for at in found:
            found += self._children[at]
        return found


Author = Literal["you", "assistant"]
Stage = Literal["waiting", "writing", "done", "stopped", "failed"]
AnswerKind = Literal["answer", "brief", "decision", "chat"]
"""The note of free chat, in English as it is kept."""


class Curve(msgspec.Struct, frozen=True):
    """Hold the readings behind a value of an answer, decimated."""

    title: str
    unit: str
    times: tuple[float, ...]
    """Seconds since the epoch."""
    values: tuple[float | None, ...]
    """None stands for a gap."""


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """Hold a message of the user or the assistant."""

    author: Author
    text: str
    state: Stage = "done"
    note: words.Message = ""
    """Why the message waits or failed: `gpudeck.app.assistant.notes` shows it."""
    cpu: bool = False
    """The answer waits for a GPU and could be written on the CPU."""
    writer: str = ""
    facts: tuple[tuple[str, str, str], ...] = ()
    """Name, value and source of each fact that the text rests on."""
    curves: tuple[Curve, ...] = ()
    report: bytes = b""
    """The report behind a brief, packed (see `gpudeck.assistant.reports.report`)."""
    tokens: int = 0
    """Tokens that the model wrote; 0 for the template, or while unknown."""
    seconds: float = 0.0
    """Time from the request to the answer."""
    device: str = ""
    """Where the model ran: cpu or cuda."""
    wants: AnswerKind = "answer"
    """The kind of answer that the user asked for, or that this is."""
    tool: words.Message = ""
    """The query or order that the request was read as, as one line."""
    reader: str = ""
    """Who read the request, as `Answer.routed` has it."""
    proposal: Proposal | None = None
    """What the assistant will do if the user allows it."""
    decision: str = ""
    """The user's decision: once, session, never or cancelled; empty before it."""
    at: float = 0.0
    """The time of the message, in seconds since the epoch."""
    choices: tuple[Choice, ...] = ()
    """Meanings of the question to choose from."""
    meant: Request | None = msgspec.field(default=None, name="request")
    """The meaning that the user chose with this message."""
    about: State | None = None
    """What the conversation is about after this answer."""
    code_path: str = ""
    """Code whose attention can be accelerated, to open on its page."""
    steps: tuple[Step, ...] = ()
    """What helps with what the answer tells, or shows more of it."""

    @property
    def pending(self) -> bool:
        """Return whether the answer is not finished."""
        return self.state in ("waiting", "writing")
