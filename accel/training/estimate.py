"""Estimate what a run needs, from its own first steps: all later ones have the same shapes."""

from __future__ import annotations

import resource
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from gpudeck.accel.runtime.capability import ComputeDevice
from gpudeck.accel.runtime.power import read
from gpudeck.accel.training.errors import Refused
from gpudeck.accel.training.loop import Run
from gpudeck.language.text import Bytes, Number, Span, Text, Value, moment, phrase

_TIMED, _TIMED_MS = 6, 2000.0
"""An estimate is due after so many steps that count as speed, and so many milliseconds of them:
where steps wait for the processor, the time of a few of them depends on what else it does."""


def is_due(milliseconds: Sequence[float]) -> bool:
    """Return whether enough steps were timed for an estimate."""
    return len(milliseconds) >= _TIMED and sum(milliseconds) >= _TIMED_MS


class Price(NamedTuple):
    """What a kWh costs."""

    amount: float
    currency: str


def price_in(environment: Mapping[str, str]) -> Price | None:
    """Return the price that the queue tells its jobs; None if it tells none.

    Raises:
        Refused: if it is not a number.
    """
    told = environment.get("GPUDECK_ENERGY_PRICE")
    if told is None:
        return None
    try:
        return Price(float(told), environment.get("GPUDECK_CURRENCY", ""))
    except ValueError:
        raise Refused(
            phrase("GPUDECK_ENERGY_PRICE is {told}, and not a number. Change or remove it",
                   told=told)
        ) from None  # fmt: skip


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

    def text(self, now: float, price: Price | None = None) -> Text:
        """Return the estimate in words, with what the energy costs if its price is known.

        Args:
            now: in seconds since the epoch.
            price: of a kWh.
        """
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
        kwh = self.watts * self.left / 3.6e6
        values["energy"] = Number(kwh, ".3g", "kWh")
        if price is None:
            return phrase(
                "estimate: at most {memory} of {total}, {seconds} a step, {tokens} tokens a second,"
                " {left} left, until {end}, with {energy}",
                **values,
            )
        return phrase(
            "estimate: at most {memory} of {total}, {seconds} a step, {tokens} tokens a second,"
            " {left} left, until {end}, with {energy} for {cost}",
            **values,
            cost=Number(kwh * price.amount, ".2f", price.currency),
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
