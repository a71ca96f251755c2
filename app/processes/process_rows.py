"""List the processes that use a GPU, one row a process and GPU, searched and sorted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from app.format.values import NOT_AVAILABLE, device_label, duration, memory
from scheduler.protocol.devices import Detail, Device, Process


class ProcessColumn(NamedTuple):
    """Describe one column: its title, width in pixels (0 for the rest), alignment and meaning."""

    title: str
    width: int
    right: bool
    help: str


COLUMNS = (
    ProcessColumn("Device", 76, False, "GPU, and its MIG instance if it is divided"),
    ProcessColumn("PID", 84, True, "Process ID on this machine"),
    ProcessColumn("User", 110, False, "Owner of the process"),
    ProcessColumn("Job", 60, True, "GPU Deck job that the process belongs to"),
    ProcessColumn("Memory", 100, True, "Device memory that the process has allocated"),
    ProcessColumn(
        "SM",
        66,
        True,
        "Share of the GPU's multiprocessors in the last two seconds, sampled by the driver",
    ),
    ProcessColumn("Age", 110, True, "Time since the process started"),
    ProcessColumn("Kind", 90, False, "Computes, draws, or both"),
    ProcessColumn("Container", 120, False, "Container ID, taken from the control group"),
    ProcessColumn("Command", 0, False, "Command line"),
)
MEMORY, SM_SHARE = 4, 5
UNKNOWN_COMMAND = "not visible: the process belongs to another container or user"


@dataclass(frozen=True)
class ProcessRow:
    """One process on one GPU."""

    process: Process
    cells: tuple[str, ...]
    """The text of each column."""
    order: tuple[float | str, ...]
    """The value that each column is sorted by."""
    tooltip: str
    searched: str
    """The text that a search looks through, in lower case."""

    @property
    def key(self) -> tuple[str, int, int]:
        """Identify the process on its GPU, even if the kernel reuses its number."""
        return self.cells[0], self.process.pid, self.process.ticks


def process_rows(
    details: Iterable[Detail],
    devices: Iterable[Device],
    now: float,
    search: str = "",
    by: int = MEMORY,
    descending: bool = True,
) -> tuple[ProcessRow, ...]:
    """Return the processes whose texts contain every word of `search`, sorted.

    Args:
        now: Seconds since the epoch.
        by: Index of the column to sort by.
    """
    known = {device.id: device for device in devices}
    words = search.lower().split()
    rows = [
        _row(process, known.get(detail.device), now)
        for detail in details
        for process in detail.processes
    ]
    found = [row for row in rows if all(word in row.searched for word in words)]
    found.sort(key=lambda row: row.key)
    return tuple(sorted(found, key=lambda row: row.order[by], reverse=descending))


def question(process: Process) -> str:
    """Return the question that a person answers before the process is ended."""
    owner = process.user or "an unknown user"
    who = f"{process.name} (PID {process.pid}, {owner})"
    if process.job is not None:
        return f"{who} belongs to job {process.job}. Cancel the job?"
    return f"End {who}? Unsaved work of this process will be lost."


def _row(process: Process, device: Device | None, now: float) -> ProcessRow:
    where = device_label(device) if device else "?"
    age = now - process.start if process.start else 0.0
    job = "" if process.job is None else str(process.job)
    command = process.command or (process.name if process.name != "?" else UNKNOWN_COMMAND)
    cells = (
        f"{where} · {process.part}" if process.part else where,
        str(process.pid),
        process.user or "?",
        "assistant" if process.assistant else job,
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
    lines = (f"{column.title}: {cell}" for column, cell in zip(COLUMNS, cells, strict=True) if cell)
    searched = " ".join((*cells, process.name)).lower()
    return ProcessRow(process, cells, order, "\n".join(lines), searched)
