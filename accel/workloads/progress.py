"""Print progress on standard output, one JSON object per line:

    {"gpudeck": "progress", "done": 2.5, "total": 10.5, "note": "timing", "flops": 1.2e13,
     "time": 1760000000.0}

`done` and `total` are in the unit of the workload's plan, mostly seconds; `flops` counts the
operations since the job began.
"""

from __future__ import annotations

import json
import time

WARM_UP_S = 0.5
"""Long enough for a GPU to raise its clocks."""


def warm_up(seconds: float) -> float:
    """Return the seconds of warm-up before a timed loop of `seconds`."""
    return min(WARM_UP_S, seconds / 4)


class Progress:
    """Report how far the job is; `done` and `flops` never decrease."""

    def __init__(self, total: float = 1.0) -> None:
        self._total = total
        self._note = ""
        self._done = self._begins = 0.0
        self._flops = self._flops_before = 0.0

    def plan(self, total: float) -> None:
        """Set how much there is to do."""
        self._total = total

    def stage(self, note: str, *, begins: float = 0.0, flops_before: float = 0.0) -> None:
        """Begin a stage.

        Args:
            note: the name of the stage.
            begins: how much of the plan is done.
            flops_before: the operations since the last stage that were not reported.
        """
        self._note, self._begins = note, begins
        self._flops += flops_before
        self._flops_before = self._flops
        self._print(begins)

    def advance(self, elapsed: float, flops: float, detail: str = "") -> None:
        """Report what was done of the plan, and the FLOPs, since this stage began, and more about
        it."""
        self._flops = self._flops_before + flops
        self._print(self._begins + elapsed, detail)

    def end(self) -> None:
        """Report that everything is done."""
        self._note = "done"
        self._print(self._total)

    def _print(self, done: float, detail: str = "") -> None:
        self._done = min(max(self._done, done), self._total)
        line = {
            "gpudeck": "progress",
            "done": round(self._done, 3),
            "total": self._total,
            "note": f"{self._note}, {detail}" if detail else self._note,
            "flops": self._flops,
        }
        print(json.dumps({**line, "time": time.time()}), flush=True)
