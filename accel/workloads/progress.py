"""Progress on standard output, one JSON object a line:

    {"gpudeck": "progress", "done": 2.5, "total": 10.5, "note": "timing", "flops": 1.2e13, "time": 1760000000.0}

`done` and `total` count whatever the workload plans in, mostly seconds; `flops` counts what is truly done since the job began.
"""

from __future__ import annotations

import json
import time

WARM_UP_S = 0.5
"""Long enough for a GPU to raise its clocks; a quarter of the timed loop where that is short."""


def warm_up(seconds: float) -> float:
    """How long to warm up for a timed loop of `seconds`."""
    return min(WARM_UP_S, seconds / 4)


class Progress:
    """How far the job is. Neither `done` nor `flops` ever goes back."""

    def __init__(self, total: float = 1.0) -> None:
        self._total = total
        self._note = ""
        self._done = self._begins = 0.0
        self._flops = self._flops_before = 0.0

    def plan(self, total: float) -> None:
        """How much there is to do."""
        self._total = total

    def stage(self, note: str, *, begins: float = 0.0, flops_before: float = 0.0) -> None:
        """A stage begins where `begins` of the plan is done; `flops_before` more were computed since the last stage."""
        self._note, self._begins = note, begins
        self._flops += flops_before
        self._flops_before = self._flops
        self._say(begins)

    def advance(self, elapsed: float, flops: float) -> None:
        """Of the plan, and of FLOPs, since this stage began."""
        self._flops = self._flops_before + flops
        self._say(self._begins + elapsed)

    def end(self) -> None:
        """All is done."""
        self._note = "done"
        self._say(self._total)

    def _say(self, done: float) -> None:
        self._done = min(max(self._done, done), self._total)
        line = {
            "gpudeck": "progress",
            "done": round(self._done, 3),
            "total": self._total,
            "note": self._note,
            "flops": self._flops,
        }
        print(json.dumps({**line, "time": time.time()}), flush=True)
