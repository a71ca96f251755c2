"""Put the processes of a user, a job, a container or a program into groups. Free of Qt."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gpudeck.app.format.values import NOT_AVAILABLE, memory
from gpudeck.app.language.texts import tr, tr_count, tr_noop
from gpudeck.app.processes.process_rows import (
    AGE,
    COLUMNS,
    CONTAINER,
    CPU,
    JOB,
    MEMORY,
    NAME,
    PID,
    SM_SHARE,
    USER,
    ProcessRow,
    percent,
)

GROUPINGS: dict[str, tuple[int, str] | None] = {
    tr_noop("Group: none"): None,
    tr_noop("By user"): (USER, tr_noop("no known user")),
    tr_noop("By job"): (JOB, tr_noop("no job")),
    tr_noop("By container"): (CONTAINER, tr_noop("no container")),
    tr_noop("By program"): (NAME, tr_noop("no known program")),
}
"""The column that is grouped by, and the name of the group of those without a value."""
OTHERS = tr_noop("others")
"""The name of the parts of a memory bar that are not named."""
FOLDED, UNFOLDED, INDENT = "▸", "▾", "      "


@dataclass(frozen=True)
class Line:
    """One line of the table: a process, or a group of processes."""

    key: object
    cells: tuple[str, ...]
    tooltip: str
    load: float
    """Percent of one core."""
    memory: float
    """Bytes."""
    share: float | None
    """The share of the device's memory; None if it is not known."""
    row: ProcessRow | None = None
    """The process; None for a group."""
    group: str = ""
    """The name of the group that this line heads, or that the process is in."""


def process_lines(
    rows: Sequence[ProcessRow],
    grouping: str,
    folded: frozenset[str],
    by: int,
    descending: bool,
    total: Callable[[ProcessRow], float | None],
) -> tuple[Line, ...]:
    """Return the lines of the table, of processes that are sorted already.

    Args:
        grouping: A key of GROUPINGS.
        folded: The names of the groups whose processes are hidden.
        by: Index of the column that is sorted by.
        total: Returns the bytes of the memory of a process's device.
    """
    chosen = GROUPINGS[grouping]
    if chosen is None:
        return tuple(_line(row, total(row)) for row in rows)
    column, without = chosen
    groups: dict[str, list[ProcessRow]] = {}
    for row in rows:
        cell = row.cells[column]
        named = tr("Job {job}", job=cell) if column == JOB and cell.isdecimal() else cell
        name = named if cell not in ("", NOT_AVAILABLE) else tr(without)
        groups.setdefault(name, []).append(row)
    heads = [
        (name, _head(name, members, name in folded, total)) for name, members in groups.items()
    ]
    heads.sort(key=lambda pair: pair[0])
    heads.sort(key=lambda pair: _order(pair[1], groups[pair[0]], by), reverse=descending)
    lines: list[Line] = []
    for name, head in heads:
        lines.append(head)
        if name not in folded:
            lines += [_line(row, total(row), name) for row in groups[name]]
    return tuple(lines)


def _order(head: Line, members: Sequence[ProcessRow], by: int) -> tuple[float, str]:
    """Return what a group is sorted by: a sum, the oldest age, or its name."""
    if by in (CPU, SM_SHARE, MEMORY):
        return sum(max(float(row.order[by]), 0.0) for row in members), ""
    if by == AGE:
        return max(float(row.order[AGE]) for row in members), ""
    if by == PID:
        return float(len(members)), ""
    return 0.0, head.group.lower()


def _line(row: ProcessRow, total: float | None, group: str = "") -> Line:
    cells = row.cells
    if group:
        cells = (INDENT + cells[NAME], *cells[1:])
    share = row.process.memory / total if row.process.memory is not None and total else None
    return Line(
        row.key,
        cells,
        row.tooltip,
        row.process.cpu or 0.0,
        row.process.memory or 0.0,
        share,
        row,
        group,
    )


def _head(
    name: str,
    members: Sequence[ProcessRow],
    folded: bool,
    total: Callable[[ProcessRow], float | None],
) -> Line:
    """Return the line of a group, with the sums of its processes."""
    loads = _known(row.process.cpu for row in members)
    sizes = _known(row.process.memory for row in members)
    shares = _known(row.process.sm for row in members)
    wholes = {row.key[0]: total(row) for row in members}
    whole = sum(known) if len(known := _known(wholes.values())) == len(wholes) else 0.0
    texts = {
        NAME: f"{FOLDED if folded else UNFOLDED}  {name}",
        PID: f"×{len(members)}",
        CPU: percent(sum(loads) if loads else None),
        MEMORY: memory(sum(sizes)) if sizes else NOT_AVAILABLE,
        SM_SHARE: f"{sum(shares):.0f} %" if shares else "",
    }
    cells = tuple(texts.get(at, "") for at in range(len(COLUMNS)))
    return Line(
        f"group {name}",
        cells,
        tr_count("{name}: {n} process", "{name}: {n} processes", len(members), name=name),
        sum(loads),
        sum(sizes),
        sum(sizes) / whole if whole and sizes else None,
        group=name,
    )


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


@dataclass(frozen=True)
class Part:
    """One part of a memory bar."""

    name: str
    size: float
    """Bytes."""


def memory_parts(lines: Sequence[Line], grouping: str, most: int) -> tuple[Part, ...]:
    """Return who occupies most memory, largest first: the groups, or else the users."""
    sizes: dict[str, float] = {}
    if GROUPINGS[grouping] is not None:
        sizes = {line.group: line.memory for line in lines if line.row is None}
    else:
        for line in lines:
            assert line.row is not None, "there are no groups"
            user = line.cells[USER]
            user = tr("no known user") if user == NOT_AVAILABLE else user
            sizes[user] = sizes.get(user, 0.0) + line.memory
    largest = sorted(
        (Part(name, size) for name, size in sizes.items() if size),
        key=lambda part: (-part.size, part.name),
    )
    rest = sum(part.size for part in largest[most:])
    return (*largest[:most], *((Part(tr(OTHERS), rest),) if rest else ()))
