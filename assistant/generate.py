"""Text, token by token: it can be stopped between any two tokens, and streams whole characters only."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from torch import Tensor

from assistant.idle import Cancelled
from assistant.model import RWKV7, State
from assistant.sampling import Sampler
from assistant.tokenizer import END, Tokenizer

STOP = "\n\nUser"
"""Where the model would go on with the user's part."""

Reason = Literal["end", "stop", "length", "cancelled"]


def prompt(system: str, user: str) -> str:
    """The turns as RWKV's chat models were trained on them: no empty line within a turn, no space at the end."""
    return f"System: {_turn(system)}\n\nUser: {_turn(user)}\n\nAssistant:"


def _turn(text: str) -> str:
    return re.sub(r"\n{2,}", "\n", text.replace("\r\n", "\n")).strip()


def read(model: RWKV7, tokens: Sequence[int], state: State | None, cancelled: Callable[[], bool]) -> tuple[Tensor, State]:
    """Take in a prompt of at least one token -> logits [V] and the state after it. Raises Cancelled within moments of being told."""

    def look() -> None:
        if cancelled():
            raise Cancelled

    look()
    return model.forward(tokens, state, look)


class Generation:
    """What follows `state` and its `logits`: iterate for the text; the outcome is in the attributes afterwards."""

    def __init__(
        self,
        model: RWKV7,
        tokenizer: Tokenizer,
        sampler: Sampler,
        logits: Tensor,
        state: State,
        *,
        limit: int,
        cancelled: Callable[[], bool] = lambda: False,
        stops: Sequence[str] = (STOP,),
        written: Sequence[int] = (),
        wrote: Callable[[int], None] = lambda token: None,
    ) -> None:
        """`limit`: tokens at most. `cancelled` is asked before every token. `stops`: texts that it ends before.

        `written`: the first tokens, chosen before; all is as if they had been chosen now. `wrote` is told every token before it is told to
        anybody else.
        """
        self.reason: Reason | None = None
        """Why it ended; None before that."""
        self.tokens: list[int] = []
        self.logits, self.state = logits, state
        """After the last of them."""
        self.settled = True
        """Whether all of them have been told: nothing is held back."""
        self._model, self._tokenizer, self._sampler = model, tokenizer, sampler
        self._limit, self._cancelled, self._stops = limit, cancelled, tuple(stops)
        self._written, self._wrote = written, wrote

    def __iter__(self) -> Iterator[str]:
        """Pieces of text, none empty. What might be the beginning of the stop text is held back until that is decided."""
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        held = ""
        while (token := self._next()) is not None:
            held += decoder.decode(self._tokenizer.piece(token))
            if found := [at for stop in self._stops if (at := held.find(stop)) >= 0]:
                self.reason = "stop"
                held = held[: min(found)]
                break
            keep = max((_begun(held, stop) for stop in self._stops), default=0)
            self.settled = keep == 0 and not decoder.getstate()[0]
            if ready := held[: len(held) - keep]:
                yield ready
            held = held[len(held) - keep :]
        if self.reason != "stop":
            held += decoder.decode(b"", final=True)
        if held:
            yield held

    def _next(self) -> int | None:
        """The next token, taken into the state; None at the end, with the reason set."""
        if self._cancelled():
            self.reason = "cancelled"
        elif len(self.tokens) >= self._limit:
            self.reason = "length"
        elif (token := self._chosen(len(self.tokens))) == END:
            self.reason = "end"
        else:
            self.tokens.append(token)
            self.logits, self.state = self._model.forward([token], self.state)
            return token
        return None

    def _chosen(self, number: int) -> int:
        if number < len(self._written):
            return self._written[number]
        token = self._sampler(self.logits, number)
        self._wrote(token)
        return token


def _begun(text: str, stop: str) -> int:
    """How many characters at the end of `text` may be the beginning of `stop`."""
    return next((n for n in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:n])), 0)
