"""submit, run, jobs, logs, wait, results, cancel."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from accel.result import Result
from accel.workloads import catalog
from accel.workloads.summary import lines
from app.cli.log import LogPrinter
from app.cli.output import say, say_json, status_line, table
from app.cli.usage import UsageError
from app.format import values as fmt
from app.format.job_line import cancelled, describe, doing, several
from app.jobs.forecast import foretold
from app.jobs.rows import details, device_labels, state_word
from app.workloads.result_export import save_result, whole
from app.workloads.results import result_of
from scheduler.client import Client
from scheduler.protocol.errors import DaemonGone, UserError
from scheduler.protocol.job_options import JobOptions, parse_variables
from scheduler.protocol.jobs import Done, Forecast, Job
from scheduler.protocol.search import ACTIVE, FOREVER, MAX_LISTED, Search

POLL_S = 0.25
MAX_LOG = 4 * 2**20
"""Bytes of the end of a log that --json gives."""

T = TypeVar("T")


def submit(args: Namespace) -> int:
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command or not command[0]:
        raise UsageError(
            "no command was given. Example: gpudeck submit --gpus 1 -- python train.py"
        )
    options = _wishes(args)
    with Client() as deck:
        if args.dry_run:
            return _foretell(deck, deck.foresee(command, **options), args)
        if args.array is None:
            return _submitted(deck, deck.submit(command, **options).job, args)
        if args.wait:
            raise UsageError("--wait waits for one job, not for an array")
        jobs = deck.submit_array(command, args.array, **options)
    if args.json:
        say_json(jobs)
    else:
        ids = f"job {jobs[0].id}" if len(jobs) == 1 else f"jobs {jobs[0].id} to {jobs[-1].id}"
        say(f"{ids} ({len(jobs)} of {args.name or jobs[0].spec.argv[0]})")
    return 0


def _wishes(args: Namespace) -> JobOptions:
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
        "env": _given(args),
    }


def _given(args: Namespace) -> dict[str, str] | None:
    """The variables that were named for a job in a cluster; None for the whole environment of the caller."""
    if not args.where:
        if args.env:
            raise UsageError(
                "--env is for jobs in a cluster (--on); on this machine a job has your environment"
            )
        return None
    return parse_variables(args.env or ())


def _foretell(deck: Client, found: Forecast, args: Namespace) -> int:
    """Where and when a job would start."""
    if args.json:
        say_json(found)
        return 0
    say(foretold(found, device_labels(deck.snapshot()), time.time()))
    return 0


def run(args: Namespace) -> int:
    try:
        workload = catalog.find(args.workload)
        given = dict(_assignment(text) for text in args.params)
    except ValueError as e:
        raise UsageError(str(e)) from e
    with Client() as deck:
        return _submitted(deck, submit_workload(deck, workload, given), args)


def submit_workload(deck: Client, workload: catalog.Workload, given: Mapping[str, str]) -> Job:
    """Queue a workload; what is not given has this machine's defaults. Raises UsageError for a parameter that is wrong."""
    try:
        values = workload.complete(given, device_kind(deck))
    except ValueError as e:
        raise UsageError(str(e)) from e
    return deck.submit(
        workload.argv(values), name=workload.name, gpus=1, workload=workload.name, params=values
    ).job


def _assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.lstrip("-").partition("=")
    if not equals:
        raise ValueError(f"parameters are given as NAME=VALUE; got {text!r}")
    return name.replace("-", "_"), value


def device_kind(deck: Client) -> str:
    """The kind of this machine's devices, waiting for the first reading of a daemon that has just started."""
    end = time.monotonic() + 10
    while not (devices := deck.snapshot().devices):
        if time.monotonic() > end:
            raise UserError("no device can be read. See: gpudeck doctor")
        time.sleep(0.05)
    return devices[0].device.kind


def _submitted(deck: Client, job: Job, args: Namespace) -> int:
    if args.wait:
        return _follow_to_end(job, args)
    if args.json:
        say_json(job)
        return 0
    say(f"job {job.id} ({job.spec.name}): {describe(job)}")
    if not (job.spec.gpus or job.spec.where) and any(
        s.device.kind == "nvidia" for s in deck.snapshot().devices
    ):
        say(
            "it holds no GPU, and sees none (CUDA_VISIBLE_DEVICES is empty); to give it one: --gpus 1"
        )
    return 0


def wait(args: Namespace) -> int:
    return _follow_to_end(ask(lambda deck: deck.job(args.job)), args)


def _follow_to_end(job: Job, args: Namespace) -> int:
    """Show the job's progress until it ends, then how it ended. Status 0 where it succeeded."""
    try:
        if not args.json:
            say(f"job {job.id} ({job.spec.name})")
        while job.active:
            time.sleep(POLL_S)
            job = ask(lambda deck: deck.job(job.id))  # noqa: B023
            status_line(describe(job))
    except KeyboardInterrupt:
        status_line("")
        print(
            f"gpudeck: job {job.id} goes on without you. To see how it ends: gpudeck wait {job.id}; to end it: gpudeck cancel {job.id}",
            file=sys.stderr,
        )
        raise
    status_line("")
    if args.json:
        say_json(job)
    else:
        say(f"job {job.id}: {describe(job)}")
        if (result := result_of(job)) is not None:
            say(_in_a_line(result))
            if len(result.cells) > 1:
                say(f"all {len(result.cells)} cells: gpudeck results {job.id}")
    return 0 if isinstance(job.state, Done) else 1


