"""Time contenders in turns on a GPU, with the SM clock at which each of them ran."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

import torch

from gpudeck.accel.runtime.launch import prepare
from gpudeck.accel.runtime.sm_clock import clock_call
from gpudeck.accel.runtime.timing import Measurement, measure_in_turn

_MOST = 4096


class TurnClocks:
    """Sample the SM clock at the end of each turn, in the stream of its calls.

    A sample begins when the last call of a turn has ended and takes 0.2 ms, in which the clock
    stays what the calls made of it; the next turn's first call, which waits for it, is not counted.
    """

    def __init__(self, contenders: int, device: torch.device) -> None:
        """Compile the kernel that counts cycles."""
        self._rows = torch.zeros(_MOST, 4, dtype=torch.int64, device=device)
        self._launch = prepare(clock_call(), device)
        self._of: list[int] = []
        self._contenders = contenders

    def sample(self, contender: int) -> None:
        """Launch one sample; pass it to `measure_in_turn` as `during`."""
        if len(self._of) < _MOST:
            self._launch(self._rows[len(self._of)])
            self._of.append(contender)

    def mhz(self) -> list[float]:
        """Return the median clock of each contender."""
        taken = self._rows[: len(self._of)].tolist()
        found: list[list[float]] = [[] for _ in range(self._contenders)]
        for contender, (cycles, nanoseconds, *_) in zip(self._of, taken, strict=True):
            found[contender].append(cycles * 1e3 / nanoseconds)
        return [statistics.median(of) for of in found]


def in_turn(
    calls: Sequence[Callable[[], object]], seconds: float, device: torch.device
) -> list[tuple[Measurement, float]]:
    """Return each contender's measurement and its SM clock in MHz; see `measure_in_turn`."""
    clocks = TurnClocks(len(calls), device)
    loops = measure_in_turn(calls, seconds, device, lambda *_: None, clocks.sample)
    return list(zip(loops, clocks.mhz(), strict=True))
