"""Notice that a stream waits for a peer that does not come, and end the process.

A stream that waits for a number in memory would wait for ever. As torch does for NCCL, a thread
ends the process then: its results would be wrong, and nobody could cancel the wait.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from typing import NamedTuple

import torch

from gpudeck.accel.distributed.patience import PATIENCE_S

_PERIOD_S = 2.0


class _Wait(NamedTuple):
    reached: torch.cuda.Event
    """When the stream comes to wait."""
    passed: torch.cuda.Event
    """When it goes on."""
    peers: list[int]


class Watch:
    """Look at the waits that were queued, the oldest first."""

    def __init__(self) -> None:
        self._waits: deque[_Wait] = deque()
        self._thread: threading.Thread | None = None

    def add(self, reached: torch.cuda.Event, passed: torch.cuda.Event, peers: list[int]) -> None:
        """Watch a wait for peers between two events of a stream."""
        self._waits.append(_Wait(reached, passed, peers))
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()

    def _run(self) -> None:
        since = time.monotonic()
        while True:
            time.sleep(_PERIOD_S)
            while self._waits and _done(self._waits[0].passed):
                self._waits.popleft()
                since = time.monotonic()
            if not self._waits or not _done(self._waits[0].reached):
                since = time.monotonic()
            elif time.monotonic() - since > PATIENCE_S - 2 * _PERIOD_S:
                _give_up(self._waits[0].peers)


def _done(event: torch.cuda.Event) -> bool:
    return bool(event.query())  # type: ignore[no-untyped-call]


def _give_up(peers: list[int]) -> None:
    """End the process with a message."""
    print(
        f"gpudeck: the ranks {', '.join(map(str, peers))} of this group have sent nothing for"
        f" {PATIENCE_S:.0f} s; this process ends, as its attention cannot be completed",
        file=sys.stderr,
        flush=True,
    )
    os._exit(70)
