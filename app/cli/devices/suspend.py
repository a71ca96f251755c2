"""Take jobs or a program off the GPU, bring them back, and list what is suspended."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from gpudeck.app.cli import arguments
from gpudeck.app.cli.devices.kill import find_process
from gpudeck.app.cli.output import (
    UsageError,
    clear_progress,
    print_json,
    print_line,
    print_list,
    print_result,
    show_progress,
)
from gpudeck.app.format.job_rows import describe
from gpudeck.app.format.values import ago, duration, memory
from gpudeck.scheduler.client import Client


def add_arguments(parser: ArgumentParser) -> None:
    """Add the jobs or the program to suspend."""
    parser.add_argument(
        "jobs", type=arguments.count, nargs="*", metavar="JOB", help="numbers of running jobs"
    )
    parser.add_argument(
        "--pid",
        type=arguments.count,
        metavar="PID",
        help="a process that uses a GPU, as in: gpudeck processes. Without it, list what is "
        "suspended",
    )


def run(args: Namespace) -> None:
    """Suspend jobs or a program, or list what is suspended."""
    if args.jobs and args.pid is not None:
        raise UsageError("name either jobs or a program")
    with Client(timeout=None) as client:
        if args.jobs:
            _suspend_jobs(args, client)
        elif args.pid is None:
            _list_suspended(args, client)
        else:
            _suspend_process(args, client)


def _suspend_process(args: Namespace, client: Client) -> None:
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


def _suspend_jobs(args: Namespace, client: Client) -> None:
    """Suspend jobs, one after the other; those before one that is refused stay suspended."""
    done = []
    for number in args.jobs:
        show_progress(f"waiting until job {number} is off the GPU")
        done.append(job := client.suspend_job(number))
        clear_progress()
        if not args.json:
            print_line(f"job {job.id}: {describe(job)}. To resume it: gpudeck resume {job.id}")
    if args.json:
        print_json(done)


def resume(args: Namespace) -> None:
    """Bring back the program that the arguments name."""
    with Client(timeout=None) as client:
        show_progress(f"waiting until process {args.pid} is back on the GPU")
        found = client.resume_process(args.pid)
        clear_progress()
    print_result(args, found, f"{found.name} runs again after {duration(found.seconds)}.")


def _list_suspended(args: Namespace, client: Client) -> None:
    found, now = client.suspended(), client.snapshot().time
    rows = [
        (
            str(each.pid) if each.job is None else "–",
            each.name,
            memory(each.memory),
            each.phase,
            ago(each.since, now),
        )
        for each in found
    ]
    heading = ("PID", "NAME", "MEMORY", "STATE", "SINCE")
    print_list(args, found, heading, rows, "Nothing is suspended.", right=(0, 2))
