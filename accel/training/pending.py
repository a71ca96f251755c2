"""Read the numbers of steps when they are there, and say which step went wrong."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from gpudeck.accel.training.errors import Diverged
from gpudeck.accel.training.journal import Journal, Measured
from gpudeck.accel.training.settings import Settings
from gpudeck.language.text import phrase

_RECENT = 100
"""The steps whose gradients tell how long one may be."""


class Pending:
    """Read the numbers of a step while the next one runs, so that a GPU never waits.

    They are copied as soon as they are there, and awaited by an event: what was launched after them
    is not awaited. On a CPU they are there when the step was launched.
    """

    def __init__(
        self, settings: Settings, journal: Journal, record: Callable[[Measured], None]
    ) -> None:
        """Take what tells earlier steps, and what gets each new one."""
        self._settings, self._journal, self._record = settings, journal, record
        self._waiting: tuple[int, Tensor, torch.cuda.Event | None, float] | None = None
        self.restart()

    def restart(self) -> None:
        """Begin to measure the time of a step."""
        self._began = time.perf_counter()

    def put(self, step: int, loss: Tensor, norm: Tensor, rate: float) -> None:
        """Take the numbers of the step that was launched, and record those of the one before."""
        self.flush()
        numbers = torch.stack([loss, norm.to(loss.dtype)])
        if loss.is_cuda:
            arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
            numbers = numbers.to("cpu", non_blocking=True)
            arrived.record()
            self._waiting = (step, numbers, arrived, rate)
            return
        self._waiting = (step, numbers, None, rate)
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
        s = self._settings
        if not (math.isfinite(found) and math.isfinite(length)) or self._is_spike(length):
            raise _diverged(step, found, length, s.batch)
        self._record(
            Measured(
                step, loss=found, rate=rate, norm=length, seconds=seconds,
                tokens_per_second=s.batch * s.tokens / seconds,
            )
        )  # fmt: skip

    def _is_spike(self, norm: float) -> bool:
        """Return whether a gradient is far longer than those of the last hundred steps."""
        often = self._settings.spike
        if not often:
            return False
        rows = self._journal.rows[-2 * _RECENT :]
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
