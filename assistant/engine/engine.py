"""The model as an author: one RWKV-7 with its tokenizer, and texts written from any place in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from accel.rwkv.model import RWKV7
from accel.rwkv.sampling import Sampler
from accel.rwkv.tokenizer import Tokenizer
from assistant.engine.checkpoint import Checkpoint, NoCheckpoint
from assistant.engine.generate import DecodeState, Generation, begun, read
from assistant.engine.pace import Pace
from assistant.engine.prompts import prompt
from assistant.engine.search import likeliest
from assistant.idle import Cancelled
from assistant.library.describe import model_errors
from assistant.messages import slow_note
from assistant.writing.author import Way
from assistant.writing.compact import trained_for
from scheduler.protocol.errors import UserError

if TYPE_CHECKING:
    from accel.rwkv import ahead

LIMIT = 400
"""Tokens of one text at most."""
JUDGES = 1_000_000_000
"""Parameters from which on a model is asked what it thinks of its own text."""
_ENDS = (".", "!", "?", "\n")


class Engine:
    """A loaded model."""

    def __init__(self, path: str, device: str, *, wait: bool = True) -> None:
        """Load what is at `path` onto `cpu` (fp32, one thread) or `cuda` (bf16). Raises UserError, one line.

        `wait`: until its code is compiled, where this CPU has none yet; else a process beside this one does that, and torch computes until
        `settle`.
        """
        if device == "cuda" and not torch.cuda.is_available():
            raise UserError(
                "the model cannot run on cuda: torch finds no NVIDIA GPU here. Set model_device to cpu"
            )
        torch.set_num_threads(
            1
        )  # measured: on a busy machine two threads can be many times slower than one
        self.name = Path(path).stem if path.endswith((".pth", ".safetensors")) else Path(path).name
        self.device = device
        self.compact = trained_for(path)
        try:
            with model_errors():
                self._load(path, wait)
                self.tokenizer = Tokenizer.load(path)
            self.model.forward(
                [0]
            )  # what is compiled at the first use on a machine is compiled now
        except (RuntimeError, MemoryError) as e:
            raise UserError(
                f"the model {path} does not fit on {device}: {(str(e).splitlines() or ['out of memory'])[0]}"
            ) from e
        if self.tokenizer.size > self.model.vocabulary:
            raise UserError(
                f"{path}: the vocabulary has {self.tokenizer.size} tokens, the model {self.model.vocabulary}; they do not belong together"
            )

    def encode(self, text: str) -> list[int]:
        """Return the tokens of `text`. Raises UserError where the vocabulary lacks one of its bytes."""
        with model_errors():
            return self.tokenizer.encode(text)

    def _load(self, path: str, wait: bool) -> None:
        self._preparation: ahead.Preparation | None = None
        self.by = "triton"
        """What computes: triton; or, on a CPU, compiled code, or torch until there is."""
        if self.device == "cuda":
            self.model = RWKV7.load(path, "cuda", torch.bfloat16)
            return
        from accel.rwkv import ahead  # brings Numba in

        self.by = "compiled" if wait or ahead.ready() else "torch"
        self.model = RWKV7.load(path, "cpu", torch.float32, compiled=self.by == "compiled")
        if self.by == "torch":
            self._preparation = ahead.Preparation()

    def settle(self) -> bool:
        """Go over to compiled code once there is; False while it is being compiled. Between two texts, never in one."""
        if self._preparation is None:
            return True
        if not self._preparation.ended():
            return False
        from accel.rwkv import ahead

        self._preparation = None
        if ahead.ready():  # else why not is in the log, and torch goes on
            self.model.use_compiled()
            self.by = "compiled"
        return True


class TextPosition:
    """A place in a text (an `assistant.writing.author.Place`)."""

    def __init__(
        self,
        text: str,
        memory: DecodeState | None,
        before: TextPosition | None = None,
        tokens: Sequence[int] = (),
        *,
        ended: bool = False,
    ) -> None:
        self.text, self.memory, self.before, self.tokens, self.ended = (
            text,
            memory,
            before,
            tuple(tokens),
            ended,
        )
        """`memory`, not on the GPU, is None where it was not worth keeping; `tokens` lead here from `before`."""

    def way(self) -> tuple[DecodeState, list[int]]:
        """The nearest memory on the way here, and the tokens since: to take them in gives the same bits as when they were written."""
        at, tokens = self, list[int]()
        while at.memory is None:
            assert at.before is not None, "there is a memory after the prompt"
            at, tokens = at.before, [*at.tokens, *tokens]
        return at.memory, tokens


class EngineAuthor:
    """One request's use of an engine (an `assistant.writing.author.Author`)."""

    def __init__(
        self,
        engine: Engine,
        cancelled: Callable[[], bool],
        checkpoint: Checkpoint | None = None,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        """`checkpoint`: what was written before the process ended; it is written again, and then goes on. `say` hears how fast it is."""
        self.name, self.device, self.by, self.compact = (
            engine.name,
            engine.device,
            engine.by,
            engine.compact,
        )
        self.tokens = 0
        """Tokens written so far."""
        self._engine, self._cancelled, self._checkpoint = (
            engine,
            cancelled,
            checkpoint or NoCheckpoint(),
        )
        self._pace = Pace(engine.name + slow_note(engine.by), say)

    def begin(self, system: str, user: str) -> TextPosition:
        """The place after the prompt. Raises Cancelled."""
        tokens = self._engine.encode(prompt(system, user))
        return TextPosition(
            "", begun(self._engine.model, tokens, self._checkpoint, self._cancelled).to("cpu")
        )

    def ways(self, after: TextPosition, count: int) -> list[Way]:
        memory, behind = after.way()
        assert not behind, "a place after a prompt keeps its memory"
        found = likeliest(
            self._engine.model, memory.to(self._engine.model.device), count, self._cancelled
        )
        self.tokens += len(found[0][0]) if found else 0
        return [
            Way(self._engine.tokenizer.decode(tokens).decode(errors="replace"), chance)
            for tokens, chance in found
        ]

    def leaning(self, after: TextPosition, question: str, answers: tuple[str, str]) -> float | None:
        model, encode = self._engine.model, self._engine.encode
        if model.parameters < JUDGES:
            return None
        memory, behind = after.way()
        memory = memory.to(model.device)
        for token in behind:
            memory = DecodeState(*model.forward([token], memory.state))
        logits = read(
            model, encode(f"\n\nUser: {question}\n\nAssistant:"), memory.state, self._cancelled
        ).logits
        first, second = torch.softmax(
            logits[[encode(answer)[0] for answer in answers]].double(), dim=0
        ).tolist()
        return float(first - second)

    def write(self, after: TextPosition, seed: int) -> Iterator[TextPosition]:
        """Piece by piece; what a sentence ended with keeps its memory. Raises Cancelled, ValueError."""
        memory, behind = after.way()
        run = Generation(
            self._engine.model,
            self._engine.tokenizer,
            Sampler() if seed == 0 else Sampler(temperature=1.0, top_p=0.9, seed=seed),
            *memory.to(self._engine.model.device),
            limit=LIMIT,
            cancelled=self._cancelled,
            checkpoint=self._checkpoint,
            behind=behind,
        )
        kept, text, start, told = after, after.text, 0, 0
        for piece in run:
            self.tokens, told = self.tokens + len(run.tokens) - told, len(run.tokens)
            self._pace.count(self.tokens)
            text += piece
            if run.reason is not None or not run.settled:
                continue
            mark = TextPosition(text, None, kept, run.tokens[start:])
            if piece.endswith(_ENDS):
                mark.memory = run.memory and run.memory.to("cpu")
                kept, start = mark, told
            yield mark
        self.tokens += len(run.tokens) - told
        if run.reason == "cancelled":
            raise Cancelled
        yield TextPosition(text, None, kept, run.tokens[start:], ended=True)
