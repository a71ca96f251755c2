"""How long which detail of the history is kept.

A chart is a thousand pixels wide at most, so a tier has to answer for about a thousand steps of the longest span it is for: an hour as it
was read, a day by 10 s (8640), a week by the minute (10080), thirty days by ten minutes (4320). Each step is a multiple of the one
before, so that a tier is made from the one below it, and means stay exact.
"""

from __future__ import annotations

from typing import NamedTuple


class Tier(NamedTuple):
    step: float
    """Seconds that one row stands for; 0: as it was read."""
    keep: float
    """Seconds."""


HOUR, DAY = 3600.0, 86400.0
TIERS = (Tier(0, HOUR), Tier(10, DAY), Tier(60, 7 * DAY), Tier(600, 30 * DAY))
LAST = len(TIERS) - 1
BLOCK_ROWS = 360
"""Rows of a block of a decimated tier: 1 h, 6 h, 2.5 days. Small enough to be written again while it fills, large enough to compress."""
GAP_STEPS = 2.5
"""Readings further apart than this many steps (or intervals, as they were read) have a gap between them."""


def tier_for(width: float) -> int:
    """The coarsest tier that still shows steps of `width` seconds."""
    return max(i for i, tier in enumerate(TIERS) if tier.step <= max(width, 0.0))
