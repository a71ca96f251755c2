"""Queue pieces of work on two streams in turn, so that one piece begins where another one ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch

LANES = 2


class Lanes:
    """Two streams that wait for the current one.

    A single piece stays on the current stream, because each event takes the host's time; on a CPU
    there is nothing to do.
    """

    def __init__(self, device: torch.device, pieces: int) -> None:
        self._device = device
        self._streams = _streams(device) if device.type == "cuda" and pieces > 1 else []
        self._turn = 0
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

    def join(self) -> None:
        """Let the current stream wait for both."""
        for stream in self._streams:
            torch.cuda.current_stream(self._device).wait_stream(stream)


_MADE: dict[torch.device, list[torch.cuda.Stream]] = {}


def _streams(device: torch.device) -> list[torch.cuda.Stream]:
    if device not in _MADE:
        _MADE[device] = [torch.cuda.Stream(device) for _ in range(LANES)]  # type: ignore[no-untyped-call]
    return _MADE[device]
