"""Messages as a tree: an edited question and a second answer are siblings of the first, and one
way down is shown."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal, NamedTuple

import msgspec

from assistant.intents.choices import Choice
from assistant.intents.tool_call import ToolCall
from assistant.tools.proposal import Proposal

ROOT = 0
"""What the first messages follow; no message itself."""


class MessageNode(msgspec.Struct, frozen=True):
    """A message and what it follows."""

    id: int
    parent: int
    message: Message


class SavedConversation(msgspec.Struct, frozen=True):
    """A conversation as it is kept in a file."""

    key: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
    """Names its file."""
    title: str
    changed: float
    """When something was said in it last, seconds since the epoch."""
    nodes: tuple[MessageNode, ...]
    chosen: dict[int, int] = {}


class RemovedMessages(NamedTuple):
    """A message that was taken out, with all that followed it, and its place."""

    nodes: tuple[MessageNode, ...]
    place: int
    chosen: dict[int, int]


class MessageTree:
    """Every message has a number that is its own for good."""

    def __init__(
        self, nodes: Iterable[MessageNode] = (), chosen: dict[int, int] | None = None
    ) -> None:
        """`chosen`: of what follows a message, which one is shown. Raises ValueError where the
        nodes are no tree."""
        self._nodes: dict[int, MessageNode] = {}
        self._after: dict[int, list[int]] = {ROOT: []}
        self._chosen = dict(chosen or {})
        self._path: list[int] | None = None
        for node in nodes:
            if node.id in self._after or node.parent not in self._after:
                raise ValueError(
                    f"message {node.id} follows message {node.parent}, which is not there, or is"
                    " there twice"
                )
            self._put(node, len(self._after[node.parent]))

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, number: int) -> bool:
        return number in self._nodes

    @property
    def path(self) -> list[int]:
        """The numbers of the messages that are shown, the first one first."""
        if self._path is None:
            self._path, at = [], ROOT
            while self._after[at]:
                at = self._shown_after(at)
                self._path.append(at)
        return self._path

    def message(self, number: int) -> Message:
        return self._nodes[number].message

    def parent(self, number: int) -> int:
        return self._nodes[number].parent

    def add(self, parent: int, message: Message) -> int:
        """Let a message follow another one, and show it. Returns its number."""
        number = max(self._nodes, default=ROOT) + 1
        self._put(MessageNode(number, parent, message), len(self._after[parent]))
        self.choose(number)
        return number

    def replace(self, number: int, message: Message) -> None:
        self._nodes[number] = MessageNode(number, self._nodes[number].parent, message)

    def siblings(self, number: int) -> list[int]:
        """All that stand where this one does, itself among them, the oldest first."""
        return self._after[self._nodes[number].parent]

    def choose(self, number: int) -> None:
        """Show this one of its siblings, and what followed it."""
        self._chosen[self._nodes[number].parent] = number
        self._path = None

    def cut(self, number: int) -> RemovedMessages:
        """Take a message out, and all that followed it."""
        place, under = self.siblings(number).index(number), self._under(number)
        nodes = tuple(self._nodes[n] for n in under)
        chosen = {parent: child for parent, child in self._chosen.items() if child in under}
        self._after[nodes[0].parent].remove(number)
        for n in under:
            del self._nodes[n], self._after[n]
        self._chosen = {
            parent: child
            for parent, child in self._chosen.items()
            if parent not in under and child not in under
        }
        self._path = None
        return RemovedMessages(nodes, place, chosen)

    def mend(self, cut: RemovedMessages) -> None:
        """Put back what was taken out. Raises ValueError where that which it followed is gone."""
        if cut.nodes[0].parent not in self._after:
            raise ValueError("what it followed is gone")
        self._put(cut.nodes[0], cut.place)
        for node in cut.nodes[1:]:
            self._put(node, len(self._after[node.parent]))
        self._chosen |= cut.chosen
        self._path = None

    def saved(self) -> tuple[tuple[MessageNode, ...], dict[int, int]]:
        """What the constructor takes."""
        return tuple(self._nodes[n] for n in self._under(ROOT)[1:]), dict(self._chosen)

    def _put(self, node: MessageNode, place: int) -> None:
        self._nodes[node.id] = node
        self._after[node.id] = []
        self._after[node.parent].insert(place, node.id)
        self._path = None

    def _shown_after(self, number: int) -> int:
        chosen = self._chosen.get(number)
        return chosen if chosen in self._after[number] else self._after[number][-1]

    def _under(self, number: int) -> list[int]:
        """A message and all that follow it, each after what it follows."""
        found = [number]
        for at in found:
            found += self._after[at]
        return found


Author = Literal["you", "assistant"]
Stage = Literal["waiting", "writing", "done", "stopped", "failed"]
Wanted = Literal["answer", "brief", "decision", "chat"]
UNCHECKED = "free chat, not checked against facts"


class Curve(msgspec.Struct, frozen=True):
    """How a value that an answer tells went over the time that it tells of: the device's own
    readings, decimated."""

    title: str
    unit: str
    times: tuple[float, ...]
    """Seconds since the epoch."""
    values: tuple[float | None, ...]
    """None where nothing was read: a gap."""


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one of the two said."""

    author: Author
    text: str
    state: Stage = "done"
    note: str = ""
    """Why it waits, or why it failed."""
    cpu: bool = False
    """It waits for a GPU, and would go on with the CPU."""
    writer: str = ""
    facts: tuple[tuple[str, str, str], ...] = ()
    """Name, value and source of each fact the text rests on."""
    curves: tuple[Curve, ...] = ()
    report: bytes = b""
    """All of a brief, with its tables and charts, packed (see `assistant.reports.report`)."""
    tokens: int = 0
    """Tokens the model wrote; 0 for the template, and while they are not known."""
    seconds: float = 0.0
    """From the request to the answer."""
    device: str = ""
    """Where the model ran: cpu or cuda."""
    wants: Wanted = "answer"
    """What a message of yours asks for, and one of the assistant gives."""
    tool: str = ""
    """The tool that was used, with its arguments, and who found it."""
    proposal: Proposal | None = None
    """What would be done, once you allow it."""
    decision: str = ""
    """Your answer to that: once, session or never; empty until you gave one."""
    at: float = 0.0
    """When it was said, seconds since the epoch."""
    choices: tuple[Choice, ...] = ()
    """It asks back which of these you mean."""
    meant: ToolCall | None = None
    """Which of them you chose by this message of yours."""

    @property
    def pending(self) -> bool:
        """Whether it is awaited or being written."""
        return self.state in ("waiting", "writing")
