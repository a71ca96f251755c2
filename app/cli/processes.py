"""processes and kill: who uses the GPUs, and a way to end it."""

from __future__ import annotations

import sys
from argparse import Namespace

from app.cli.output import say, say_json, status_line, table
from app.cli.usage import UsageError
from app.processes.process_rows import COLUMNS, process_rows, question
from scheduler.client import Client
from scheduler.protocol.devices import Detail, Process
from scheduler.protocol.errors import NotFound, UserError
from scheduler.protocol.progress import printable


def processes(args: Namespace) -> int:
    """List the processes that use a GPU."""
    with Client() as deck:
        details, snapshot = deck.details(), deck.snapshot()
    if args.json:
        say_json([{"device": detail.device, "processes": detail.processes} for detail in details])
        return 0
    shown = process_rows(details, [state.device for state in snapshot.devices], snapshot.time)
    if not shown:
        recorded = {state.device.kind for state in snapshot.devices} == {"replay"}
        say(
            "a REPLAY: who used the GPU is not in the recording"
            if recorded
            else "no process uses a GPU"
        )
        return 0
    right = [i for i, column in enumerate(COLUMNS) if column.right]
    table([tuple(column.title.upper() for column in COLUMNS), *(row.cells for row in shown)], right)
    return 0


def kill(args: Namespace) -> int:
    """End a process that uses a GPU, after asking."""
    with Client() as deck:
        process = _find(deck.details(), args.pid)
        if not args.yes:
            if not sys.stdin.isatty():
                raise UsageError(
                    "there is nobody to ask whether it may be ended; if you are sure: gpudeck kill --yes PID"
                )
            sys.stderr.write(f"{printable(question(process))} [y/N] ")
            sys.stderr.flush()
            if sys.stdin.readline().strip().lower() not in ("y", "yes"):
                raise UserError("nothing was ended")
        status_line(f"waiting for process {process.pid} to end")
        deck.kill(process)
        status_line("")
    if args.json:
        say_json(process)
    elif process.job is not None:
        say(f"job {process.job} is cancelled, and process {process.pid} ends with it")
    else:
        say(f"process {process.pid} ({process.name}) has ended")
    return 0


def _find(details: tuple[Detail, ...], pid: int) -> Process:
    for detail in details:
        for process in detail.processes:
            if process.pid == pid:
                return process
    raise NotFound(f"process {pid} uses no GPU. See: gpudeck processes")
