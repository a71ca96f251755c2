"""Group, count and describe what may be cleaned up, for the command line and the window."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gpudeck.app.format.values import memory
from gpudeck.app.language.texts import tr, tr_count, tr_text
from gpudeck.assistant.housekeeping import KINDS, TITLES, Finding, Kind, Skipped
from gpudeck.scheduler.protocol.progress import printable

_HOUR, _DAY = 3600.0, 86400.0


@dataclass(frozen=True)
class FindingGroup:
    """All findings of a kind, largest first."""

    kind: Kind
    finds: tuple[Finding, ...]

    @property
    def title(self) -> str:
        """Return the kind with the number of its findings."""
        return f"{tr(TITLES[self.kind])} ({len(self.finds)})"

    @property
    def bytes(self) -> int:
        """Return the size of all findings."""
        return sum(find.bytes for find in self.finds)


def groups(finds: Iterable[Finding]) -> tuple[FindingGroup, ...]:
    """Group findings by kind, largest group first."""
    of_kind: dict[Kind, list[Finding]] = {kind: [] for kind in KINDS}
    for find in finds:
        of_kind[find.kind].append(find)
    made = (
        FindingGroup(kind, tuple(sorted(found, key=lambda f: -f.bytes)))
        for kind, found in of_kind.items()
        if found
    )
    return tuple(sorted(made, key=lambda group: -group.bytes))


def age(seconds: float) -> str:
    """Format an age: 5 h, 3 days."""
    if seconds >= 2 * _DAY:
        return tr_count("{n} day", "{n} days", int(seconds // _DAY))
    return f"{max(seconds, 0) / _HOUR:.0f} h"


def items_and_size(count: int, size: float) -> str:
    """Format a number of items and their size: 3 items, 1.2 GiB."""
    return tr_count("{n} item, {size}", "{n} items, {size}", count, size=memory(size))


def count_findings(finds: Iterable[Finding]) -> str:
    """Format the number and size of what can be moved, which excludes processes."""
    sizes = [find.bytes for find in finds if find.kind != "process"]
    return items_and_size(len(sizes), sum(sizes))


def skip_reason(skipped: Skipped) -> str:
    """Explain why an item was not moved or not put back."""
    return printable(f"{skipped.find.shown}: {tr_text(skipped.why)}")
