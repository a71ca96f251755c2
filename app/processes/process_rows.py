"""List the processes that use a GPU or the CPU, one row a process and device, searched and sorted.

Free of Qt.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from gpudeck.app.format.command_check import module_of, script_of
from gpudeck.app.format.values import NOT_AVAILABLE, device_label, duration, memory
from gpudeck.app.language.texts import tr, tr_decimal, tr_moment, tr_noop
from gpudeck.scheduler.protocol.devices import Detail, Device, Process
from gpudeck.scheduler.protocol.past_processes import EndedProcess


class ProcessColumn(NamedTuple):
    """Describe one column: its title, width in pixels (0 for the rest), alignment and meaning."""

    title: str
    """English, as is `help`."""
    width: int
    right: bool
    help: str


COLUMNS = (
    ProcessColumn(tr_noop("Name"), 150, False, tr_noop("Name of the program")),
    ProcessColumn(tr_noop("PID"), 76, True, tr_noop("Process ID on this machine")),
    ProcessColumn(tr_noop("User"), 90, False, tr_noop("Owner of the process")),
    ProcessColumn(tr_noop("Job"), 76, True, tr_noop("GPU Deck job that the process belongs to")),
    ProcessColumn(tr_noop("Device"), 76, False, tr_noop("GPU, or its MIG instance")),
    ProcessColumn(
        tr_noop("CPU"), 84, True, tr_noop("Load since the last reading; 100 % is one core")
    ),
    ProcessColumn(
        tr_noop("Memory"), 104, True, tr_noop("Memory of the device that the process occupies")
    ),
    ProcessColumn(
        tr_noop("GPU load"),
        84,
        True,
        tr_noop(
            "Share of the GPU's multiprocessors in the last two seconds, sampled by the driver"
        ),
    ),
    ProcessColumn(tr_noop("Age"), 104, True, tr_noop("Time since the process started")),
    ProcessColumn(tr_noop("Started"), 116, True, tr_noop("When the process was first seen")),
    ProcessColumn(tr_noop("Duration"), 104, True, tr_noop("Time in which it used the device")),
    ProcessColumn(tr_noop("Kind"), 84, False, tr_noop("Computes, draws, or both")),
    ProcessColumn(
        tr_noop("Container"), 116, False, tr_noop("Container ID, taken from the control group")
    ),
    ProcessColumn(tr_noop("Command"), 0, False, tr_noop("Command line")),
)
(
    NAME, PID, USER, JOB, DEVICE, CPU, MEMORY, SM_SHARE, AGE, STARTED, RAN, KIND, CONTAINER,
    COMMAND,
) = range(len(COLUMNS))  # fmt: skip
PAST_TITLES = {MEMORY: tr_noop("Peak memory"), SM_SHARE: tr_noop("Mean load")}
"""The titles of columns that hold other values of past processes."""
OF_PRESENT, OF_PAST = frozenset({AGE, KIND, COMMAND}), frozenset({STARTED, RAN})
"""The columns that are known, or make sense, only of present processes, and only of past ones."""
UNKNOWN_COMMAND = tr_noop("not visible: the process belongs to another container or user")
_UNREPORTED = tr_noop("the driver does not report it for this process")
_REASONS = {
    USER: UNKNOWN_COMMAND,
    CPU: tr_noop("not known before the second reading"),
    MEMORY: _UNREPORTED,
    SM_SHARE: _UNREPORTED,
    AGE: UNKNOWN_COMMAND,
}
"""The reason for a value that is not there, by column."""
KINDS = {
    "compute": tr_noop("compute"),
    "graphics": tr_noop("graphics"),
    "both": tr_noop("both"),
    "cpu": "",
}
"""What a process does on its device."""


@dataclass(frozen=True)
class ProcessRow:
    """One process on one device."""

    process: Process
    device: Device | None
    cells: tuple[str, ...]
    """The text of each column."""
    order: tuple[float | str, ...]
    """The value that each column is sorted by."""
    tooltip: str
    searched: str
    """The text that a search looks through, in lower case."""

    @property
    def key(self) -> tuple[str, int, int]:
        """Identify the process on its device, even if the kernel reuses its number."""
        return self.cells[DEVICE], self.process.pid, self.process.ticks


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
        for process in (*detail.processes, *detail.cpu_processes)
    ]
    found = [row for row in rows if all(word in row.searched for word in words)]
    found.sort(key=lambda row: row.key)
    return tuple(sorted(found, key=lambda row: row.order[by], reverse=descending))


def question(process: Process) -> str:
    """Return the question that a person answers before the process is ended."""
    owner = process.user or tr("an unknown user")
    who = f"{process.name} (PID {process.pid}, {owner})"
    if process.job is not None:
        return tr("{who} belongs to job {job}. Cancel the job?", who=who, job=process.job)
    return tr("End {who}? Unsaved work of this process will be lost.", who=who)


def percent(share: float | None) -> str:
    """Format a share of a core or of a GPU."""
    if share is None:
        return NOT_AVAILABLE
    return tr_decimal(f"{share:.1f} %") if 0 < share < 9.95 else f"{share:.0f} %"


def _row(process: Process, device: Device | None, now: float) -> ProcessRow:
    where = device_label(device) if device else NOT_AVAILABLE
    age = now - process.start if process.start else 0.0
    job = "" if process.job is None else str(process.job)
    command = process.command or (process.name if process.name != "?" else tr(UNKNOWN_COMMAND))
    computes = process.kind != "cpu"
    past = isinstance(process, EndedProcess)
    ran = process.last - process.start if isinstance(process, EndedProcess) else age
    cells = (
        _called(process),
        str(process.pid),
        process.user or NOT_AVAILABLE,
        tr("assistant") if process.assistant else job,
        where,
        percent(process.cpu),
        NOT_AVAILABLE if process.memory is None else memory(process.memory),
        ("" if not computes else NOT_AVAILABLE) if process.sm is None else f"{process.sm:.0f} %",
        duration(age) if process.start else NOT_AVAILABLE,
        tr_moment(process.start, now) if past else "",
        duration(ran) if past else "",
        tr(KINDS[process.kind]) if computes else "",
        process.container,
        command,
    )
    order = (
        process.name.lower(),
        float(process.pid),
        process.user,
        float(process.job if process.job is not None else -1),
        float(device.index) if device else -1.0,
        -1.0 if process.cpu is None else process.cpu,
        -1.0 if process.memory is None else process.memory,
        -1.0 if process.sm is None else process.sm,
        age,
        process.start,
        ran,
        process.kind,
        process.container,
        command.lower(),
    )
    lines = (_explained(at, cell) for at, cell in enumerate(cells) if cell)
    searched = " ".join((*cells, process.name)).lower()
    return ProcessRow(process, device, cells, order, "\n".join(lines), searched)


def _called(process: Process) -> str:
    """Return the program with the script or module that it runs: "train.py · python".

    Of a past process, whose command is not kept, its job stands for the script.
    """
    if process.name == "?":
        return NOT_AVAILABLE
    if isinstance(process, EndedProcess) and process.job_name:
        return f"{process.job_name} · {process.name}"
    run = script_name(process)
    return f"{run} · {process.name}" if run else process.name


def script_name(process: Process) -> str:
    """Return the script or module that a process runs; empty where it is a program of its own."""
    argv = process.command.split()
    return Path(script_of(argv)).name or module_of(argv).rpartition(".")[2]


def _explained(column: int, cell: str) -> str:
    """Return a line of the tooltip: the value, or why there is none."""
    why = _REASONS.get(column) if cell == NOT_AVAILABLE else None
    value = f"{cell} ({tr(why)})" if why else cell
    return tr("{caption}: {value}", caption=tr(COLUMNS[column].title), value=value)
