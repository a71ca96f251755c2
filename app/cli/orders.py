"""pause, resume, edit, move, groups: what becomes of jobs that wait."""

from __future__ import annotations

from argparse import Namespace

from app.cli.output import say, say_json, table
from app.cli.usage import UsageError
from app.format.job_line import describe
from scheduler.client import Client
from scheduler.protocol.jobs import Job

_CHANGES = (
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


def pause(args: Namespace) -> int:
    return _let(args, True)


def resume(args: Namespace) -> int:
    return _let(args, False)


def _let(args: Namespace, paused: bool) -> int:
    """Of the jobs or the group that were named; of the whole queue where none was."""
    if args.jobs and args.group is not None:
        raise UsageError("name jobs or a group, not both")
    with Client() as deck:
        if args.jobs:
            found = [deck.hold(job, paused) for job in args.jobs]
            if args.json:
                say_json(found)
            else:
                for job in found:
                    say(f"job {job.id}: {describe(job)}")
            return 0
        if args.group is not None:
            deck.set_group(args.group, paused=paused)
            what = f"group {args.group}"
        else:
            deck.pause(paused)
            what = "the queue"
    if args.json:
        say_json({"paused": paused})
    else:
        say(f"{what} {'is paused: it starts nothing new' if paused else 'goes on'}")
    return 0


def edit(args: Namespace) -> int:
    given = {name: getattr(args, name) for name in _CHANGES if getattr(args, name) is not None}
    if not given:
        raise UsageError(
            "nothing to change was named. Example: gpudeck edit 7 --priority 5 --notes 'urgent'"
        )
    if "tags" in given:
        given["tags"] = tuple(tag for tag in given["tags"] if tag)
    with Client() as deck:
        return _told(deck.edit(args.job, **given), args)


def move(args: Namespace) -> int:
    if (args.before is None) == (args.after is None):
        raise UsageError("name the job to stand before or after: --before JOB or --after JOB")
    with Client() as deck:
        return _told(deck.move(args.job, before=args.before, after=args.after), args)


def _told(job: Job, args: Namespace) -> int:
    """What became of a job."""
    if args.json:
        say_json(job)
    else:
        say(f"job {job.id} ({job.spec.name}): {describe(job)}")
    return 0


def groups(args: Namespace) -> int:
    """All groups; with a name and a limit, that group's limit first."""
    if (args.name is None) != (args.limit is None):
        raise UsageError(
            "a limit is set with a name and a number. Example: gpudeck groups training --limit 2"
        )
    with Client() as deck:
        found = deck.groups() if args.name is None else deck.set_group(args.name, limit=args.limit)
    if args.json:
        say_json(found)
    elif not found:
        say("no groups. Put a job into one with: gpudeck submit --group NAME -- COMMAND")
    else:
        rows = [("GROUP", "WAITING", "RUNNING", "LIMIT", "")]
        rows += [
            (
                g.group.name,
                str(g.waiting),
                str(g.running),
                str(g.group.limit or "none"),
                "paused" if g.group.paused else "",
            )
            for g in found
        ]
        table(rows, right=(1, 2, 3))
    return 0
