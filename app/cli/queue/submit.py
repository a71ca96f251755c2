"""Queue a command as a job, or as an array of jobs."""

from __future__ import annotations

import time
from argparse import REMAINDER, ArgumentParser, Namespace

from app.cli import arguments
from app.cli.output import UsageError, print_result
from app.cli.queue.wait import follow
from app.format.job_rows import describe, device_labels, forecast_text
from scheduler.client import Client
from scheduler.protocol.job_options import JobOptions, parse_variables
from scheduler.protocol.jobs import Job

NO_GPU_HINT = (
    "The job gets no GPU (CUDA_VISIBLE_DEVICES is empty). To give it one, submit it with --gpus 1."
)


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of a submission."""
    _add_resources(parser)
    _add_schedule(parser)
    _add_description(parser)
    parser.add_argument(
        "--dry-run", action="store_true", help="submit nothing; print where and when it would start"
    )
    parser.add_argument(
        "--wait",
        action="store_true",
        help="wait for the job to end; the exit status is 0 if it succeeded",
    )
    parser.add_argument("command", nargs=REMAINDER, metavar="COMMAND", help="the command to run")


def _add_resources(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--gpus",
        type=arguments.count,
        default=0,
        metavar="N",
        help="devices to hold for the job alone (default: 0; the CPU counts as one)",
    )
    add(
        "--memory",
        type=arguments.memory,
        default=0,
        metavar="SIZE",
        help="memory to reserve on each GPU, e.g. 20GiB; the GPU is shared with other jobs that "
        "reserve memory (default: hold the whole GPU)",
    )
    add("--gpu-type", default="", metavar="NAME", help="part of the GPU's name, e.g. h100")
    add(
        "--on",
        dest="where",
        default="",
        metavar="CLUSTER",
        help="run the job in a cluster, e.g. ray:lab (see: gpudeck cluster)",
    )
    add("--cwd", metavar="DIR", help="folder to run in (default: the current one)")
    add(
        "--env",
        action="append",
        metavar="NAME[=VALUE]",
        help="with --on: set an environment variable; can be repeated",
    )


def _add_schedule(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--priority",
        type=arguments.integer,
        default=0,
        metavar="N",
        help="jobs with a higher number start earlier (default: 0)",
    )
    add(
        "--timeout",
        type=arguments.duration,
        default=0.0,
        metavar="TIME",
        help="end the job after this time, e.g. 2h; it then counts as failed",
    )
    add(
        "--retries",
        type=arguments.count,
        default=0,
        metavar="N",
        help="run the job again up to N times if it fails (default: 0)",
    )
    add(
        "--backoff",
        type=arguments.duration,
        default=10.0,
        metavar="TIME",
        help="delay before the second attempt; doubles with each attempt (default: 10s)",
    )
    add(
        "--after",
        type=arguments.job_list,
        default=(),
        metavar="JOB,...",
        help="start after these jobs have succeeded",
    )
    add(
        "--after-any",
        type=arguments.job_list,
        default=(),
        metavar="JOB,...",
        help="start after these jobs have ended, whether or not they succeeded",
    )
    add(
        "--array",
        type=arguments.array_indices,
        metavar="0-9",
        help="submit one job for each index; the job reads it from GPUDECK_ARRAY_INDEX",
    )
    add("--hold", action="store_true", help="do not start the job before: gpudeck resume JOB")


def _add_description(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("--name", help="name shown in lists (default: the command's name)")
    add(
        "--group",
        default="",
        metavar="NAME",
        help="group of the job; a group can be paused, and limited to a number of running jobs",
    )
    add("--notes", default="", metavar="TEXT", help="text to keep with the job")
    add(
        "--tag",
        dest="tags",
        action="append",
        default=[],
        metavar="TAG",
        help="tag of the job; can be repeated",
    )


def run(args: Namespace) -> int:
    """Submit a job, submit an array, or predict where and when a job would start."""
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command or not command[0]:
        raise UsageError("missing command. Example: gpudeck submit --gpus 1 -- python train.py")
    if args.array is not None and args.wait:
        raise UsageError("--wait waits for one job and cannot be combined with --array")
    options = _options(args)
    with Client() as client:
        if args.dry_run:
            forecast = client.foresee(command, **options)
            labels = device_labels(client.snapshot())
            print_result(args, forecast, forecast_text(forecast, labels, time.time()))
            return 0
        if args.array is None:
            return report_submission(client, client.submit(command, **options).job, args)
        jobs = client.submit_array(command, args.array, **options)
    ids = f"job {jobs[0].id}" if len(jobs) == 1 else f"jobs {jobs[0].id} to {jobs[-1].id}"
    print_result(args, jobs, f"{ids} ({len(jobs)} of {args.name or jobs[0].spec.argv[0]})")
    return 0


def _options(args: Namespace) -> JobOptions:
    if args.env and not args.where:
        raise UsageError(
            "--env needs --on CLUSTER; on this machine a job gets your environment variables"
        )
    return {
        "name": args.name or "",
        "gpus": args.gpus,
        "memory": args.memory,
        "gpu_type": args.gpu_type,
        "priority": args.priority,
        "timeout": args.timeout,
        "retries": args.retries,
        "backoff": args.backoff,
        "after": args.after,
        "after_any": args.after_any,
        "group": args.group,
        "hold": args.hold,
        "notes": args.notes,
        "tags": args.tags,
        "cwd": args.cwd,
        "where": args.where,
        "env": parse_variables(args.env or ()) if args.where else None,
    }


def report_submission(client: Client, job: Job, args: Namespace) -> int:
    """Print the submitted job, or follow it to its end with --wait; return the exit status."""
    if args.wait:
        return follow(job, args)
    lines = [f"job {job.id} ({job.spec.name}): {describe(job)}"]
    devices = client.snapshot().devices
    if not (job.spec.gpus or job.spec.where) and any(d.device.kind == "nvidia" for d in devices):
        lines.append(NO_GPU_HINT)
    print_result(args, job, *lines)
    return 0
