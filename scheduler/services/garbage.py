"""Collect garbage in turns of the loop that do nothing else.

Python looks through all objects that survived for long whenever enough new ones did: 20 to 40 ms
with thousands of waiting jobs, within whatever request makes the next object.
"""

from __future__ import annotations

import asyncio
import gc

CHECK_S = 1.0
"""The interval at which it is checked whether a collection is due."""
DUE = 10
"""So many collections of younger objects make one of all due, as Python has it by default."""
_NEVER = 2**30


async def collect_garbage() -> None:
    """Leave out what was made before, as modules, and collect the rest when it is due, for ever."""
    gc.collect()
    gc.freeze()
    youngest, younger, _ = gc.get_threshold()
    gc.set_threshold(youngest, younger, _NEVER)
    while True:
        await asyncio.sleep(CHECK_S)
        if gc.get_count()[2] >= DUE:
            gc.collect()
