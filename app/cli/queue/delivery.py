"""Submit so that a loop over the command doubles no job: its answer counts once it is printed."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Sequence

from gpudeck.app.cli.output import print_result
from gpudeck.app.cli.queue.unanswered import remember, submission_token
from gpudeck.app.cli.queue.wait import follow
from gpudeck.app.format.job_rows import describe
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import EndUnknown, UserError
from gpudeck.scheduler.protocol.jobs import Job, Spec

NO_GPU_HINT = (
    "The job gets no GPU (CUDA_VISIBLE_DEVICES is empty). To give it one, submit it with --gpus 1."
)


def deliver(
    client: Client,
    args: Namespace,
    specs: Sequence[Spec],
    submit: Callable[[str], Sequence[Job]],
) -> int:
    """Submit, and print what was queued, or follow the job with --wait; return the exit status.

    Args:
        client: The connection to the daemon.
        args: The arguments of the command, with `token`, `wait` and `json`.
        specs: What the command asks for, by which its repetition is recognised.
        submit: Submits with a token, and returns the jobs.
    """
    with submission_token(args.token, specs) as token:
        jobs = submit(token)
        if not args.wait:
            report(client, jobs, args)
            return 0
    try:
        return follow(jobs[0], args)
    except EndUnknown:
        if args.token is None:
            remember(token, specs)
        raise


def report(client: Client, jobs: Sequence[Job], args: Namespace) -> None:
    """Print the submitted job, or the array of jobs."""
    job = jobs[0]
    if job.spec.index is not None:
        ids = f"job {job.id}" if len(jobs) == 1 else f"jobs {job.id} to {jobs[-1].id}"
        print_result(args, jobs, f"{ids} ({len(jobs)} of {args.name or job.spec.argv[0]})")
        return
    lines = [f"job {job.id} ({job.spec.name}): {describe(job)}"]
    if not (job.spec.gpus or job.spec.where) and _has_gpu(client):
        lines.append(NO_GPU_HINT)
    print_result(args, job, *lines)


def _has_gpu(client: Client) -> bool:
    """Return whether there is a GPU; False where nobody answers any more.

    Whatever keeps the next daemon from starting does not make a failure of what was queued.
    """
    try:
        return any(d.device.kind == "nvidia" for d in client.snapshot().devices)
    except UserError:
        return False
