"""Train a model: the loop, and what a step is.

A run consists of its settings, its data and the number of steps that were done. Everything random
is a function of seed and step, so a checkpoint holds weights, the optimizer's memory and counters,
and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gpudeck.accel.attention.ragged import Ragged
from gpudeck.accel.runtime.capability import ComputeDevice, versions
from gpudeck.accel.training.average import Average
from gpudeck.accel.training.batches import Batch, Batches
from gpudeck.accel.training.checkpoint import About, Checkpoints
from gpudeck.accel.training.errors import Diverged, Refused, Stopped
from gpudeck.accel.training.fp8 import choose_fp8, use_fp8
from gpudeck.accel.training.journal import Journal, Measured
from gpudeck.accel.training.loss import cross_entropy
from gpudeck.accel.training.optimizer import Optimizers, rate_at
from gpudeck.accel.training.pending import Pending
from gpudeck.accel.training.ranks import Ranks, divide, fill, whole
from gpudeck.accel.training.settings import Settings, differing
from gpudeck.accel.training.share import Share
from gpudeck.accel.training.start import Start
from gpudeck.accel.training.tokenizers import Tokenizer
from gpudeck.language.text import Message, Text, phrase

DOCUMENT_STEP = 32
"""The number of documents in a batch is filled up to a multiple of it with empty ones, so that
torch.compile meets few shapes."""
_AVERAGE = "average."


class Watch(Protocol):
    """Whoever follows a run."""

    def say(self, text: Message) -> None:
        """Take a message for people."""

    def measured(self, row: Measured) -> None:
        """Take what a step measured."""

    def stopping(self) -> bool:
        """Return True if the run is to write a checkpoint and end."""


@dataclass
class Run:
    """Hold the parts of a run."""

    settings: Settings
    start: Start
    tokenizer: Tokenizer
    batches: Batches
    data: str
    """The fingerprint of the tokens."""
    device: ComputeDevice
    checkpoints: Checkpoints
    journal: Journal
    watch: Watch
    step: int = 0
    """The number of steps that were done."""
    seconds: float = 0.0
    """The time that steps took, in all attempts."""
    best: float | None = None
    best_step: int = 0
    fp8: tuple[str, ...] = ()
    """The sizes of the products that are computed in FP8."""
    left_out: tuple[int, ...] = ()
    """The steps whose batches change no weight, as a run went wrong with them."""

    def __post_init__(self) -> None:
        s = self.settings
        self.dtype = getattr(torch, s.dtype)
        self.ranks = Ranks(self.device.torch_device, s)
        place = self.ranks.place(self.device.torch_device)
        self.model = self.start.make(place, self.dtype)
        self.ranks.shard(self.model, self.model.model.layers, again=s.shard == "weights")
        self.optimizer = Optimizers(self.model, s)
        self.average = Average(self.model.trained(), s.average) if s.average else None
        if s.compile:
            self.model.compile_layers()

    def train(self) -> None:
        """Do the steps that are left; see `steps`."""
        for _ in self.steps():
            pass

    def steps(self) -> Iterator[int]:
        """Do the steps that are left, with held-out losses and checkpoints between them.

        Yield the number of steps that were done after each.

        Raises:
            Diverged: if a loss or gradient is not finite, or one is a spike; it names the step.
            Stopped: if `watch` wants that, after a checkpoint.
            OSError: if a checkpoint could not be written.
        """
        while True:
            try:
                yield from self._steps_left()
            except Diverged as e:
                self._rewind(e)
            else:
                return

    def _steps_left(self) -> Iterator[int]:
        s = self.settings
        pending = Pending(s, self.journal, self.record)
        if self._lacks_held_out():
            self.evaluate()
        for batch in self._prefetched():
            if self.exhausted:
                break
            rate = rate_at(self.step, s)
            self.step += 1
            if self.step not in self.left_out:
                pending.put(self.step, *self._change_weights(batch, rate), rate)
            last, stopping = self.step == s.steps, self.ranks.any(self.watch.stopping())
            due = last or self.step % s.checkpoint == 0
            if due or stopping or self.step % s.evaluate == 0:
                pending.flush()
                found = None if stopping and not due else self.evaluate()
                if due or stopping:
                    self.save(found)
                pending.restart()
            if stopping and not last:
                self._finish()
                raise Stopped(
                    phrase(
                        "stopped after step {step} of {steps}, with a checkpoint",
                        step=self.step,
                        steps=s.steps,
                    )
                )
            yield self.step
        self._finish()
        if self.exhausted:
            self._take_best()

    def _lacks_held_out(self) -> bool:
        """Return whether the held-out loss of this step is due and not on record. This is so at the
        beginning, and where a run was stopped, as it then does not take the time to measure it.
        """
        known = any(row.step == self.step and row.held_out is not None for row in self.journal.rows)
        return self.ranks.any(not known and self.step % self.settings.evaluate == 0)

    def _change_weights(self, batch: Batch, rate: float) -> tuple[Tensor, Tensor]:
        """Do a step; return its loss, and the norm of its gradient before clipping."""
        clip = self.settings.clip
        self.optimizer.set_rate(rate)
        loss = self._accumulate_in_memory(batch)
        norm = whole(torch.nn.utils.get_total_norm(_gradients(self.model)))
        if clip:
            torch.nn.utils.clip_grads_with_norm_(self.model.parameters(), clip, norm)
        self.optimizer.step()
        if self.average is not None:
            self.average.update(self.step)
        return loss, norm

    def _accumulate_in_memory(self, batch: Batch) -> Tensor:
        """Add the gradients of a batch; if the memory is too small, by computing layers again in
        the backward pass from now on, which changes no result."""
        if self.model.recompute or self.ranks.count > 1:  # others would not repeat the step
            return self.accumulate(batch)
        with suppress(torch.OutOfMemoryError):
            return self.accumulate(batch)
        self.model.recompute = True
        self.model.zero_grad(set_to_none=True)
        if self.device.kind == "cuda":
            torch.cuda.empty_cache()
        self.watch.say(
            phrase("the memory is too small, so layers are computed again in the backward pass")
        )
        return self.accumulate(batch)

    def _rewind(self, error: Diverged) -> None:
        """Go back to the newest checkpoint, to leave out the step with which a run went wrong.

        Raises:
            Diverged: if that is not wanted (again), or no step or checkpoint is there.
        """
        self._finish()
        steps, before = self.checkpoints.steps(), self.left_out
        if error.step is None or not steps or len(before) >= self.settings.rewind:
            raise error
        self.journal.close()
        self._restore(*self.checkpoints.load_step(steps[-1]))
        self.left_out = (*before, error.step)
        self.watch.say(error.text)
        self.watch.say(phrase("the batch of step {step} is left out", step=error.step))

    def _finish(self) -> None:
        """Wait until the last checkpoint is on disk, for all processes to read."""
        self.checkpoints.wait()
        self.ranks.wait()

    def close(self) -> None:
        """Wait for what is being written, and close the journal."""
        try:
            self.checkpoints.wait()
        finally:
            self.journal.close()

    @property
    def exhausted(self) -> bool:
        """Return whether the held-out loss has not fallen for as long as `patience` allows."""
        most = self.settings.most_without_gain
        return most is not None and self.best is not None and self.step - self.best_step >= most

    def _take_best(self) -> None:
        """Take the weights of the checkpoint with the lowest held-out loss."""
        about, state = self.checkpoints.load_step(self.best_step)
        self._load_weights(state)
        self.watch.say(
            phrase(
                "ended after step {step}, as patience asks: the held-out loss was lowest after step"
                " {best}, whose weights are taken",
                step=self.step,
                best=about.step,
            )
        )

    def accumulate(self, batch: Batch) -> Tensor:
        """Add the gradients of a batch, part by part; return its loss for each target."""
        loss = torch.zeros((), device=self.device.torch_device)
        ranks = self.ranks
        first, count = ranks.rows
        scale = ranks.mean / max(batch.learned, 1)
        for part in self.batches.parts(batch, count)[first::count]:
            part_loss = self.loss(part, scale)
            part_loss.backward()  # type: ignore[no-untyped-call]
            loss += part_loss.detach() / ranks.mean
        ranks.add_gradients(self.model.trained().values())
        return ranks.total(loss)

    def loss(self, batch: Batch, scale: float) -> Tensor:
        """Return `scale` times the sum of the losses of a batch, or of this process's tokens in
        it."""
        tokens, targets = (_on(self.device, x) for x in (batch.tokens, batch.targets))
        documents = self._documents(batch)
        if isinstance(documents, Share):
            tokens, targets = documents.take(tokens), documents.take(targets)
        hidden = self.model(tokens, self.dtype, documents)
        return cross_entropy(
            hidden.flatten(0, 1), self.model.head, targets.flatten(), scale,
            self.start.config.final_softcap,
        )  # fmt: skip

    def _documents(self, batch: Batch) -> Ragged | Share | None:
        ranks, s = self.ranks, self.settings
        if ranks.by_tokens:
            lengths = batch.lengths if s.documents else (s.tokens,) * len(batch.tokens)
            return Share.of(lengths, ranks.count, ranks.rank)
        if not s.documents:
            return None
        filled = -len(batch.lengths) % DOCUMENT_STEP
        lengths = (*batch.lengths, *(0,) * filled)
        made = Ragged.of(lengths, device=self.device.torch_device)
        return Ragged(made.starts_q, made.starts_k, s.tokens, s.tokens, made.total_q, made.total_k)

    def backend(self) -> tuple[str, Text]:
        """Return what computes attention or the recurrence in the first layer, and why."""
        s = self.settings
        rows = s.batch // s.accumulate
        return self.model.explain(rows, s.tokens, self.dtype, documents=s.documents)

    def shown(self) -> AbstractContextManager[None]:
        """Let the model have the weights that are evaluated and written, while the block runs."""
        return nullcontext() if self.average is None else self.average.shown()

    @torch.no_grad()
    def evaluate(self) -> float | None:
        """Measure and record the held-out loss; None if nothing is held out."""
        batches = self.batches.held_out()
        count = sum(batch.learned for batch in batches)
        if not count:
            return None
        total = torch.zeros((), dtype=torch.float64, device=self.device.torch_device)
        with self.shown():
            for batch in batches:  # all in every process, unless it computes only some tokens
                total += self.loss(batch, 1.0)
            divide(self.model)
        if self.ranks.by_tokens:
            self.ranks.total(total)
        found = float(total) / count
        if not math.isfinite(found):
            raise Diverged(
                phrase("the held-out loss after step {step} is not finite", step=self.step)
            )
        self.record(Measured(self.step, held_out=found))
        return found

    def save(self, held_out: float | None) -> None:
        """Begin to write a checkpoint, which is the best one if its held-out loss is the lowest so
        far."""
        if held_out is not None and (self.best is None or held_out < self.best):
            self.best, self.best_step = held_out, self.step
        about = About(
            self.step, self.settings, self.data, self.start.fingerprint, str(self.device),
            torch.get_num_threads(), versions(), self.seconds, self.best, self.best_step, self.fp8,
            self.left_out,
        )  # fmt: skip
        memory = self.optimizer.states()
        state: dict[str, Tensor] = {f"model.{n}": w for n, w in self.model.trained().items()}
        state |= {f"optimizer.{n}": v for n, v in memory.items()}
        gathered = {name: whole(value) for name, value in state.items()}
        if self.average is not None:
            gathered |= {f"{_AVERAGE}{n}": value for n, value in self.average.states().items()}
        if self.ranks.first:
            self.checkpoints.save(about, gathered, self.journal.sync)

    def resume(self) -> None:
        """Continue from the newest checkpoint that is whole; begin anew if there is none.

        Raises:
            Refused: if the checkpoints are those of another run, or all of them are damaged.
        """
        found = None
        for found in self.checkpoints.load():
            if isinstance(found, tuple):
                self._restore(*found)
                return
            self.watch.say(found)
        if found is not None:
            raise Refused(phrase("no checkpoint of this run can be read. Choose another folder"))
        self.journal.begin(-1)
        if self.settings.precision == "fp8":
            self.choose_fp8()
            self.save(None)  # another attempt is to compute the same products in FP8

    def choose_fp8(self) -> None:
        """Measure which products are faster in FP8, and have these computed so."""
        s = self.settings
        self.fp8 = choose_fp8(self.model, s.batch // s.accumulate * s.tokens)
        self._use_fp8()

    def _use_fp8(self) -> None:
        count = use_fp8(self.model, self.fp8)
        sizes = ", ".join(self.fp8) or "-"
        self.watch.say(phrase("products in FP8: {count} ({sizes})", count=count, sizes=sizes))

    @torch.no_grad()
    def _restore(self, about: About, state: dict[str, Tensor]) -> None:
        self._refuse_another(about)
        torch.set_num_threads(about.threads)
        self._load_weights(state)
        self.optimizer.load_states(_those(state, "optimizer."))
        self.step, self.seconds = about.step, about.seconds
        self.best, self.best_step = about.best, about.best_step
        self.fp8, self.left_out = about.fp8, about.left_out
        if self.settings.precision == "fp8":
            self._use_fp8()
        self.journal.begin(about.step)
        self.watch.say(phrase("continued after step {step}", step=about.step))
        changed = [n for n, v in versions().items() if about.versions.get(n) != v]
        if str(self.device) != about.device or changed:
            self.watch.say(
                phrase(
                    "earlier steps ran on another device or version, so the last bits may differ"
                )
            )

    @torch.no_grad()
    def _load_weights(self, state: dict[str, Tensor]) -> None:
        for name, weight in self.model.trained().items():
            fill(weight, state[f"model.{name}"])
        if self.average is not None:
            self.average.load_states(_those(state, _AVERAGE))

    def _refuse_another(self, about: About) -> None:
        if names := differing(about.settings, self.settings):
            raise Refused(
                phrase(
                    "the folder holds a run with other settings ({names}). Choose another folder"
                    " or the settings in its settings.toml",
                    names=", ".join(names),
                )
            )
        if about.data != self.data:
            raise Refused(phrase("the data has changed since the run began. Choose another folder"))
        if about.frozen != self.start.fingerprint:
            raise Refused(
                phrase("the model in base has changed since the run began. Choose another folder")
            )

    def record(self, row: Measured) -> None:
        """Keep what was measured, and tell it."""
        self.seconds += row.seconds or 0.0
        self.journal.add(row)
        self.watch.measured(row)

    def _prefetched(self) -> Iterator[Batch]:
        """Yield the batches that are left; each is made while the one before it is used."""
        with ThreadPoolExecutor(1) as pool:
            following: Future[Batch] = pool.submit(self.batches.batch, self.step)
            for step in range(self.step, self.settings.steps):
                batch = following.result()
                if step + 1 < self.settings.steps:
                    following = pool.submit(self.batches.batch, step + 1)
                yield batch


def _those(state: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names begin with a prefix, without it."""
    return {n.removeprefix(prefix): v for n, v in state.items() if n.startswith(prefix)}


def _on(device: ComputeDevice, numbers: NDArray[np.int64]) -> Tensor:
    """Return numbers on a device, copied while it computes."""
    made = torch.from_numpy(numbers)
    if device.kind == "cuda":
        return made.pin_memory().to(device.torch_device, non_blocking=True)
    return made


def _gradients(model: nn.Module) -> list[Tensor]:
    return [weight.grad for weight in model.parameters() if weight.grad is not None]
