"""Of the commands on jobs."""

from __future__ import annotations

from argparse import REMAINDER, ArgumentParser

from app.cli.arguments import types
from scheduler.protocol.search import OUTCOMES


def submit(made: ArgumentParser) -> None:
    made.add_argument(
        "--gpus",
        type=types.count,
        default=0,
        metavar="N",
        help="devices to hold for the job alone (default: 0; the CPU counts as one)",
    )
    made.add_argument(
        "--memory",
        type=types.amount,
        default=0,
        metavar="SIZE",
        help="reserve so much on each GPU, e.g. 20GiB, and share it with other jobs that reserve (default: a GPU for itself)",
    )
    made.add_argument(
        "--gpu-type",
        default="",
        metavar="NAME",
        help="only GPUs with this in their name, e.g. h100",
    )
    made.add_argument(
        "--priority",
        type=types.integer,
        default=0,
        metavar="N",
        help="the higher, the earlier (default: 0)",
    )
    made.add_argument(
        "--timeout",
        type=types.seconds,
        default=0.0,
        metavar="TIME",
        help="end it after so long, e.g. 2h; it has failed then",
    )
    made.add_argument(
        "--retries",
        type=types.count,
        default=0,
        metavar="N",
        help="try it again so often where it fails (default: 0)",
    )
    made.add_argument(
        "--backoff",
        type=types.seconds,
        default=10.0,
        metavar="TIME",
        help="before the second attempt; twice as long each time (default: 10s)",
    )
    made.add_argument(
        "--after",
        type=types.ids,
        default=(),
        metavar="JOB,...",
        help="start it after these have succeeded",
    )
    made.add_argument(
        "--after-any",
        type=types.ids,
        default=(),
        metavar="JOB,...",
        help="start it after these have ended, however",
    )
    made.add_argument(
        "--array",
        type=types.indices,
        metavar="0-9",
        help="one job for each index, which it finds in GPUDECK_ARRAY_INDEX",
    )
    made.add_argument(
        "--group",
        default="",
        metavar="NAME",
        help="a group can be paused, and limited to so many jobs at once",
    )
    made.add_argument("--hold", action="store_true", help="let it wait until: gpudeck resume JOB")
    made.add_argument("--notes", default="", metavar="TEXT")
    made.add_argument(
        "--tag",
        dest="tags",
        action="append",
        default=[],
        metavar="TAG",
        help="may be given several times",
    )
    made.add_argument(
        "--on",
        dest="where",
        default="",
        metavar="CLUSTER",
        help="run it in a cluster, e.g. ray:lab (see: gpudeck cluster)",
    )
    made.add_argument(
        "--env",
        dest="env",
        action="append",
        metavar="NAME[=VALUE]",
        help="with --on: a variable it gets there; may be given several times",
    )
    made.add_argument(
        "--dry-run", action="store_true", help="submit nothing; say where and when it would start"
    )
    made.add_argument("--name", help="shown in lists (default: the command's)")
    made.add_argument("--cwd", metavar="DIR", help="where it runs (default: here)")
    made.add_argument(
        "--wait",
        action="store_true",
        help="wait for its end; the exit status tells whether it succeeded",
    )
    made.add_argument("command", nargs=REMAINDER, metavar="COMMAND")


def run(made: ArgumentParser) -> None:
    from accel.workloads.catalog import WORKLOADS

    made.add_argument("workload", metavar="WORKLOAD", help=", ".join(w.name for w in WORKLOADS))
    made.add_argument(
        "params",
        nargs="*",
        default=[],
        metavar="NAME=VALUE",
        help="its parameters; those left out have good defaults for this machine",
    )
    made.add_argument("--wait", action="store_true", help="wait for the result")


def jobs(made: ArgumentParser) -> None:
    made.add_argument(
        "job",
        type=types.count,
        nargs="?",
        metavar="JOB",
        help="tell all about this one, and what it went through",
    )
    made.add_argument("--active", action="store_true", help="only those that wait or run")
    made.add_argument(
        "--search",
        default="",
        metavar="TEXT",
        help="those with all of these words in name, command, notes, tags",
    )
    made.add_argument(
        "--status", type=types.outcomes, default=(), metavar="STATUS,...", help=", ".join(OUTCOMES)
    )
    made.add_argument("--group", metavar="NAME")
    made.add_argument(
        "--device", default="", metavar="GPU", help="those that held this device: its index or UUID"
    )
    made.add_argument(
        "--since",
        type=types.moment,
        metavar="WHEN",
        help="not ended before: so long ago (7d), or a date (2026-11-20T14:30)",
    )
    made.add_argument("--until", type=types.moment, metavar="WHEN", help="submitted before")
    made.add_argument(
        "--limit", type=types.some, default=20, metavar="N", help="how many (default: 20)"
    )


def logs(made: ArgumentParser) -> None:
    made.add_argument("job", type=types.count, metavar="JOB")
    made.add_argument("-f", "--follow", action="store_true", help="go on until the job ends")


def wait(made: ArgumentParser) -> None:
    made.add_argument("job", type=types.count, metavar="JOB")


def results(made: ArgumentParser) -> None:
    made.add_argument("job", type=types.count, metavar="JOB")
    made.add_argument(
        "--out", metavar="FILE", help="write it to FILE, whose name ends with .csv or .json"
    )


def several(made: ArgumentParser) -> None:
    made.add_argument("jobs", type=types.count, nargs="*", metavar="JOB")
    made.add_argument("--group", metavar="NAME")


def edit(made: ArgumentParser) -> None:
    made.add_argument("job", type=types.count, metavar="JOB")
    made.add_argument("--name")
    made.add_argument("--gpus", type=types.count, metavar="N")
    made.add_argument("--memory", type=types.amount, metavar="SIZE")
    made.add_argument("--gpu-type", metavar="NAME")
    made.add_argument("--priority", type=types.integer, metavar="N")
    made.add_argument("--timeout", type=types.seconds, metavar="TIME")
    made.add_argument("--retries", type=types.count, metavar="N")
    made.add_argument("--group", metavar="NAME")
    made.add_argument("--notes", metavar="TEXT")
    made.add_argument(
        "--tag",
        dest="tags",
        action="append",
        metavar="TAG",
        help="instead of those it has; '' for none",
    )


def move(made: ArgumentParser) -> None:
    made.add_argument("job", type=types.count, metavar="JOB")
    made.add_argument("--before", type=types.count, metavar="JOB")
    made.add_argument("--after", type=types.count, metavar="JOB")


def groups(made: ArgumentParser) -> None:
    made.add_argument("name", nargs="?", metavar="NAME")
    made.add_argument(
        "--limit",
        type=types.count,
        metavar="N",
        help="so many of its jobs run at once; 0: no limit",
    )


def cancel(made: ArgumentParser) -> None:
    made.add_argument(
        "jobs",
        type=types.jobs,
        nargs="*",
        metavar="JOB",
        help="a number, or a range such as 9-200: all in it that has not ended",
    )
    made.add_argument(
        "--array", type=types.count, metavar="JOB", help="the whole array of which this is one"
    )
    made.add_argument("--group", metavar="NAME", help="all that wait or run of this group")
