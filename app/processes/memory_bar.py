"""Show as one bar who occupies the memory of the devices, and what is free."""

from __future__ import annotations

from collections.abc import Sequence

from gpudeck.app.language.texts import tr
from gpudeck.app.processes.grouping import OTHERS, Part
from gpudeck.app.widgets.parts_bar import BarPart, PartsBar

MOST = 5
"""The most parts that are named; the others are one part."""
_LEAST_HIDDEN = 200
"""The least of what no listed process uses that is shown: one part of so many in use."""


class MemoryBar(PartsBar):
    """Show a part for each user or group, for what belongs to no listed process, and what is
    free."""

    def __init__(self) -> None:
        super().__init__(tr("Memory by owner"))
        self.hidden = 0.0
        """Bytes in use that belong to no listed process."""

    def show_owners(self, parts: Sequence[Part], used: float, total: float) -> None:
        """Show these parts of a memory of `total` bytes, of which `used` are in use."""
        rest = used - sum(part.size for part in parts)
        self.hidden = rest if rest > used / _LEAST_HIDDEN else 0.0
        unlisted, others = tr("not listed"), tr(OTHERS)
        shown = [*parts, *((Part(unlisted, self.hidden),) if self.hidden else ())]
        grey = (others, unlisted)
        taken = [BarPart(p.name, p.size, "muted" if p.name in grey else "") for p in shown]
        free = [BarPart(tr("free"), total - used, "line")] if total > used else []
        self.show_parts([*taken, *free])
