"""End a process that uses a GPU."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

from gpudeck.app.cli import arguments
from gpudeck.app.cli.output import UsageError, clear_progress, confirm, print_result, show_progress
from gpudeck.app.processes.process_rows import question
from gpudeck.language.text import phrase
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.devices import Detail, Process
from gpudeck.scheduler.protocol.errors import NotFound, UserError


def add_arguments(parser: ArgumentParser) -> None:
    """Add the process to end."""
    parser.add_argument(
        "pid", type=arguments.count, metavar="PID", help="process ID, as in: gpudeck processes"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask")


def run(args: Namespace) -> None:
    """End the process after asking, or cancel the job that owns it."""
    with Client() as client:
        process = find_process(client.details(), args.pid)
        if not args.yes:
            if not sys.stdin.isatty():
                raise UsageError(
                    "cannot ask for confirmation without a terminal. If you are sure: "
                    f"gpudeck kill --yes {args.pid}"
                )
            if not confirm(question(process)):
                raise UserError(phrase("the process was not ended"))
        show_progress(f"waiting for process {process.pid} to end")
        client.kill(process)
        clear_progress()
    if process.job is None:
        text = f"Process {process.pid} ({process.name}) has ended."
    else:
        text = f"Job {process.job} was cancelled, which ends process {process.pid}."
    print_result(args, process, text)


def find_process(details: tuple[Detail, ...], pid: int) -> Process:
    """Return a listed process. Raises NotFound."""
    for detail in details:
        for process in (*detail.processes, *detail.cpu_processes):
            if process.pid == pid:
                return process
    raise NotFound(phrase("process {pid} does not use a GPU. See: gpudeck processes", pid=pid))
