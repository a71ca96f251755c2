"""What the writer asks of a model: to go on with a text from any place in it. Free of torch and Qt."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol, TypeVar


class Place(Protocol):
    """A place in a text that a model writes. It is a value: one may go on from it as often as one likes, each time with the same bits."""

    @property
    def text(self) -> str:
        """All that was written up to here."""
        ...

    @property
    def ended(self) -> bool:
        """Whether the model ended the text here."""
        ...


P = TypeVar("P", bound=Place)


class Way(NamedTuple):
    """A whole text that may follow, and how probable it is."""

    text: str
    chance: float


class Author(Protocol[P]):
    """A model that writes (see `assistant.engine`)."""

    name: str
    compact: bool
    """Whether it was taught to route, and reads facts as `assistant.writing.compact` puts them."""

    def begin(self, system: str, user: str) -> P:
        """Take in the prompt: the place before the first word. Raises Cancelled."""
        ...

    def write(self, after: P, seed: int) -> Iterator[P]:
        """Write on from a place, piece by piece, until the text ends or nobody asks for more; 0 is greedy, every other seed another text.

        Raises Cancelled, and ValueError where the model computes no numbers.
        """
        ...

    def ways(self, after: P, count: int) -> list[Way]:
        """The likeliest short texts that may follow, the likeliest first. Raises Cancelled, and ValueError where the model computes no
        numbers."""
        ...

    def leaning(self, after: P, question: str, answers: tuple[str, str]) -> float | None:
        """Asked about the text so far, whether it would rather begin with the first answer (1) or the second (-1); it goes on as if nobody
        had asked. None: it is too small to judge itself."""
        ...
