"""List jobs, search them, or show one in detail."""

from __future__ import annotations

import shutil
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

import msgspec

from gpudeck.app.cli import arguments
from gpudeck.app.cli.output import UsageError, print_json, print_line, print_table
from gpudeck.app.cli.queue.named import latest
from gpudeck.app.format.job_rows import details, doing, state_word
from gpudeck.app.format.values import clock
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Job
from gpudeck.scheduler.protocol.search import (
    ACTIVE,
    FOREVER,
    MAX_LISTED,
    OUTCOMES,
    Search,
    parse_words,
)

MAX_NAME, MAX_DOING = 32, 100
"""Characters of a column of the list."""
NARROW = 80
"""Columns of a terminal below which the list leaves out the times of submission."""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the job to show, or the properties to search for."""
    add = parser.add_argument
    add(
        "job",
        type=arguments.number_or_name,
        nargs="?",
        metavar="JOB",
        help="show all details of this job and its timeline; for a name, those of the latest job "
        "with this name",
    )
    add("--active", action="store_true", help="list only jobs that wait or run")
    add(
        "--search",
        default="",
        metavar="TEXT",
        help="words that all occur in the name, command, notes, tags or parameters; also "
        "group:NAME and gpu:INDEX, as in the window",
    )
    add(
        "--status",
        type=arguments.names_among(OUTCOMES),
        default=(),
        metavar="STATUS,...",
        help=f"any of {', '.join(OUTCOMES)}",
    )
    add("--group", metavar="NAME", help="list only the jobs of this group")
    add(
        "--device",
        default="",
        metavar="GPU",
        help="list jobs that held this device, named by its index or UUID",
    )
    add(
        "--since",
        type=arguments.moment,
        metavar="WHEN",
        help="list jobs that had not ended at this time: 7d (seven days ago), or a date "
        "(2026-11-20T14:30)",
    )
    add("--token", metavar="NAME", help="list only the jobs of this submission")
    add(
        "--until",
        type=arguments.moment,
        metavar="WHEN",
        help="list jobs that were submitted before this time",
    )
    add(
        "--limit",
        type=arguments.positive_count,
        default=20,
        metavar="N",
        help="the number of jobs to list (default: 20)",
    )


def run(args: Namespace) -> None:
    """Print the jobs that match, newest first, or one job."""
    if args.job is None:
        _list(args)
    else:
        _show_job(args)


def _list(args: Namespace) -> None:
    search = _search(args)
    with Client() as client:
        if args.search or args.device:
            search = _with_words(search, args, client)
        if args.token is not None:
            found = client.submission(args.token)
        elif search in (Search(), Search(outcomes=ACTIVE)) and args.limit <= MAX_LISTED:
            found = client.jobs(args.limit, args.active)
        else:
            found = client.find(search, args.limit)[0]
        recorded = not found and client.snapshot().is_recorded
    if args.json:
        print_json(found)
    elif found:
        print_list(found)
    else:
        print_line(_explain_no_jobs(search, recorded))


def print_list(jobs: Sequence[Job]) -> None:
    """Print a line for each job; a narrow terminal gets shorter names, and no times."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    narrow = 0 < width < NARROW
    longest = max(width // 4, 8) if narrow else MAX_NAME
    heading = ("JOB", "NAME", "STATE") + (() if narrow else ("SUBMITTED",)) + ("",)
    rows = [
        (
            str(job.id),
            shortened(job.spec.name, longest),
            state_word(job),
            *(() if narrow else (clock(job.submitted),)),
            doing(job)[:MAX_DOING],
        )
        for job in jobs
    ]
    print_table([heading, *rows], right=(0,))


def shortened(text: str, most: int) -> str:
    """Return the text with … in place of what is too long."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _with_words(search: Search, args: Namespace, client: Client) -> Search:
    """Return the search with what its words and --device name."""
    devices = [state.device for state in client.snapshot().devices]
    words = parse_words(f"{args.search} gpu:{args.device}" if args.device else args.search, devices)
    group = args.group if args.group is not None else words.group
    return msgspec.structs.replace(search, text=words.text, group=group, device=words.device)


def _explain_no_jobs(search: Search, recorded: bool) -> str:
    if search == Search() and recorded:  # which runs no workload
        return "No jobs yet. Start one with: gpudeck submit -- COMMAND"
    if search == Search():
        return "No jobs yet. Start one with: gpudeck run attention, or: gpudeck submit -- COMMAND"
    if search == Search(outcomes=ACTIVE):
        return "No jobs are waiting or running."
    return "No jobs match."


def _search(args: Namespace) -> Search:
    if args.token is not None and (args.active or args.status or args.search or args.group):
        raise UsageError("--token lists all jobs of one submission and cannot be combined")
    if args.active and args.status:
        raise UsageError("--active and --status cannot be combined")
    return Search(
        args.search,
        ACTIVE if args.active else args.status,
        args.group,
        args.device,
        args.since or 0.0,
        FOREVER if args.until is None else args.until,
    )


def _show_job(args: Namespace) -> int:
    with Client() as client:
        number = latest(client, args.job)
        job, events = client.job(number), client.timeline(number)
        snapshot, files, problem = client.snapshot(), list[Path](), ""
        try:
            files = client.artefacts(number)
        except UserError as e:
            problem = str(e)
    if args.json:
        found: dict[str, object] = {"job": job, "timeline": events}
        found["artefacts"] = [str(file) for file in files]
        print_json({**found, "artefacts_problem": problem} if problem else found)
        return 0
    shown = details(job, snapshot)
    print_line(f"{shown.title}: {shown.state}" + (f", {shown.doing}" if shown.doing else ""))
    print_table(shown.facts)
    for file in files:
        print_line(f"artifact: {file}")
    if problem:
        print_line(problem)
    print_line("Timeline")
    for event in events:
        text = f": {event.text}" if event.text else ""
        print_line(f"  {clock(event.time, time.time())}  {event.what}{text}")
    return 0
