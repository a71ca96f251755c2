"""List the processes that use a GPU."""

from __future__ import annotations

from argparse import Namespace

from app.cli.output import print_json, print_line, print_table
from app.processes.process_rows import COLUMNS, process_rows
from scheduler.client import Client


def run(args: Namespace) -> int:
    """Print a row for each process on each GPU."""
    with Client() as client:
        details, snapshot = client.details(), client.snapshot()
    if args.json:
        print_json([{"device": d.device, "processes": d.processes} for d in details])
        return 0
    shown = process_rows(details, [state.device for state in snapshot.devices], snapshot.time)
    if shown:
        right = [i for i, column in enumerate(COLUMNS) if column.right]
        heading = tuple(column.title.upper() for column in COLUMNS)
        print_table([heading, *(row.cells for row in shown)], right)
    elif {state.device.kind for state in snapshot.devices} == {"replay"}:
        print_line("This is a REPLAY. Processes are not recorded.")
    else:
        print_line("No process uses a GPU.")
    return 0
