"""Estimate what a run needs, from its own first steps: all later ones have the same shapes."""

from __future__ import annotations

import resource
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from gpudeck.accel.runtime.capability import ComputeDevice
from gpudeck.accel.runtime.power import read
from gpudeck.accel.training.loop import Run
from gpudeck.language.text import Bytes, Number, Span, Text, Value, moment, phrase


@dataclass(frozen=True)
class Estimate:
    """What a run needs, as its first steps and its first held-out loss needed it."""

    memory: int
    """The most bytes: of the GPU, with what torch keeps in reserve; on a CPU, of the process."""
    total: int
    """The bytes that there are."""
    seconds: float
    """The median of a step; 0 if none was timed."""
    tokens_per_second: float
    left: float
    """The seconds of the steps that are left, without held-out losses and checkpoints."""
    watts: float | None
    """The power of the GPUs when the estimate was made, as if all took as much as that of this
    process; None if it is not known."""

    def text(self, now: float) -> Text:
        """Return the estimate in words; `now` is in seconds since the epoch."""
        end = moment(now + self.left, now)
        values: dict[str, Value] = {
            "memory": Bytes(self.memory),
            "total": Bytes(self.total),
            "seconds": Number(self.seconds, ".3g", "s"),
            "tokens": Number(self.tokens_per_second, ",.0f"),
            "left": Span(self.left),
            "end": end,
        }
        if self.watts is None:
            return phrase(
                "estimate: at most {memory} of {total}, {seconds} a step, {tokens} tokens a second,"
                " {left} left, until {end}",
                **values,
            )
        return phrase(
            "estimate: at most {memory} of {total}, {seconds} a step, {tokens} tokens a second,"
            " {left} left, until {end}, with {energy}",
            **values,
            energy=Number(self.watts * self.left / 3.6e6, ".3g", "kWh"),
        )


def estimate_of(run: Run, device: ComputeDevice, milliseconds: Sequence[float]) -> Estimate:
    """Return the estimate after some steps.

    Args:
        run: the run, as far as it is.
        device: what it runs on.
        milliseconds: of the steps that count as speed.
    """
    seconds = statistics.median(milliseconds) / 1e3 if milliseconds else 0.0
    tokens = run.settings.batch * run.settings.tokens
    watts = read(device.torch_device)[1] if device.kind == "cuda" else None
    return Estimate(
        *_memory(device),
        seconds,
        tokens / seconds if seconds else 0.0,
        seconds * (run.settings.steps - run.step),
        None if watts is None else watts * run.ranks.count,
    )


def _memory(device: ComputeDevice) -> tuple[int, int]:
    """Return the most bytes that were used, and those that there are."""
    if device.kind == "cuda":
        free, total = torch.cuda.mem_get_info(device.torch_device)
        held = torch.cuda.memory_reserved(device.torch_device)
        # what is used beside torch's own memory: the context, and other programs
        beside = total - free - held
        return torch.cuda.max_memory_reserved(device.torch_device) + beside, total
    import psutil

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return peak, psutil.virtual_memory().total
