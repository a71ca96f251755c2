"""Change a job."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from app.cli import arguments
from app.cli.output import UsageError, print_result
from app.format.job_rows import describe
from scheduler.client import Client
from scheduler.protocol.jobs import Job

_FIELDS = (
    "name",
    "gpus",
    "memory",
    "gpu_type",
    "priority",
    "timeout",
    "retries",
    "group",
    "notes",
    "tags",
)


def add_arguments(parser: ArgumentParser) -> None:
    """Add the job, and the options that can be changed."""
    arguments.add_job(parser)
    add = parser.add_argument
    add("--name", metavar="NAME", help="new name")
    add("--gpus", type=arguments.count, metavar="N", help="devices to hold")
    add("--memory", type=arguments.memory, metavar="SIZE", help="memory to reserve on each GPU")
    add("--gpu-type", metavar="NAME", help="part of the GPU's name")
    add("--priority", type=arguments.integer, metavar="N", help="higher numbers start earlier")
    add("--timeout", type=arguments.duration, metavar="TIME", help="end the job after this time")
    add("--retries", type=arguments.count, metavar="N", help="attempts after a failure")
    add("--group", metavar="NAME", help="group of the job")
    add("--notes", metavar="TEXT", help="text to keep with the job")
    add(
        "--tag",
        dest="tags",
        action="append",
        metavar="TAG",
        help="replaces the job's tags; can be repeated; '' removes all tags",
    )


def run(args: Namespace) -> int:
    """Change the fields of a job that the arguments name."""
    changes = {name: getattr(args, name) for name in _FIELDS if getattr(args, name) is not None}
    if not changes:
        raise UsageError(
            "name something to change. Example: gpudeck edit 7 --priority 5 --notes 'urgent'"
        )
    if "tags" in changes:
        changes["tags"] = tuple(tag for tag in changes["tags"] if tag)
    with Client() as client:
        return print_job(client.edit(args.job, **changes), args)


def print_job(job: Job, args: Namespace) -> int:
    """Print a job's new state and return the exit status."""
    print_result(args, job, f"job {job.id} ({job.spec.name}): {describe(job)}")
    return 0
