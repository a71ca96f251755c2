"""Requests, and the streams that their answers come through."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from gpudeck.accel.serving.errors import RequestRefused

MOST_UNREAD = 512
"""Pieces of an answer that may wait to be read; a request whose reader is slower pauses."""
MOST_LOGPROBS = 20


@dataclass(frozen=True)
class Sampling:
    """Say how tokens are chosen."""

    temperature: float = 1.0
    """0 is greedy."""
    top_k: int = 0
    """Keep the most likely tokens; 0: all."""
    top_p: float = 1.0
    """Keep the most likely tokens that together reach this share."""
    min_p: float = 0.0
    """Keep tokens at least this likely, relative to the most likely one."""
    repetition: float = 1.0
    """Divide the logits of tokens that occurred, in the prompt too (multiply negative ones)."""
    presence: float = 0.0
    """Subtract this from the logits of tokens that the answer has."""
    frequency: float = 0.0
    """Subtract this for each time that the answer has the token."""
    seed: int = 0
    logprobs: int = -1
    """Report the logarithm of the chosen token's probability, and of this many likely others;
    -1: none."""

    def __post_init__(self) -> None:
        """Raise RequestRefused for values that mean nothing."""
        limits = {
            "temperature": (0, 100), "top_k": (0, 2**31), "min_p": (0, 1),
            "repetition": (0.01, 100), "presence": (-2, 2), "frequency": (-2, 2),
            "logprobs": (-1, MOST_LOGPROBS), "top_p": (1e-9, 1),
        }  # fmt: skip
        for name, (low, high) in limits.items():
            value = getattr(self, name)
            if not math.isfinite(value) or not low <= value <= high:
                raise RequestRefused(f"{name} is from {low} to {high}; got {value}")

    @property
    def penalizes(self) -> bool:
        """Return True if what occurred changes what is likely."""
        return self.repetition != 1 or self.presence != 0 or self.frequency != 0


@dataclass(frozen=True)
class Grammar:
    """Say what an answer must look like."""

    kind: Literal["json_schema", "regex", "lark"]
    text: str
    """The schema as JSON, the regular expression, or the grammar."""


@dataclass(frozen=True)
class Request:
    """Ask for the continuation of a prompt."""

    prompt: tuple[int, ...]
    limit: int
    """The most tokens of the answer."""
    sampling: Sampling = Sampling()
    stops: tuple[str, ...] = ()
    """The answer ends before the first of these."""
    grammar: Grammar | None = None
    priority: int = 0
    """Smaller ones go first; larger ones wait while there is one."""
    client: str = ""
    """Among requests of one priority, the client goes first that was served least."""
    ignore_end: bool = False
    """Go on after a token that ends a text, as benchmarks do."""
    written: tuple[int, int] = (0, 0)
    """The part of the prompt, from and to a position, that the model wrote itself. A recurrent
    model reads it token by token, as it was written, so that bits are the same. If the prompt ends
    with it, the answer goes on from it, and its text comes first."""
    marks: tuple[str, ...] = ()
    """A recurrent model's state is kept after a token with one of these ends, for a request that
    goes on from there."""

    @property
    def begun(self) -> int:
        """Return how many tokens of the prompt are the answer's."""
        start, end = self.written
        return end - start if end == len(self.prompt) else 0


@dataclass(frozen=True)
class Choice:
    """Hold a token that was chosen, with what was asked about its probability."""

    token: int
    logprob: float = 0.0
    likely: tuple[tuple[int, float], ...] = ()
    """The most likely tokens and the logarithms of their probabilities."""


@dataclass(frozen=True)
class Piece:
    """Carry the next part of an answer."""

    text: str
    choices: tuple[Choice, ...] = ()
    """The tokens that were chosen since the last piece. Their text may follow later, when a
    character or a possible stop text is complete."""


@dataclass(frozen=True)
class Ended:
    """Say how an answer ended."""

    reason: Literal["stop", "length", "cancelled", "error"]
    prompt_tokens: int = 0
    cached_tokens: int = 0
    """Tokens of the prompt whose keys and values were in the cache."""
    tokens: int = 0
    proposed: int = 0
    """Tokens that speculation proposed."""
    accepted: int = 0
    """Of these, the ones that were the answer's."""
    message: str = ""
    """Why it failed."""


class Stream:
    """Deliver an answer from the engine's thread to a reader's."""

    def __init__(self) -> None:
        self._events: deque[Piece | Ended] = deque()
        self._changed = threading.Condition()
        self._on_change: Callable[[], None] = _nothing
        self.cancelled = False
        """The reader wants no more."""
        self.ended: Ended | None = None

    def cancel(self) -> None:
        """End the answer within a step of the engine."""
        self.cancelled = True

    def put(self, event: Piece | Ended) -> None:
        """Add an event. Called by the engine, which looks at `full` before it goes on."""
        with self._changed:
            if isinstance(event, Ended):
                self.ended = event
            self._events.append(event)
            self._changed.notify_all()
        self._on_change()

    def notify(self, on_change: Callable[[], None]) -> None:
        """Have a function called, in the engine's thread, after each event."""
        self._on_change = on_change

    @property
    def full(self) -> bool:
        """Return True if the reader has fallen behind."""
        return len(self._events) >= MOST_UNREAD

    def take(self, timeout: float | None = 0.0) -> Piece | Ended | None:
        """Return the next event; None if there is none within the time."""
        with self._changed:
            if not self._events and timeout != 0:
                self._changed.wait_for(lambda: bool(self._events), timeout)
            return self._events.popleft() if self._events else None

    def __iter__(self) -> Iterator[Piece | Ended]:
        """Yield events as they come; the last one is an Ended."""
        while True:
            event = self.take(None)
            if event is not None:
                yield event
            if isinstance(event, Ended):
                return

    def text(self) -> str:
        """Wait for the end, and return the whole text."""
        return "".join(event.text for event in self if isinstance(event, Piece))


def _nothing() -> None:
    pass
