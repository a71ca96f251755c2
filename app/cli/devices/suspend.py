"""Take a program off the GPU, bring it back, and list what is suspended."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from gpudeck.app.cli import arguments
from gpudeck.app.cli.devices.kill import find_process
from gpudeck.app.cli.output import clear_progress, print_result, print_table, show_progress
from gpudeck.app.format.values import ago, duration, memory
from gpudeck.scheduler.client import Client


def add_arguments(parser: ArgumentParser) -> None:
    """Add the program to suspend."""
    parser.add_argument(
        "--pid",
        type=arguments.count,
        metavar="PID",
        help="a process that uses a GPU, as in: gpudeck processes. Without it, list what is "
        "suspended",
    )


def run(args: Namespace) -> int:
    """Suspend a program, or list those that are suspended."""
    with Client(timeout=None) as client:
        if args.pid is None:
            return _list_suspended(args, client)
        process = find_process(client.details(), args.pid)
        show_progress(f"waiting until process {process.pid} is off the GPU")
        found = client.suspend(process)
        clear_progress()
    print_result(
        args,
        found,
        f"{found.name} is suspended after {duration(found.seconds)}; {memory(found.memory)} of GPU "
        f"memory are free. To resume it: gpudeck resume --pid {found.pid}",
    )
    return 0


def resume(args: Namespace) -> int:
    """Bring back the program that the arguments name."""
    with Client(timeout=None) as client:
        show_progress(f"waiting until process {args.pid} is back on the GPU")
        found = client.resume_process(args.pid)
        clear_progress()
    print_result(args, found, f"{found.name} runs again after {duration(found.seconds)}.")
    return 0


def _list_suspended(args: Namespace, client: Client) -> int:
    found, now = client.suspended(), client.snapshot().time
    if args.json or not found:
        print_result(args, found, "No program is suspended.")
        return 0
    rows = [
        (str(each.pid), each.name, memory(each.memory), each.phase, ago(each.since, now))
        for each in found
    ]
    print_table([("PID", "NAME", "MEMORY", "STATE", "SINCE"), *rows], right=(0, 2))
    return 0
