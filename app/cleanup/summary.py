"""What may be cleaned up, in words and rows: for the command line and the window."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from app.format.values import memory, plural
from assistant.housekeeping import KINDS, TITLES, Finding, Kind, Skipped
from scheduler.protocol.progress import printable

_HOUR, _DAY = 3600.0, 86400.0


@dataclass(frozen=True)
class Group:
    """All finds of a kind, the largest first."""

    kind: Kind
    finds: tuple[Finding, ...]

    @property
    def title(self) -> str:
        return f"{TITLES[self.kind]} ({len(self.finds)})"

    @property
    def bytes(self) -> int:
        return sum(find.bytes for find in self.finds)


def groups(finds: Iterable[Finding]) -> tuple[Group, ...]:
    """By kind; the largest first."""
    of_kind: dict[Kind, list[Finding]] = {kind: [] for kind in KINDS}
    for find in finds:
        of_kind[find.kind].append(find)
    made = (
        Group(kind, tuple(sorted(found, key=lambda f: -f.bytes)))
        for kind, found in of_kind.items()
        if found
    )
    return tuple(sorted(made, key=lambda group: -group.bytes))


def age(seconds: float) -> str:
    """5 h, 3 days."""
    return (
        plural(int(seconds // _DAY), "day")
        if seconds >= 2 * _DAY
        else f"{max(seconds, 0) / _HOUR:.0f} h"
    )


def told(count: int, size: float) -> str:
    """3 things, 1.2 GiB."""
    return f"{plural(count, 'thing')}, {memory(size)}"


def counted(finds: Iterable[Finding]) -> str:
    """As `told`, of what can be moved: a process has a GPU's memory."""
    sizes = [find.bytes for find in finds if find.kind != "process"]
    return told(len(sizes), sum(sizes))


def stays(left: Skipped) -> str:
    """Why something was not moved, or not put back."""
    return printable(f"{left.find.shown}: {left.why}")
