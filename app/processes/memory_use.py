"""Show how much of the memory of the devices is used, and by whom."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtWidgets import QFrame

from gpudeck.app.format.values import device_label, memory
from gpudeck.app.language.texts import tr
from gpudeck.app.processes.device_bars import DeviceBars, DeviceUse
from gpudeck.app.processes.grouping import OTHERS, Part, memory_parts, process_lines
from gpudeck.app.processes.process_rows import MEMORY, ProcessRow, percent
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import (
    Stretch,
    column,
    elided,
    label,
    row,
    set_text,
    show_if_any,
)
from gpudeck.app.widgets.parts_bar import BarPart, PartsBar
from gpudeck.scheduler.protocol.snapshot import Snapshot

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


class MemoryUse(QFrame):
    """Show the memory of each user or group in a bar, and the sums in words."""

    def __init__(self) -> None:
        super().__init__()
        self.setProperty("card", "true")
        self.usage = label(meaning="muted")
        self.bar, self.each = MemoryBar(), DeviceBars()
        self.unlisted = elided(size="small", meaning="muted")
        """Says what the memory is that no listed process uses."""
        title = label(tr("Memory"), strong=True)
        self.setLayout(
            column(
                row(title, self.usage, Stretch(), spacing=theme.S),
                self.bar,
                self.each,
                self.unlisted,
                spacing=0,
                margins=(theme.L, theme.M, theme.L, theme.S),
            )
        )

    def show_use(self, snapshot: Snapshot, rows: tuple[ProcessRow, ...], grouping: str) -> None:
        """Show what these processes use, in the groups of a key of GROUPINGS."""
        readings = [s.reading.values for s in snapshot.devices if s.reading is not None]
        used = sum(values.get("mem_used", 0.0) for values in readings)
        total = sum(memory_totals(snapshot).values())
        self.setVisible(bool(rows) and total > 0)
        lines = process_lines(rows, grouping, frozenset(), MEMORY, True, lambda _: None)
        self.each.show_devices(_device_uses(snapshot))
        self.bar.show_owners(memory_parts(lines, grouping, MOST), used, total)
        loads = [each.process.cpu for each in rows if each.process.cpu is not None]
        parts = [tr("{used} of {total} in use", used=memory(used), total=memory(total))]
        parts[0] += f" ({100 * used / total:.0f} %)" if total else ""
        if loads:
            parts.append(tr("CPU {share} of one core", share=percent(sum(loads))))
        set_text(self.usage, " · ".join(parts))
        hidden = tr(
            "{amount} are not listed: processes of other users or containers, and what the driver "
            "itself needs.",
            amount=memory(self.bar.hidden),
        )
        show_if_any(self.unlisted, hidden if self.bar.hidden else "")


def _device_uses(snapshot: Snapshot) -> list[DeviceUse]:
    """Return the memory of each GPU that reports it."""
    totals = memory_totals(snapshot)
    return [
        DeviceUse(device_label(s.device), s.reading.values.get("mem_used", 0.0), total)
        for s in snapshot.devices
        if s.reading is not None and (total := totals.get(s.device.id)) is not None
    ]


def memory_totals(snapshot: Snapshot) -> dict[str, float]:
    """Return the bytes of the memory of each device that reports it."""
    return {
        state.device.id: state.reading.values["mem_total"]
        for state in snapshot.devices
        if state.reading is not None and "mem_total" in state.reading.values
    }
