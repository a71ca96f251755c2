"""Wait for a job to end."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, Namespace

from gpudeck.accel.result import Result
from gpudeck.app.cli import arguments
from gpudeck.app.cli.connection import POLL_S, with_retries
from gpudeck.app.cli.output import (
    clear_progress,
    print_error,
    print_line,
    print_result,
    show_progress,
)
from gpudeck.app.format.job_rows import describe
from gpudeck.app.format.results import result_of
from gpudeck.app.format.values import significant
from gpudeck.scheduler.protocol.errors import DaemonGone, EndUnknown
from gpudeck.scheduler.protocol.jobs import Done, Job, Queued

TELL_S = 5.0
"""Seconds after which it is told why a job waits: most jobs start sooner."""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the job to wait for."""
    arguments.add_job(parser)


def run(args: Namespace) -> int:
    """Wait for the job that the arguments name."""
    return follow(with_retries(lambda client: client.job(args.job)), args)


def follow(job: Job, args: Namespace) -> int:
    """Show a job's progress until it ends, and then how it ended.

    Returns:
        The exit status: 0 if the job succeeded.

    Raises:
        EndUnknown: No daemon answers any more.
    """
    try:
        if not args.json:
            print_line(f"job {job.id} ({job.spec.name})")
        reasons = WaitReasons()
        while job.active:
            time.sleep(POLL_S)
            job = with_retries(lambda client: client.job(job.id))  # noqa: B023
            show_progress(describe(job))
            reasons.tell(job)
    except DaemonGone as e:
        raise EndUnknown(e.message, job.id) from e
    except KeyboardInterrupt:
        clear_progress()
        print_error(
            f"job {job.id} keeps running. To see how it ends: gpudeck wait {job.id}; "
            f"to end it: gpudeck cancel {job.id}"
        )
        raise
    clear_progress()
    lines = [f"job {job.id}: {describe(job)}"]
    if (result := result_of(job)) is not None:
        lines.append(_summarize(result))
        if len(result.cells) > 1:
            lines.append(f"all {len(result.cells)} cells: gpudeck results {job.id}")
    print_result(args, job, *lines)
    return 0 if isinstance(job.state, Done) else 1


class WaitReasons:
    """Tell on standard error why a job waits, where no progress is shown on a terminal."""

    def __init__(self) -> None:
        self._from = time.monotonic() + TELL_S
        self._told: type[object] | None = None

    def tell(self, job: Job) -> None:
        """Tell the reason once, and again when there is one of another kind."""
        if sys.stderr.isatty() or not isinstance(job.state, Queued):
            return
        reason = type(job.state.wait)
        if job.state.wait is not None and time.monotonic() > self._from and reason != self._told:
            self._told = reason
            print_error(f"job {job.id} waits: {describe(job)}")


def _summarize(result: Result) -> str:
    if result.figures:
        figures = (f"{f.name} {f.value:.4g} {f.unit}".rstrip() for f in result.figures)
        return f"{', '.join(figures)}, on {result.device}: {result.verdict}"
    timing = f"median {result.timing.median:.3g} ms, P95 {result.timing.p95:.3g} ms"
    return (
        f"{significant(result.tflops)} TFLOP/s, {timing}, backend {result.backend}, "
        f"on {result.device}: {result.verdict}"
    )
