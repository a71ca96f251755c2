"""The assistant's model as the author of a text that it may rewind."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from gpudeck.accel.serving.request import MOST_LOGPROBS, Ended, Piece, Request, Sampling
from gpudeck.assistant.engine.checkpoint import Checkpoint
from gpudeck.assistant.engine.engine import Engine
from gpudeck.assistant.engine.prompts import STOP, prompt
from gpudeck.assistant.library.describe import JUDGES

LIMIT = 400
"""The most tokens of one text."""
_ENDS = (".", "!", "?", "\n")
_REPORT_S = 0.5
"""The least time between two reports of the speed."""
_MIN_TOKENS = 8
"""Tokens after which a speed is reported."""


class TextPosition(NamedTuple):
    """A position in a text, from which it can go on (an `gpudeck.assistant.writing.author.Place`).

    The engine keeps the model's state at the ends of sentences, and else reads the text again.
    """

    prompt: tuple[int, ...]
    tokens: tuple[int, ...] = ()
    """What was written since the prompt."""
    text: str = ""
    ended: bool = False
    """The model ended the text here."""

    @property
    def written(self) -> tuple[int, int]:
        """Return where in prompt and text the model wrote itself."""
        return len(self.prompt), len(self.prompt) + len(self.tokens)


class WritingSpeed:
    """Report how fast a model writes, at most twice a second."""

    def __init__(self, name: str, report: Callable[[str], None]) -> None:
        self._name, self._report = name, report
        self._began = self._reported = 0.0

    def count(self, tokens: int) -> None:
        """Note how many tokens have been written so far."""
        now = time.monotonic()
        if not self._began:
            self._began = self._reported = now
            self._first = tokens
        elif now - self._reported >= _REPORT_S and tokens - self._first >= _MIN_TOKENS:
            self._reported = now
            rate = (tokens - self._first) / (now - self._began)
            self._report(f"the model {self._name} is writing: {tokens} tokens, {rate:.3g} tokens/s")


class EngineAuthor:
    """One request's use of an engine (an `gpudeck.assistant.writing.author.Author`)."""

    def __init__(
        self,
        engine: Engine,
        cancelled: Callable[[], bool],
        checkpoint: Checkpoint | None = None,
        report: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Create an author.

        Args:
            engine: The loaded model.
            cancelled: Asked all the time.
            checkpoint: The text that was written before the process ended; it is written again
                first.
            report: Called with a line that says how fast the model writes.
        """
        self.name, self.device = engine.name, engine.device
        self.tokens = 0
        """Tokens written so far."""
        self._engine, self._cancelled = engine, cancelled
        self._checkpoint = checkpoint or Checkpoint()
        self._speed = WritingSpeed(engine.name, report)

    def begin(self, system: str, user: str) -> TextPosition:
        """Return the position after the prompt."""
        return TextPosition(tuple(self._engine.encode(prompt(system, user))))

    def preference(
        self, after: TextPosition, question: str, answers: tuple[str, str]
    ) -> float | None:
        """Return 1 for the first answer, -1 for the second; None if the model is too small.

        An answer that is not among the likeliest tokens counts as the last of them.
        """
        if self._engine.network.parameters < JUDGES:
            return None
        asked = self._engine.encode(f"\n\nUser: {question}\n\nAssistant:")
        likely = dict[int, float]()
        for event in self._engine.answer(
            Request(
                (*after.prompt, *after.tokens, *asked), 1,
                Sampling(temperature=0, logprobs=MOST_LOGPROBS), written=after.written,
            ),
            self._cancelled,
        ):  # fmt: skip
            if isinstance(event, Piece):
                likely |= dict(event.choices[0].likely)
        least = min(likely.values())
        first, second = (likely.get(self._engine.encode(each)[0], least) for each in answers)
        return math.tanh((first - second) / 2)

    def write(self, after: TextPosition, seed: int) -> Iterator[TextPosition]:
        """Write on from a position piece by piece.

        Raises Cancelled and ValueError.
        """
        self._checkpoint.begin((seed, *after.prompt, *after.tokens), self._engine.network.identity)
        at = after
        while tokens := self._checkpoint.next_piece():
            at = self._position(at, tokens)
            yield at
        sampling = Sampling(temperature=0) if seed == 0 else Sampling(1.0, top_p=0.9, seed=seed)
        request = Request(
            (*at.prompt, *at.tokens), len(after.tokens) + LIMIT, sampling, (STOP,),
            written=at.written, marks=_ENDS,
        )  # fmt: skip
        text, new = "", list[int]()
        for event in self._engine.answer(request, self._cancelled):
            if isinstance(event, Ended):
                if event.reason == "error":
                    raise ValueError(event.message)
                break
            text += event.text
            new += (choice.token for choice in event.choices)
            if new and self._engine.decode((*at.tokens, *new)) == text:  # else some is held back
                self._checkpoint.add(new)
                at, new = self._position(at, tuple(new)), []
                yield at
        yield at._replace(text=text, ended=True)

    def _position(self, before: TextPosition, new: tuple[int, ...]) -> TextPosition:
        """Return the position after more tokens, and report the speed."""
        self.tokens += len(new)
        self._speed.count(self.tokens)
        tokens = before.tokens + new
        return TextPosition(before.prompt, tokens, self._engine.decode(tokens))
