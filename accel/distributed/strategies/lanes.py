"""Queue pieces of work on two streams in turn, so that one piece begins where another one ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor

LANES = 2


class Lanes:
    """Two streams that wait for the current one.

    A single piece stays on the current stream; on a CPU there is nothing to do.
    """

    def __init__(self, device: torch.device, pieces: int) -> None:
        self._device = device
        several = device.type == "cuda" and pieces > 1
        self._streams, self._aside = _streams(device) if several else ([], None)
        self._turn, self._used = 0, False
        for stream in self._streams:
            stream.wait_stream(torch.cuda.current_stream(device))

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Queue on the stream whose turn it is."""
        self._turn += 1
        with (
            torch.cuda.stream(self._streams[self._turn % LANES]) if self._streams else nullcontext()
        ):
            yield

    @contextmanager
    def aside(self, results: Iterable[Tensor]) -> Iterator[None]:
        """Queue small work with the results of a piece on a third stream, which comes before
        kernels that wait for a multiprocessor."""
        if self._aside is None:
            yield
            return
        self._aside.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._aside):
            yield
        for t in results:
            t.record_stream(self._aside)
        self._used = True

    def join(self) -> None:
        """Let the current stream wait for all."""
        if not self._streams:
            return
        current = torch.cuda.current_stream(self._device)
        for stream in self._streams:
            current.wait_stream(stream)
        if self._aside is not None and self._used:
            current.wait_stream(self._aside)


Made = tuple[list[torch.cuda.Stream], torch.cuda.Stream | None]
_MADE: dict[torch.device, Made] = {}


def _streams(device: torch.device) -> Made:
    if device not in _MADE:
        lanes = [torch.cuda.Stream(device) for _ in range(LANES)]  # type: ignore[no-untyped-call]
        _MADE[device] = lanes, torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]
    return _MADE[device]
