"""Decide into how many parts the keys of sequences are cut, so that they fill a GPU."""

from __future__ import annotations

import math


def split(units: int, tiles: int, slots: int, fewest: int) -> int:
    """Return the number of parts of all sequences' keys that takes the least time.

    Args:
        units: the programs without splits.
        tiles: the tiles of keys of a sequence.
        slots: the programs that run at once.
        fewest: the least number of tiles of a part.
    """
    begin, join = 1.5, 2.0  # the time to begin and to combine, in that of a tile; then, for a part

    def cost(parts: int) -> float:
        waves = units * parts / slots
        full = math.ceil(waves) if waves < 4 else waves
        joining = join + parts / 16 if parts > 1 else 0.0
        return full * (math.ceil(tiles / parts) + begin) + joining

    return min(range(1, max(1, min(tiles // fewest, slots)) + 1), key=cost)
