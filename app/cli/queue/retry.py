"""Queue jobs that have ended once more, with what their failures suggest."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from gpudeck.app.cli import arguments
from gpudeck.app.cli.output import print_json, print_line
from gpudeck.app.cli.queue.named import latest
from gpudeck.app.format.failure import LOG_END, Failure, explain_failure, has_failed
from gpudeck.app.format.free_devices import largest_memory
from gpudeck.app.format.job_rows import describe
from gpudeck.language.text import phrase
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Job


def add_arguments(parser: ArgumentParser) -> None:
    """Add the jobs, their memory, and whether the new ones get their artefacts."""
    parser.add_argument(
        "jobs",
        type=arguments.job_or_range,
        nargs="+",
        metavar="JOB",
        help="a number, the name of the latest such job, or a range such as 10-19, of which the "
        "jobs that failed are queued",
    )
    parser.add_argument(
        "--memory",
        type=arguments.size,
        metavar="SIZE",
        help="memory reservation on each GPU; 0: the whole GPU (default: as the failure suggests)",
    )
    parser.add_argument(
        "--artefacts",
        action="store_true",
        help="let the new job work in the artefacts of the old one, e.g. to go on from a "
        "checkpoint",
    )


def run(args: Namespace) -> None:
    """Submit the jobs again, and say why each of them failed and what is different."""
    made = []
    with Client() as client:
        largest = largest_memory(client.snapshot())
        for job in [job for named in args.jobs for job in _named(client, named)]:
            why = _explain(client, job, largest) if has_failed(job) else None
            changes = why.remedy.changes if why else {}
            changes = changes if args.memory is None else {"memory": args.memory}
            new = client.retry(job.id, artefacts=args.artefacts, changes=changes)
            made.append(new)
            if not args.json:
                _print_retry(job, why if args.memory is None else None, new)
    if args.json:
        print_json(made[0] if len(made) == 1 else made)


def _print_retry(job: Job, why: Failure | None, new: Job) -> None:
    if why is not None:
        print_line(f"job {job.id} ({job.spec.name}): {why.cause}")
        if why.line and why.line not in str(why.cause):
            print_line(f"  {why.line}")
        if why.remedy.changes:
            print_line(f"  {why.remedy.title}")
    print_line(f"job {new.id}: {describe(new)}")


def _named(client: Client, named: int | range | str) -> list[Job]:
    """Return the jobs of an argument, of a range those that failed. Raises NotFound, UserError."""
    if not isinstance(named, range):
        return [client.job(latest(client, named))]
    failed = [job for number in named if has_failed(job := client.job(number))]
    if not failed:
        raise UserError(
            phrase(
                "none of the jobs {first} to {last} failed", first=named.start, last=named.stop - 1
            )
        )
    return failed


def _explain(client: Client, job: Job, largest: float | None) -> Failure:
    log = client.log(job.id, -LOG_END, LOG_END)
    return explain_failure(job, log.decode(errors="replace"), largest)
