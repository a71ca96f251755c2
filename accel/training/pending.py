"""Read the numbers of steps when they are there, and say which step went wrong."""

from __future__ import annotations

import math
import statistics
import time
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from gpudeck.accel.training.errors import Diverged
from gpudeck.accel.training.journal import Measured
from gpudeck.language.text import phrase

if TYPE_CHECKING:
    from gpudeck.accel.training.loop import Run

_RECENT = 100
"""The steps whose gradients tell how long one may be."""


class Pending:
    """Read the numbers of a step while the next one runs, so that a GPU never waits.

    They are copied as soon as they are there, and awaited by an event: what was launched after them
    is not awaited. On a CPU they are there when the step was launched.
    """

    def __init__(self, run: Run) -> None:
        self._run, self._on_gpu = run, run.device.kind == "cuda"
        self._waiting: tuple[int, Tensor, torch.cuda.Event | None, float] | None = None
        self.restart()

    def restart(self) -> None:
        """Begin to measure the time of a step."""
        self._began = time.perf_counter()

    def put(self, loss: Tensor, norm: Tensor, rate: float) -> None:
        """Take the numbers of the step that was launched, and record those of the one before."""
        self.flush()
        numbers = torch.stack([loss, norm.to(loss.dtype)]).to("cpu", non_blocking=True)
        arrived = None
        if self._on_gpu:
            arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
            arrived.record()
        self._waiting = (self._run.step, numbers, arrived, rate)
        if not self._on_gpu:
            self.flush()

    def flush(self) -> None:
        """Record the step that is waiting. Raises Diverged if its numbers are not finite."""
        if self._waiting is None:
            return
        (step, numbers, arrived, rate), self._waiting = self._waiting, None
        if arrived is not None:
            arrived.synchronize()
        found, length = numbers.tolist()
        seconds = time.perf_counter() - self._began
        self.restart()
        run = self._run
        run.seconds += seconds
        if not (math.isfinite(found) and math.isfinite(length)) or self._is_spike(length):
            raise _diverged(step, found, length, run.settings.batch)
        run.record(
            Measured(
                step, loss=found, rate=rate, norm=length, seconds=seconds,
                tokens_per_second=run.settings.batch * run.settings.tokens / seconds,
            )
        )  # fmt: skip

    def _is_spike(self, norm: float) -> bool:
        """Return whether a gradient is far longer than those of the last hundred steps."""
        often = self._run.settings.spike
        if not often:
            return False
        rows = self._run.journal.rows[-2 * _RECENT :]
        norms = [row.norm for row in rows if row.norm is not None][-_RECENT:]
        return len(norms) >= _RECENT // 5 and norm > often * statistics.median(norms)


def _diverged(step: int, loss: float, norm: float, batch: int) -> Diverged:
    return Diverged(
        phrase(
            "the loss of step {step} is {loss}, the norm of its gradient {norm}. Its batch"
            " holds sequences {first} to {last} of the data's order. Choose a lower rate,"
            " float32, or rewind=1, which leaves it out",
            step=step,
            loss=str(loss),
            norm=str(norm),
            first=(step - 1) * batch,
            last=step * batch - 1,
        ),
        step,
    )
