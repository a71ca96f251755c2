"""List the processes that use a GPU, or the CPU of a machine without one."""

from __future__ import annotations

from argparse import Namespace

from gpudeck.app.cli.output import print_json, print_line, print_table
from gpudeck.app.processes.process_rows import (
    AGE,
    COLUMNS,
    COMMAND,
    CONTAINER,
    CPU,
    DEVICE,
    JOB,
    KIND,
    MEMORY,
    PID,
    SM_SHARE,
    USER,
    process_rows,
)
from gpudeck.scheduler.client import Client

_ON_GPU = (DEVICE, PID, USER, JOB, MEMORY, SM_SHARE, AGE, KIND, CONTAINER, COMMAND)
_ON_CPU = (PID, USER, JOB, CPU, MEMORY, AGE, CONTAINER, COMMAND)


def run(args: Namespace) -> int:
    """Print a row for each process on each device."""
    with Client() as client:
        details, snapshot = client.details(), client.snapshot()
    if args.json:
        print_json(
            [{"device": d.device, "processes": (*d.processes, *d.cpu_processes)} for d in details]
        )
        return 0
    only_cpu = all(not detail.processes for detail in details)
    shown = process_rows(
        details,
        [state.device for state in snapshot.devices],
        snapshot.time,
        by=CPU if only_cpu else MEMORY,
    )
    if shown:
        columns = _ON_CPU if only_cpu else _ON_GPU
        right = [at for at, column in enumerate(columns) if COLUMNS[column].right]
        heading = tuple(COLUMNS[column].title.upper() for column in columns)
        print_table([heading, *(tuple(r.cells[c] for c in columns) for r in shown)], right)
    elif {state.device.kind for state in snapshot.devices} == {"replay"}:
        print_line("This is a REPLAY. Processes are not recorded.")
    else:
        print_line("No process uses a GPU.")
    return 0
