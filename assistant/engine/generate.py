"""Generate text token by token. It stops between any two tokens, and yields whole characters."""

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
from assistant.engine.checkpoint import Checkpoint
from assistant.engine.prompts import STOP
from assistant.idle import Cancelled

Reason = Literal["end", "stop", "length", "cancelled"]


class DecodeState(NamedTuple):
    """Hold a model's state after some text, with the logits [V] of the next token."""

    logits: Tensor
    state: State

    def to(self, device: str | torch.device) -> DecodeState:
        """Return the same on another device; bits do not change."""
        return DecodeState(self.logits.to(device), self.state.to(device))


def prefill(
    model: RWKV7, tokens: Sequence[int], state: State | None, cancelled: Callable[[], bool]
) -> DecodeState:
    """Take in a prompt of at least one token, and return logits [V] and the state after it.

    Raises Cancelled soon after `cancelled` returns True.
    """

    def check() -> None:
        if cancelled():
            raise Cancelled

    check()
    return DecodeState(*model.forward(tokens, state, check))


def serialize(model: RWKV7, decode_state: DecodeState) -> bytes:
    """Return bytes that `deserialize` restores bit for bit, also in another process."""
    state = torch.frombuffer(bytearray(model.saved(decode_state.state)), dtype=torch.uint8)
    return safetensors.save({"logits": decode_state.logits.cpu().contiguous(), "state": state})


def deserialize(model: RWKV7, data: bytes | None) -> DecodeState | None:
    """Return what was serialized, or None if there is nothing that this model can restore.

    A state of another dtype, from another device, cannot be restored.
    """
    if data is None:
        return None
    found = safetensors.load(data)
    try:
        state = model.restored(found["state"].numpy().tobytes())
    except ModelError:
        return None
    return DecodeState(found["logits"].to(state.shift.device), state)


def prefill_or_restore(
    model: RWKV7, tokens: Sequence[int], checkpoint: Checkpoint, cancelled: Callable[[], bool]
) -> DecodeState:
    """Return the state after a prompt, which is read once, however often the process ends.

    Raises Cancelled.
    """
    tokens = tokens or [END]
    checkpoint.begin(tokens, model.identity)
    found = deserialize(model, checkpoint.saved_state(prompt=True))
    if found is None:
        found = prefill(model, tokens, None, cancelled)
        checkpoint.save_state(serialize(model, found), prompt=True)
    return found


class Generation:
    """Generate the text after a state: iterate for the pieces, then read the attributes."""

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
        """Prepare a generation.

        Args:
            model: The model that the state belongs to.
            tokenizer: The tokenizer of the model.
            sampler: Chooses each token.
            logits: Logits [V] of the first token.
            state: The state after the prompt.
            limit: The most tokens to generate.
            cancelled: Asked before every token.
            stops: The text ends before the first of these.
            checkpoint: Its tokens come first, as if they were chosen now.
            behind: Tokens of the text so far that are not in the state yet.
        """
        self.reason: Reason | None = None
        """Why the text ended; None before that."""
        self.tokens: list[int] = []
        self.settled = True
        """All tokens so far have been yielded: nothing is held back."""
        self._model, self._tokenizer, self._sampler = model, tokenizer, sampler
        self._limit, self._cancelled, self._stops = limit, cancelled, tuple(stops)
        self._checkpoint = checkpoint or Checkpoint()
        self._current, self._behind = DecodeState(logits, state), list(behind)

    def __iter__(self) -> Iterator[str]:
        """Yield pieces of text, none empty. What may begin a stop text is held back until then."""
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        held = ""
        while (token := self._next_token()) is not None:
            held += decoder.decode(self._tokenizer.piece(token))
            if found := [at for stop in self._stops if (at := held.find(stop)) >= 0]:
                self.reason = "stop"
                held = held[: min(found)]
                break
            keep = max((_overlap(held, stop) for stop in self._stops), default=0)
            self.settled = keep == 0 and not decoder.getstate()[0]
            if ready := held[: len(held) - keep]:
                yield ready
            held = held[len(held) - keep :]
        if self.reason != "stop":
            held += decoder.decode(b"", final=True)
        if held:
            yield held

    @property
    def decode_state(self) -> DecodeState | None:
        """Return the state after the last token; None if the model has not taken all tokens in."""
        return None if self._behind else self._current

    @property
    def state(self) -> State:
        """Return the model's state after the last token."""
        return self._catch_up().state

    def _next_token(self) -> int | None:
        """Return the next token, or set the reason and return None at the end."""
        if self._cancelled():
            self.reason = "cancelled"
        elif len(self.tokens) >= self._limit:
            self.reason = "length"
        elif (token := self._restore_or_choose()) == END:
            self.reason = "end"
        else:
            return token
        return None

    def _restore_or_choose(self) -> int:
        """Return the checkpoint's next token, or choose one and take it in.

        A token of the checkpoint is taken in only once its state is needed.
        """
        if (found := deserialize(self._model, self._checkpoint.saved_state())) is not None:
            self._current, self._behind = found, []
        token = self._checkpoint.next_token()
        if token is not None:
            self._behind.append(token)
        else:
            current = self._catch_up()
            token = self._sampler(current.logits, len(self.tokens))
            if self._checkpoint.is_state_due():
                self._checkpoint.save_state(serialize(self._model, current))
            self._checkpoint.add(token)
            if token != END:
                self._behind.append(token)
                self._catch_up()
        if token != END:
            self.tokens.append(token)
        return token

    def _catch_up(self) -> DecodeState:
        while self._behind:
            next_one = self._behind[:1]
            self._current = DecodeState(*self._model.forward(next_one, self._current.state))
            del self._behind[0]
        return self._current


def _overlap(text: str, stop: str) -> int:
    """Return how many characters at the end of the text may begin the stop text."""
    longest = min(len(stop) - 1, len(text))
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)
