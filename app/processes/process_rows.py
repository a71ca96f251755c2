"""The processes that use a GPU, as a table: one row a process and GPU; searched and sorted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from app.format.values import NOT_AVAILABLE, device_label, duration, memory
from scheduler.protocol.devices import Detail, Device, Process


class Column(NamedTuple):
    title: str
    width: int
    """Pixels; 0: what is left."""
    right: bool
    meaning: str


COLUMNS = (
    Column("Device", 76, False, "the GPU, and the MIG instance where it is divided"),
    Column("PID", 84, True, "its number on this machine"),
    Column("User", 110, False, "who runs it"),
    Column("Job", 60, True, "the job of ours that it belongs to"),
    Column("Memory", 100, True, "device memory it has allocated"),
    Column(
        "SM",
        66,
        True,
        "share of the GPU's multiprocessors in the last two seconds, by the driver's samples",
    ),
    Column("Since", 110, True, "how long ago it started"),
    Column("Kind", 90, False, "whether it computes, draws, or both"),
    Column("Container", 120, False, "id of its container, from its control group"),
    Column("Command", 0, False, "its command line"),
)
MEMORY, SHARE = 4, 5
ELSEWHERE = "a process of another container or user: only its number is known"


@dataclass(frozen=True)
class Row:
    """One process on one GPU."""

    process: Process
    cells: tuple[str, ...]
    """By column."""
    order: tuple[float | str, ...]
    """What each column is sorted by."""
    tooltip: str
    text: str
    """What a search looks through, in lower case."""

    @property
    def key(self) -> tuple[str, int, int]:
        """The same process on the same GPU."""
        return self.cells[0], self.process.pid, self.process.ticks


def rows(
    details: Iterable[Detail],
    devices: Iterable[Device],
    now: float,
    search: str = "",
    by: int = MEMORY,
    descending: bool = True,
) -> tuple[Row, ...]:
    """Those in which every word of `search` is found, sorted by column `by`. `now`: seconds since the epoch."""
    known = {device.id: device for device in devices}
    words = search.lower().split()
    made = [
        _row(process, known.get(detail.device), now)
        for detail in details
        for process in detail.processes
    ]
    chosen = [row for row in made if all(word in row.text for word in words)]
    return tuple(
        sorted(
            sorted(chosen, key=lambda row: row.key),
            key=lambda row: row.order[by],
            reverse=descending,
        )
    )


def question(process: Process) -> str:
    """What a person is asked before it is ended."""
    whom = f"{process.name} (pid {process.pid}) of {process.user or 'somebody unknown'}"
    if process.job is not None:
        return f"{whom} belongs to job {process.job}: cancel that job?"
    return f"End {whom}? What it has not saved is lost."


def _row(process: Process, device: Device | None, now: float) -> Row:
    where = device_label(device) if device else "?"
    age = now - process.start if process.start else 0.0
    command = process.command or (process.name if process.name != "?" else ELSEWHERE)
    cells = (
        f"{where} · {process.part}" if process.part else where,
        str(process.pid),
        process.user or "?",
        "assistant" if process.assistant else "" if process.job is None else str(process.job),
        NOT_AVAILABLE if process.memory is None else memory(process.memory),
        NOT_AVAILABLE if process.sm is None else f"{process.sm:.0f} %",
        duration(age) if process.start else "?",
        process.kind,
        process.container,
        command,
    )
    order = (
        float(device.index) if device else -1.0,
        float(process.pid),
        process.user,
        float(process.job if process.job is not None else -1),
        -1.0 if process.memory is None else process.memory,
        -1.0 if process.sm is None else process.sm,
        age,
        process.kind,
        process.container,
        command.lower(),
    )
    told = (f"{column.title}: {cell}" for column, cell in zip(COLUMNS, cells, strict=True) if cell)
    return Row(process, cells, order, "\n".join(told), " ".join((*cells, process.name)).lower())
