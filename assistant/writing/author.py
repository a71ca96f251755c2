"""Define what the writer needs of a model: to continue a text from any place in it.

This module needs neither torch nor Qt.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, TypeVar


class Place(Protocol):
    """Represent a place in a text that a model writes.

    It is a value: the text may continue from it any number of times, each time with the same bits.
    """

    @property
    def text(self) -> str:
        """Return everything written up to here."""

    @property
    def ended(self) -> bool:
        """Return True if the model ended the text here."""


P = TypeVar("P", bound=Place)


class Author(Protocol[P]):
    """Define a model that writes (see `gpudeck.assistant.engine`)."""

    name: str

    def begin(self, system: str, user: str) -> P:
        """Process the prompt, and return the place before the first word. Raises Cancelled."""

    def write(self, after: P, seed: int) -> Iterator[P]:
        """Continue the text after a place, piece by piece, until it ends or the caller stops.

        Args:
            after: The place to continue from.
            seed: 0 is greedy; every other seed is another text.

        Raises:
            Cancelled: The request was cancelled.
            ValueError: The model's output is not finite.
        """

    def preference(self, after: P, question: str, answers: tuple[str, str]) -> float | None:
        """Ask the model about the text so far, and return which answer it prefers.

        1 is the first answer, -1 the second. The text continues as if nobody had asked. None means
        that the model is too small to judge itself.
        """
