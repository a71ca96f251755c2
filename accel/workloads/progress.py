"""Progress on standard output, one JSON object a line:

    {"gpudeck": "progress", "done": 2.5, "total": 10.5, "note": "timing", "flops": 1.2e13, "time": 1760000000.0}

`done` and `total` are seconds of warm-up and timed loop; `flops` counts what is truly done since the job began.
"""

from __future__ import annotations

import json
import time

WARM_UP_S = 0.5
"""Long enough for a GPU to raise its clocks; a quarter of the timed loop where that is short."""


class Progress:
    """How far the job is. Neither `done` nor `flops` ever goes back."""

    def __init__(self, seconds: float) -> None:
        self.plan(seconds)
        self._note = ""
        self._done = self._begins = 0.0
        self._flops = self._flops_before = 0.0

    def plan(self, seconds: float) -> None:
        """The timed loop will run for `seconds`."""
        self.seconds = seconds
        self.warm_up_s = min(WARM_UP_S, seconds / 4)
        self._total = self.seconds + self.warm_up_s

    def stage(self, note: str, *, begins: float = 0.0, flops_before: float = 0.0) -> None:
        """A stage begins, planned for `begins` seconds; `flops_before` more were done since the last stage."""
        self._note, self._begins = note, begins
        self._flops += flops_before
        self._flops_before = self._flops
        self._say(begins)

    def advance(self, elapsed: float, flops: float) -> None:
        """Seconds and FLOPs since this stage began."""
        self._flops = self._flops_before + flops
        self._say(self._begins + elapsed)

    def end(self) -> None:
        """All is done."""
        self._note = "done"
        self._say(self._total)

    def _say(self, done: float) -> None:
        self._done = min(max(self._done, done), self._total)
        line = {"gpudeck": "progress", "done": round(self._done, 3), "total": self._total, "note": self._note, "flops": self._flops}
        print(json.dumps({**line, "time": time.time()}), flush=True)
