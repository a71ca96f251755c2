"""The model as an author: a loaded RWKV-7 with its tokenizer, and the texts of one request."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from accel.rwkv.model import RWKV7
from accel.rwkv.sampling import Sampler
from accel.rwkv.tokenizer import Tokenizer
from assistant.engine.checkpoint import Checkpoint
from assistant.engine.generate import DecodeState, Generation, prefill, prefill_or_restore
from assistant.engine.prompts import prompt
from assistant.idle import Cancelled
from assistant.library.describe import model_errors
from assistant.messages import slow_note
from assistant.writing.compact import trained_for
from scheduler.protocol.errors import UserError

if TYPE_CHECKING:
    from accel.rwkv import ahead

LIMIT = 400
"""The most tokens of one text."""
JUDGES = 1_000_000_000
"""A model with at least so many parameters is asked to judge its own text."""
_ENDS = (".", "!", "?", "\n")
_REPORT_S = 0.5
"""The least time between two reports of the speed."""
_MIN_TOKENS = 8
"""Tokens after which a speed is reported."""


class Engine:
    """A loaded model with its tokenizer."""

    def __init__(self, path: str, device: str, *, wait: bool = True) -> None:
        """Load a model.

        Args:
            path: Its folder or file.
            device: `cpu` (float32, one thread) or `cuda` (bfloat16).
            wait: Wait until its code is compiled for this CPU. Otherwise another process compiles
                it, and torch computes until `settle` is called after that.

        Raises:
            UserError: It cannot be loaded, in one line.
        """
        if device == "cuda" and not torch.cuda.is_available():
            raise UserError(
                "the model cannot run on cuda: torch finds no NVIDIA GPU. Set model_device to cpu"
            )
        # measured: on a busy machine two threads can be many times slower than one
        torch.set_num_threads(1)
        self.name = Path(path).stem if path.endswith((".pth", ".safetensors")) else Path(path).name
        self.device = device
        self.compact = trained_for(path)
        try:
            with model_errors():
                self._load(path, wait)
                self.tokenizer = Tokenizer.load(path)
            self.model.forward([0])  # compiles what is compiled at the first use on a machine
        except (RuntimeError, MemoryError) as e:
            reason = (str(e).splitlines() or ["out of memory"])[0]
            raise UserError(f"the model {path} does not fit on {device}: {reason}") from e
        if self.tokenizer.size > self.model.vocabulary:
            raise UserError(
                f"{path}: the vocabulary has {self.tokenizer.size} tokens but the model "
                f"{self.model.vocabulary}; they do not belong together"
            )

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text. Raises UserError if the vocabulary lacks a byte of it."""
        with model_errors():
            return self.tokenizer.encode(text)

    def _load(self, path: str, wait: bool) -> None:
        self._preparation: ahead.Preparation | None = None
        self.by = "triton"
        """What computes: triton on a GPU; compiled code on a CPU, or torch until there is some."""
        if self.device == "cuda":
            self.model = RWKV7.load(path, "cuda", torch.bfloat16)
            return
        from accel.rwkv import ahead  # imports Numba

        self.by = "compiled" if wait or ahead.ready() else "torch"
        self.model = RWKV7.load(path, "cpu", torch.float32, compiled=self.by == "compiled")
        if self.by == "torch":
            self._preparation = ahead.Preparation()

    def settle(self) -> bool:
        """Switch to compiled code if there is some; return False while it is being compiled.

        Call it between two texts, never within one: the bits differ.
        """
        if self._preparation is None:
            return True
        if not self._preparation.ended():
            return False
        from accel.rwkv import ahead

        self._preparation = None
        if ahead.ready():  # if not, the log says why, and torch goes on
            self.model.use_compiled()
            self.by = "compiled"
        return True


class TextPosition:
    """A position in a text, from which it can go on (an `assistant.writing.author.Place`)."""

    def __init__(
        self,
        text: str,
        state: DecodeState | None,
        before: TextPosition | None = None,
        tokens: Sequence[int] = (),
        *,
        ended: bool = False,
    ) -> None:
        """Create a position.

        Args:
            text: The text so far.
            state: The model's state, not on the GPU; None if it was not worth keeping.
            before: The position that the tokens lead here from.
            tokens: The tokens since `before`.
            ended: The model ended the text here.
        """
        self.text, self.state, self.before, self.ended = text, state, before, ended
        self.tokens = tuple(tokens)

    def nearest_state(self) -> tuple[DecodeState, list[int]]:
        """Return the last state on the way here, and the tokens since.

        To take these in gives the same bits as when they were written.
        """
        position, tokens = self, list[int]()
        while position.state is None:
            assert position.before is not None, "the position after the prompt has a state"
            position, tokens = position.before, [*position.tokens, *tokens]
        return position.state, tokens


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
    """One request's use of an engine (an `assistant.writing.author.Author`)."""

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
            cancelled: Asked before every token.
            checkpoint: The text that was written before the process ended; it is written again
                first.
            report: Called with a line that says how fast the model writes.
        """
        self.name, self.device, self.by = engine.name, engine.device, engine.by
        self.compact = engine.compact
        self.tokens = 0
        """Tokens written so far."""
        self._engine, self._cancelled = engine, cancelled
        self._checkpoint = checkpoint or Checkpoint()
        self._speed = WritingSpeed(engine.name + slow_note(engine.by), report)

    def begin(self, system: str, user: str) -> TextPosition:
        """Return the position after the prompt. Raises Cancelled."""
        tokens, model = self._engine.encode(prompt(system, user)), self._engine.model
        start = prefill_or_restore(model, tokens, self._checkpoint, self._cancelled)
        return TextPosition("", start.to("cpu"))

    def preference(
        self, after: TextPosition, question: str, answers: tuple[str, str]
    ) -> float | None:
        """Return 1 for the first answer, -1 for the second; None if the model is too small."""
        model = self._engine.model
        if model.parameters < JUDGES:
            return None
        state, behind = after.nearest_state()
        state = state.to(model.device)
        for token in behind:
            state = DecodeState(*model.forward([token], state.state))
        asked = self._engine.encode(f"\n\nUser: {question}\n\nAssistant:")
        logits = prefill(model, asked, state.state, self._cancelled).logits
        first_tokens = [self._engine.encode(answer)[0] for answer in answers]
        first, second = torch.softmax(logits[first_tokens].double(), dim=0).tolist()
        return float(first - second)

    def write(self, after: TextPosition, seed: int) -> Iterator[TextPosition]:
        """Write on from a position piece by piece; the ends of sentences keep their state.

        Raises Cancelled and ValueError.
        """
        model = self._engine.model
        state, behind = after.nearest_state()
        run = Generation(
            model,
            self._engine.tokenizer,
            Sampler() if seed == 0 else Sampler(temperature=1.0, top_p=0.9, seed=seed),
            *state.to(model.device),
            limit=LIMIT,
            cancelled=self._cancelled,
            checkpoint=self._checkpoint,
            behind=behind,
        )
        kept, text, start, counted = after, after.text, 0, 0
        for piece in run:
            self.tokens, counted = self.tokens + len(run.tokens) - counted, len(run.tokens)
            self._speed.count(self.tokens)
            text += piece
            if run.reason is not None or not run.settled:
                continue
            position = TextPosition(text, None, kept, run.tokens[start:])
            if piece.endswith(_ENDS):
                position.state = run.decode_state and run.decode_state.to("cpu")
                kept, start = position, counted
            yield position
        self.tokens += len(run.tokens) - counted
        if run.reason == "cancelled":
            raise Cancelled
        yield TextPosition(text, None, kept, run.tokens[start:], ended=True)