def ask(question: Callable[[Client], T]) -> T:
    """Ask the daemon, once more where it went away meanwhile: who waits for a job outlives a daemon that is restarted."""
    for again in (True, True, False):
        try:
            with Client() as deck:
                return question(deck)
        except DaemonGone:
            if not again:
                raise
    raise AssertionError("unreachable")


def jobs(args: Namespace) -> int:
    """The newest jobs, of those that are looked for; or one, with all that is known of it and what it went through."""
    if args.job is not None:
        return _one(args)
    search = _search(args)
    plain = search in (Search(), Search(outcomes=ACTIVE))
    with Client() as deck:
        found = (
            deck.jobs(args.limit, args.active)
            if plain and args.limit <= MAX_LISTED
            else deck.find(search, args.limit)[0]
        )
    if args.json:
        say_json(found)
    elif not found and not plain:
        say("no such job")
    elif not found and args.active:
        say("no jobs wait or run")
    elif not found:
        say("no jobs yet. Start one with: gpudeck run attention   or: gpudeck submit -- COMMAND")
    else:
        rows = [("JOB", "NAME", "STATE", "SUBMITTED", "")]
        rows += [
            (str(j.id), j.spec.name[:32], state_word(j), fmt.clock(j.submitted), doing(j)[:100])
            for j in found
        ]
        table(rows, right=(0,))
    return 0


def _search(args: Namespace) -> Search:
    if args.active and args.status:
        raise UsageError("name either --active or --status")
    until = FOREVER if args.until is None else args.until
    return Search(
        args.search,
        ACTIVE if args.active else args.status,
        args.group,
        args.device,
        args.since or 0.0,
        until,
    )


def _one(args: Namespace) -> int:
    with Client() as deck:
        job, events, snapshot, files = (
            deck.job(args.job),
            deck.timeline(args.job),
            deck.snapshot(),
            deck.artefacts(args.job),
        )
    if args.json:
        say_json({"job": job, "timeline": events, "artefacts": [str(file) for file in files]})
        return 0
    shown = details(job, snapshot)
    say(f"{shown.title}: {shown.state}" + (f", {shown.doing}" if shown.doing else ""))
    table(shown.facts)
    for file in files:
        say(f"artefact: {file}")
    say("Timeline")
    for event in events:
        say(
            f"  {fmt.clock(event.time, time.time())}  {event.what}"
            + (f": {event.text}" if event.text else "")
        )
    return 0


def logs(args: Namespace) -> int:
    """The job's output; its progress reports are left out (`gpudeck wait` shows them)."""
    if args.json:
        ask(lambda deck: deck.job(args.job))
        say_json(
            {
                "job": args.job,
                "log": ask(lambda deck: deck.log(args.job, -MAX_LOG, MAX_LOG)).decode(
                    errors="replace"
                ),
            }
        )
        return 0
    offset, out = 0, LogPrinter()
    while True:
        active = ask(
            lambda deck: deck.job(args.job)
        ).active  # asked before reading: what was written before its end is then read below
        while (part := ask(lambda deck: deck.log_part(args.job, offset))).data:  # noqa: B023
            offset = part.end
            out.feed(part.data)
        if not (args.follow and active):
            out.end()
            if not offset and sys.stdout.isatty():
                job = ask(lambda deck: deck.job(args.job))
                say(f"job {job.id} has printed nothing: {describe(job)}")
            return 0
        time.sleep(POLL_S)


def _in_a_line(result: Result) -> str:
    speed = f"{fmt.significant(result.tflops)} TFLOP/s, median {result.timing.median:.3g} ms, P95 {result.timing.p95:.3g} ms"
    return f"{speed}, backend {result.backend}, on {result.device}: {result.verdict}"


def results(args: Namespace) -> int:
    """A job's Result: for people its summary, with --json all of it, with --out a file."""
    job = ask(lambda deck: deck.job(args.job))
    result = result_of(job)
    if result is None:
        raise UserError(f"job {job.id} left no result. See: gpudeck logs {job.id}")
    if args.out:
        save_result(job, Path(args.out))
    if args.json:
        say_json(whole(result))
    elif args.out:
        say(f"the result of job {job.id} is in {args.out}")
    else:
        for line in lines(result):
            say(line)
    return 0


def cancel(args: Namespace) -> int:
    """One that is named alone must be there, and not have ended; of several, those are cancelled that have not."""
    if sum(map(bool, (args.jobs, args.array is not None, args.group))) != 1:
        raise UsageError(
            "name what to cancel: JOB..., --array JOB or --group NAME, one of them. See: gpudeck cancel --help"
        )
    with Client() as deck:
        if len(args.jobs) == 1 and isinstance(args.jobs[0], int):
            job = deck.cancel(args.jobs[0])
            if args.json:
                say_json(job)
            else:
                say(f"job {job.id}: {'is being ended' if job.active else 'cancelled'}")
            return 0
        done = deck.cancel_many(args.jobs, array=args.array, group=args.group or "")
    if args.json:
        say_json(done)
    else:
        for line in cancelled(done):
            say(line)
    if done.missing:
        print(f"gpudeck: there is no {several(done.missing)}. See: gpudeck jobs", file=sys.stderr)
    return 1 if done.missing else 0
