"""Keeping a scan within bounds: what it tells meanwhile, when it is to end, and what it could not see."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from assistant.housekeeping.find import shown

SCAN_S = 60.0
"""How long a scan may take where nobody says otherwise."""
_TELL_S = 0.1


class Watch:
    """One a scan. `told` is called with what is being looked at, at most ten times a second; `cancelled` is asked all the time."""

    def __init__(
        self,
        told: Callable[[str], None] = lambda text: None,
        cancelled: Callable[[], bool] = lambda: False,
        seconds: float = SCAN_S,
    ) -> None:
        self._told, self._cancelled = told, cancelled
        self._seconds = seconds
        self._end = time.monotonic() + seconds
        self._next = 0.0
        self.stopped = ""
        """Why it ended before it had seen all; empty where it did not."""
        self.unseen: list[str] = []
        """What could not be looked at, and why; lines for a person."""

    def over(self, path: Path | None = None) -> bool:
        """Whether the scan is to end now; `path`: what it looks at."""
        now = time.monotonic()
        if not self.stopped:
            self.stopped = (
                "cancelled"
                if self._cancelled()
                else f"not done after {self._seconds:.0f} s"
                if now > self._end
                else ""
            )
        if path and now >= self._next:
            self._next = now + _TELL_S
            self._told(shown(path))
        return bool(self.stopped)

    def cannot(self, path: Path, error: Exception) -> None:
        """Something cannot be looked at."""
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        self.unseen.append(f"{shown(path)}: {why}")
