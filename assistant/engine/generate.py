"""Text, token by token: it can be stopped between any two tokens, and streams whole characters only."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

import torch
from safetensors import torch as safetensors
from torch import Tensor

from accel.rwkv.errors import ModelError
from accel.rwkv.model import RWKV7, State
from accel.rwkv.sampling import Sampler
from accel.rwkv.tokenizer import END, Tokenizer
from assistant.engine.checkpoint import Checkpoint, NoCheckpoint
from assistant.engine.prompts import STOP
from assistant.idle import Cancelled

Reason = Literal["end", "stop", "length", "cancelled"]


class DecodeState(NamedTuple):
    """A model after some text: the logits [V] of what comes next, and the state."""

    logits: Tensor
    state: State

    def to(self, device: str | torch.device) -> DecodeState:
        """The same on another device; bits do not change."""
        return DecodeState(self.logits.to(device), self.state.to(device))


def read(
    model: RWKV7, tokens: Sequence[int], state: State | None, cancelled: Callable[[], bool]
) -> DecodeState:
    """Take in a prompt of at least one token -> logits [V] and the state after it. Raises Cancelled within moments of being told."""

    def look() -> None:
        if cancelled():
            raise Cancelled

    look()
    return DecodeState(*model.forward(tokens, state, look))


def saved(model: RWKV7, memory: DecodeState) -> bytes:
    """As bytes that `restored` takes back bit for bit, in another process too."""
    state = torch.frombuffer(bytearray(model.saved(memory.state)), dtype=torch.uint8)
    return safetensors.save({"logits": memory.logits.cpu().contiguous(), "state": state})


def restored(model: RWKV7, data: bytes | None) -> DecodeState | None:
    """What was saved; None where nothing was, or on a device that computes in another type: then the text is taken in again."""
    if data is None:
        return None
    found = safetensors.load(data)
    try:
        state = model.restored(found["state"].numpy().tobytes())
    except ModelError:
        return None
    return DecodeState(found["logits"].to(state.shift.device), state)


def begun(
    model: RWKV7, tokens: Sequence[int], checkpoint: Checkpoint, cancelled: Callable[[], bool]
) -> DecodeState:
    """After a prompt, which is read once, however often the process ends. Raises Cancelled."""
    tokens = tokens or [END]
    checkpoint.begin(tokens, model.identity)
    memory = restored(model, checkpoint.saved(prompt=True))
    if memory is None:
        memory = read(model, tokens, None, cancelled)
        checkpoint.save(saved(model, memory), prompt=True)
    return memory


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
        checkpoint: Checkpoint | None = None,
        behind: Sequence[int] = (),
    ) -> None:
        """`limit`: tokens at most. `cancelled` is asked before every token. `stops`: texts that it ends before.

        `checkpoint`: its tokens come first, as if they were chosen now. `behind`: tokens that come before, and are not in the state yet.
        """
        self.reason: Reason | None = None
        """Why it ended; None before that."""
        self.tokens: list[int] = []
        self.settled = True
        """Whether all of them have been told: nothing is held back."""
        self._model, self._tokenizer, self._sampler = model, tokenizer, sampler
        self._limit, self._cancelled, self._stops = limit, cancelled, tuple(stops)
        self._checkpoint = checkpoint or NoCheckpoint()
        self._memory, self._behind = DecodeState(logits, state), list(behind)

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

    @property
    def memory(self) -> DecodeState | None:
        """After the last token; None where the model has not taken all of them in, as they were chosen long before."""
        return None if self._behind else self._memory

    @property
    def state(self) -> State:
        """After the last token."""
        return self._caught_up().state

    def _next(self) -> int | None:
        """The next token, or None at the end, with the reason set."""
        if self._cancelled():
            self.reason = "cancelled"
        elif len(self.tokens) >= self._limit:
            self.reason = "length"
        elif (token := self._taken()) == END:
            self.reason = "end"
        else:
            return token
        return None

    def _taken(self) -> int:
        """The checkpoint's next token, for the model to take in when there is need; or one that is chosen now, and taken in."""
        if (found := restored(self._model, self._checkpoint.saved())) is not None:
            self._memory, self._behind = found, []
        token = self._checkpoint.token()
        if token is not None:
            self._behind.append(token)
        else:
            memory = self._caught_up()
            token = self._sampler(memory.logits, len(self.tokens))
            if self._checkpoint.due():
                self._checkpoint.save(saved(self._model, memory))
            self._checkpoint.add(token)
            if token != END:
                self._behind.append(token)
                self._caught_up()
        if token != END:
            self.tokens.append(token)
        return token

    def _caught_up(self) -> DecodeState:
        while self._behind:
            self._memory = DecodeState(*self._model.forward(self._behind[:1], self._memory.state))
            del self._behind[0]
        return self._memory


def _begun(text: str, stop: str) -> int:
    """How many characters at the end of `text` may be the beginning of `stop`."""
    return next(
        (n for n in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:n])), 0
    )
