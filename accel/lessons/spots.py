"""Round sizes to steps: problems whose sizes lie in the same steps are at one spot.

Problems of one spot are computed fastest by the same backend, so that one measurement serves all.
"""

from __future__ import annotations

import math

OCTAVE = 4
"""The number of steps in which a size doubles: sizes of one step differ by a fifth at most."""


def step(n: int) -> int:
    """Return the step in which a size lies."""
    return round(OCTAVE * math.log2(max(1, n)))
