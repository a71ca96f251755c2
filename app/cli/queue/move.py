"""Move a job that waits within the queue."""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace

from gpudeck.app.cli import arguments
from gpudeck.app.cli.output import UsageError, print_list
from gpudeck.app.cli.queue.edit import print_job
from gpudeck.app.jobs.queue_timeline import changed_starts
from gpudeck.language.numbers import clock
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.schedule import Moved


def add_arguments(parser: ArgumentParser) -> None:
    """Add the job, and its new neighbor."""
    arguments.add_job(parser)
    parser.add_argument(
        "--before", type=arguments.count, metavar="JOB", help="move it before this job"
    )
    parser.add_argument(
        "--after", type=arguments.count, metavar="JOB", help="move it after this job"
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="move nothing; show which jobs would start at another time",
    )


def run(args: Namespace) -> None:
    """Move the job, or show what that would change."""
    if (args.before is None) == (args.after is None):
        raise UsageError("name one other job: --before JOB or --after JOB")
    with Client() as client:
        if not args.dry_run:
            print_job(client.move(args.job, before=args.before, after=args.after), args)
            return
        beside = args.after if args.before is None else args.before
        before = client.schedule()
        after = client.schedule(Moved(args.job, beside, args.before is None))
        names = {job.id: job.spec.name for job in client.snapshot().jobs}
    now = time.time()
    rows = [
        (str(job), names.get(job, ""), _start(old, now), _start(new, now))
        for job, (old, new) in changed_starts(before, after).items()
    ]
    print_list(
        args, {"before": before, "after": after}, ("JOB", "NAME", "STARTS", "WOULD START"), rows,
        "No job would start at another time, as far as the times are known.", right=(0,),
    )  # fmt: skip


def _start(at: float | None, now: float) -> str:
    return "unknown" if at is None else clock(at, now)
