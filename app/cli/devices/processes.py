"""List the processes that use a GPU, or did so lately, or the CPU of a machine without one."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from gpudeck.app.cli import arguments
from gpudeck.app.cli.output import print_list
from gpudeck.app.format.job_rows import device_labels
from gpudeck.app.format.values import NOT_AVAILABLE, clock, memory
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
    percent,
    process_rows,
)
from gpudeck.scheduler.client import Client

_ON_GPU = (DEVICE, PID, USER, JOB, MEMORY, SM_SHARE, AGE, KIND, CONTAINER, COMMAND)
_ON_CPU = (PID, USER, JOB, CPU, MEMORY, AGE, CONTAINER, COMMAND)
_HEADING = ("DEVICE", "PID", "NAME", "USER", "JOB", "MEMORY", "GPU LOAD", "FIRST", "LAST")


def add_arguments(parser: ArgumentParser) -> None:
    """Add the begin of the time."""
    parser.add_argument(
        "--since",
        type=arguments.duration,
        metavar="TIME",
        help="list the processes that used a GPU since this long ago, e.g. 2h or 7d, also those "
        "that have ended, with the most memory and the mean load of each in that time",
    )


def run(args: Namespace) -> None:
    """Print a row for each process on each device."""
    if args.since is None:
        _print_present(args)
    else:
        _print_past(args)


def _print_present(args: Namespace) -> None:
    with Client() as client:
        details, snapshot = client.details(), client.snapshot()
    found = [{"device": d.device, "processes": (*d.processes, *d.cpu_processes)} for d in details]
    only_cpu = all(not detail.processes for detail in details)
    shown = process_rows(
        details,
        [state.device for state in snapshot.devices],
        snapshot.time,
        by=CPU if only_cpu else MEMORY,
    )
    columns = _ON_CPU if only_cpu else _ON_GPU
    replay = {state.device.kind for state in snapshot.devices} == {"replay"}
    print_list(
        args, found, [COLUMNS[column].title.upper() for column in columns],
        [[row.cells[column] for column in columns] for row in shown],
        "This is a REPLAY. Processes are not recorded." if replay else "No process uses a GPU.",
        right=[at for at, column in enumerate(columns) if COLUMNS[column].right],
    )  # fmt: skip


def _print_past(args: Namespace) -> None:
    """Print how each process used its device in the time, the newest first."""
    with Client() as client:
        snapshot = client.snapshot()
        found = client.processes(snapshot.time - args.since)
    names = device_labels(snapshot)
    rows = [
        (
            names.get(one.use.device, one.use.device),
            str(one.use.pid),
            one.use.name,
            one.use.user or NOT_AVAILABLE,
            "" if one.use.job is None else str(one.use.job),
            NOT_AVAILABLE if one.memory is None else memory(one.memory),
            percent(one.load),
            clock(one.first, snapshot.time),
            clock(one.last, snapshot.time),
        )
        for one in found
    ]
    empty = "No process used a GPU in that time."
    print_list(args, found, _HEADING, rows, empty, right=[1, 4, 5, 6])
