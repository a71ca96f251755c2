"""The command line: `gpudeck` opens the window, `gpudeck VERB` does one thing. Exit status 2 for usage, 1 for failure."""

from __future__ import annotations

import argparse
import errno
import io
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn, TypeVar

from accel.workloads.catalog import WORKLOADS
from app import __version__
from app.commands import alerts, care, clean, clusters, live, models, orders, past, processes, queue, watch, words
from app.commands.output import status_line
from assistant.housekeeping import KINDS
from assistant.housekeeping.watch import SCAN_S
from scheduler.errors import DaemonGone, UserError
from scheduler.messages import MAX_POINTS
from scheduler.search import OUTCOMES
from scheduler.units import parse_bytes, parse_moment, parse_seconds
from scheduler.wishes import indices

Command = Callable[[argparse.Namespace], int]
T = TypeVar("T")
DEFAULT_TOUR = "gpudeck-tour"
_LINE = 120
"""Characters of a usage error beyond which what there is to choose from is left to --help."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit status; what the user can put right is one line on standard error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that knows no degree sign gets a question mark
    args, left = parser().parse_known_args(argv)
    if left:
        what = f"one at a time is meant here; {left[0]} is too many" if left[0].isdigit() else f"there is no {' '.join(left)} here"
        return _fail(f"{what}. See: {args.prog} --help", 2)
    try:
        command: Command = args.run
        return command(args)
    except queue.UsageError as e:
        return _fail(str(e), 2)
    except DaemonGone as e:
        return _fail(f"{e}. Nothing is lost: jobs run on, and the next command starts what is missing.", 1)
    except (UserError, TimeoutError) as e:
        return _fail(str(e), 1)
    except BrokenPipeError:
        _drop_output()  # its reader left: so do we, quietly
        return 0
    except OSError as e:
        if e.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        _drop_output()
        return _fail(f"cannot write the output: {e.strerror}. Free some space, and try again.", 1)
    except KeyboardInterrupt:
        status_line("")
        return 130


def _drop_output() -> None:
    """What standard output has not taken yet would fail again as Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _fail(message: str, status: int) -> int:
    status_line("")
    print(f"gpudeck: {message}", file=sys.stderr)
    return status


def _window(args: argparse.Namespace) -> int:
    if not has_display():
        print(
            f"gpudeck: no display here, so the tour runs headless instead; its pictures go to {Path(DEFAULT_TOUR).absolute()}", flush=True
        )
        return _tour(argparse.Namespace(out=DEFAULT_TOUR, json=False, pictures=False))
    from app.main import run

    return run()


def has_display() -> bool:
    """Whether there is a screen to open a window on."""
    if os.environ.get("QT_QPA_PLATFORM", "").split(":")[0] in ("offscreen", "minimal"):
        return False
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _tour(args: argparse.Namespace) -> int:
    from app.tour import tour

    return tour(args)


def _serve(args: argparse.Namespace) -> int:
    from app.commands.serve import run  # its library is loaded where it is needed

    return run(args)


def _metrics(args: argparse.Namespace) -> int:
    from app.commands.metrics import metrics  # its library is loaded where it is needed

    return metrics(args)


class _Parser(argparse.ArgumentParser):
    """Says in one line what is wrong, and where the rest is told."""

    def error(self, message: str) -> NoReturn:
        if len(message) > _LINE:
            message = message.partition(" (choose from")[0]
        self.exit(2, f"gpudeck: {message}. See: {self.prog} --help\n")


def parser() -> argparse.ArgumentParser:
    """Of all commands."""
    parser = _Parser(
        prog="gpudeck", description="Watch your GPUs, queue work on them, run accelerated attention. Without a command: the window."
    )
    parser.add_argument("--version", action="version", version=f"gpudeck {__version__}")
    parser.set_defaults(run=_window, prog=parser.prog)
    verbs = parser.add_subparsers(title="commands", metavar="COMMAND")

    def verb(name: str, run: Command, text: str, *, json: bool = True) -> argparse.ArgumentParser:
        made = verbs.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        made.set_defaults(run=run, json=False, prog=made.prog)
        if json:
            made.add_argument("--json", action="store_true", help="print JSON")
        return made

    _look_verbs(verb)
    _job_verbs(verb)
    _word_verbs(verb)
    _care_verbs(verb)
    return parser


Verb = Callable[..., argparse.ArgumentParser]


def _look_verbs(verb: Verb) -> None:
    verb("status", watch.status, "what the devices do now, and which jobs wait or run")
    verb("watch", live.watch, "status, live until Ctrl+C; with --json one line of JSON whenever something changes")
    verb("processes", processes.processes, "list the processes that use a GPU: user, command, container, job, memory, share")
    made = verb("kill", processes.kill, "end a process of yours that uses a GPU, after asking; one of a job by cancelling the job")
    made.add_argument("pid", type=_count, metavar="PID", help="as gpudeck processes lists it")
    made.add_argument("--yes", action="store_true", help="do not ask")
    made = verb("alerts", alerts.alerts, "list what is the matter with devices and jobs, and what was")
    made.add_argument("--limit", type=_some, default=20, metavar="N", help="how many (default: 20)")
    made.add_argument("--acknowledge", type=_count, metavar="ALERT", help="say that you have seen it")
    made = verb("export", past.export, "write the history of the devices to a file")
    made.add_argument("--device", metavar="N", help="its index, or its id (default: all)")
    made.add_argument("--since", type=_seconds, default=3600.0, metavar="TIME", help="so long ago, e.g. 2h or 7d (default: 1h)")
    made.add_argument("--until", type=_seconds, default=0.0, metavar="TIME", help="so long ago (default: 0, now)")
    made.add_argument("--fields", default="", metavar="NAME,...", help="e.g. util,power (default: all that was read)")
    made.add_argument("--points", type=_points, metavar="N", help="at most so many rows a device (default: all that were kept)")
    made.add_argument("--out", required=True, metavar="FILE", help="its name ends with .csv or .parquet")
    made = verb("metrics", _metrics, "serve what the devices and the queue do to Prometheus", json=False)
    made.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="where to listen (default: 127.0.0.1, this machine alone)")
    made.add_argument("--port", type=_count, default=9835, metavar="N", help="0: any that is free (default: 9835)")
    made.add_argument("--no-token", action="store_true", help="let everybody read them who reaches it")
    made.add_argument("--once", action="store_true", help="print them once instead, e.g. for the textfile collector of node_exporter")
    made = verb("tour", _tour, "run the whole main job without a display: watch, run attention, brief, pictures of every page")
    made.add_argument("--out", default=DEFAULT_TOUR, metavar="DIR", help=f"where pictures and reports go (default: {DEFAULT_TOUR})")
    made.add_argument("--pictures", action="store_true", help="only the pictures, of what is there now; also of a REPLAY")
    made = verb("record", watch.record, "record a trace of the devices for replay")
    made.add_argument("file", metavar="FILE", help="a new file; play it with: gpudeck daemon start --source replay:FILE")
    made.add_argument("--seconds", type=_positive, default=60.0, help="how long (default: 60)")
    made.add_argument(
        "--phases", metavar="P=S,...", help="run workloads as jobs meanwhile, e.g. idle=30,gemm=40,attention=40,copy=40,idle=30"
    )


def _job_verbs(verb: Verb) -> None:
    made = verb("submit", queue.submit, "queue a command: gpudeck submit [options] -- COMMAND [ARG ...]")
    made.add_argument(
        "--gpus", type=_count, default=0, metavar="N", help="devices to hold for the job alone (default: 0; the CPU counts as one)"
    )
    made.add_argument(
        "--memory",
        type=_amount,
        default=0,
        metavar="SIZE",
        help="reserve so much on each GPU, e.g. 20GiB, and share it with other jobs that reserve (default: a GPU for itself)",
    )
    made.add_argument("--gpu-type", default="", metavar="NAME", help="only GPUs with this in their name, e.g. h100")
    made.add_argument("--priority", type=_integer, default=0, metavar="N", help="the higher, the earlier (default: 0)")
    made.add_argument("--timeout", type=_seconds, default=0.0, metavar="TIME", help="end it after so long, e.g. 2h; it has failed then")
    made.add_argument("--retries", type=_count, default=0, metavar="N", help="try it again so often where it fails (default: 0)")
    made.add_argument(
        "--backoff", type=_seconds, default=10.0, metavar="TIME", help="before the second attempt; twice as long each time (default: 10s)"
    )
    made.add_argument("--after", type=_ids, default=(), metavar="JOB,...", help="start it after these have succeeded")
    made.add_argument("--after-any", type=_ids, default=(), metavar="JOB,...", help="start it after these have ended, however")
    made.add_argument("--array", type=_indices, metavar="0-9", help="one job for each index, which it finds in GPUDECK_ARRAY_INDEX")
    made.add_argument("--group", default="", metavar="NAME", help="a group can be paused, and limited to so many jobs at once")
    made.add_argument("--hold", action="store_true", help="let it wait until: gpudeck resume JOB")
    made.add_argument("--notes", default="", metavar="TEXT")
    made.add_argument("--tag", dest="tags", action="append", default=[], metavar="TAG", help="may be given several times")
    made.add_argument("--on", dest="where", default="", metavar="CLUSTER", help="run it in a cluster, e.g. ray:lab (see: gpudeck cluster)")
    made.add_argument(
        "--env", dest="env", action="append", metavar="NAME[=VALUE]", help="with --on: a variable it gets there; may be given several times"
    )
    made.add_argument("--dry-run", action="store_true", help="submit nothing; say where and when it would start")
    made.add_argument("--name", help="shown in lists (default: the command's)")
    made.add_argument("--cwd", metavar="DIR", help="where it runs (default: here)")
    made.add_argument("--wait", action="store_true", help="wait for its end; the exit status tells whether it succeeded")
    made.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND")
    made = verb("run", queue.run, "queue an accelerated workload: gpudeck run attention seq=16384 causal=yes")
    made.add_argument("workload", metavar="WORKLOAD", help=", ".join(w.name for w in WORKLOADS))
    made.add_argument(
        "params", nargs="*", default=[], metavar="NAME=VALUE", help="its parameters; those left out have good defaults for this machine"
    )
    made.add_argument("--wait", action="store_true", help="wait for the result")
    _jobs_verb(verb("jobs", queue.jobs, "list the newest jobs, search all of them, or tell all about one"))
    made = verb("logs", queue.logs, "print what a job printed")
    made.add_argument("job", type=_count, metavar="JOB")
    made.add_argument("-f", "--follow", action="store_true", help="go on until the job ends")
    made = verb("wait", queue.wait, "wait for a job's end; the exit status tells whether it succeeded")
    made.add_argument("job", type=_count, metavar="JOB")
    made = verb("results", queue.results, "print what a job measured, or write it to a file")
    made.add_argument("job", type=_count, metavar="JOB")
    made.add_argument("--out", metavar="FILE", help="write it to FILE, whose name ends with .csv or .json")
    for name, run, text in (
        ("pause", orders.pause, "start nothing new: of the whole queue, of jobs, or of a group"),
        ("resume", orders.resume, "let the queue, jobs, or a group go on"),
    ):
        made = verb(name, run, text)
        made.add_argument("jobs", type=_count, nargs="*", metavar="JOB")
        made.add_argument("--group", metavar="NAME")
    _edit_verb(verb("edit", orders.edit, "change a job that waits; its name, notes and tags at any time"))
    made = verb("move", orders.move, "let a job that waits stand before or after another")
    made.add_argument("job", type=_count, metavar="JOB")
    made.add_argument("--before", type=_count, metavar="JOB")
    made.add_argument("--after", type=_count, metavar="JOB")
    made = verb("groups", orders.groups, "list the groups of jobs, or limit one")
    made.add_argument("name", nargs="?", metavar="NAME")
    made.add_argument("--limit", type=_count, metavar="N", help="so many of its jobs run at once; 0: no limit")
    made = verb("cancel", queue.cancel, "cancel a job that waits, or end one that runs; several may be named")
    made.add_argument("jobs", type=_count, nargs="+", metavar="JOB")


def _jobs_verb(made: argparse.ArgumentParser) -> None:
    made.add_argument("job", type=_count, nargs="?", metavar="JOB", help="tell all about this one, and what it went through")
    made.add_argument("--active", action="store_true", help="only those that wait or run")
    made.add_argument("--search", default="", metavar="TEXT", help="those with all of these words in name, command, notes, tags")
    made.add_argument("--status", type=_outcomes, default=(), metavar="STATUS,...", help=", ".join(OUTCOMES))
    made.add_argument("--group", metavar="NAME")
    made.add_argument("--device", default="", metavar="GPU", help="those that held this device: its index or UUID")
    made.add_argument("--since", type=_moment, metavar="WHEN", help="not ended before: so long ago (7d), or a date (2026-11-20T14:30)")
    made.add_argument("--until", type=_moment, metavar="WHEN", help="submitted before")
    made.add_argument("--limit", type=_some, default=20, metavar="N", help="how many (default: 20)")


def _edit_verb(made: argparse.ArgumentParser) -> None:
    made.add_argument("job", type=_count, metavar="JOB")
    made.add_argument("--name")
    made.add_argument("--gpus", type=_count, metavar="N")
    made.add_argument("--memory", type=_amount, metavar="SIZE")
    made.add_argument("--gpu-type", metavar="NAME")
    made.add_argument("--priority", type=_integer, metavar="N")
    made.add_argument("--timeout", type=_seconds, metavar="TIME")
    made.add_argument("--retries", type=_count, metavar="N")
    made.add_argument("--group", metavar="NAME")
    made.add_argument("--notes", metavar="TEXT")
    made.add_argument("--tag", dest="tags", action="append", metavar="TAG", help="instead of those it has; '' for none")


def _word_verbs(verb: Verb) -> None:
    made = verb("ask", words.ask, 'ask the assistant, e.g. gpudeck ask "what happened?"')
    made.add_argument("question", nargs="+", metavar="WORD")
    made.add_argument("--cpu", action="store_true", help="do not wait for a GPU that is busy: let the model run on the CPU")
    made.add_argument("--yes", action="store_true", help="allow what is proposed, once, without being asked")
    made = verb("permissions", words.permissions, "tell what the assistant must never propose, and take it back")
    made.add_argument("--forget", action="append", default=[], metavar="TOOL", help="such as 'operate cancel'; may be given several times")
    made = verb("serve", _serve, "let editors and scripts of yours use the model, by OpenAI's API, on this machine alone", json=False)
    made.add_argument("--port", type=_count, default=8420, metavar="N", help="default: 8420; 0: any that is free")
    made.add_argument("--cpu", action="store_true", help="use no GPU; a request asks for this itself by the header X-GPUDeck-Device: cpu")
    made.add_argument("--patience", type=_seconds, default=60.0, metavar="TIME", help="wait so long for a GPU that others use (60s)")
    made.add_argument("--new-token", action="store_true", help="make a new token; programs that have the old one are turned away")
    made = verb("report", words.report, "have the assistant write a report once the device is idle: what ran, failed, waited, used energy")
    about = made.add_mutually_exclusive_group()
    about.add_argument("--job", type=_count, metavar="JOB", help="on this job (default: on the last ten minutes)")
    about.add_argument("--since", type=_moment, metavar="WHEN", help="on all since so long ago (24h), or a date (2026-11-20T14:30)")
    about.add_argument("--daily", action="store_true", help="on the last 24 hours")
    made.add_argument("--format", choices=("md", "html", "pdf"), help="default: as FILE ends, else md")
    made.add_argument("--now", action="store_true", help="do not wait for an idle device")
    made.add_argument("--cpu", action="store_true", help="neither wait for a device nor use a GPU: let the model run on the CPU")
    made.add_argument("--out", metavar="FILE", help="write it to a file, charts and all")
    _model_verb(verb("models", models.models, "list the models for the assistant; add, fetch, choose, time or forget one"))


def _model_verb(made: argparse.ArgumentParser) -> None:
    made.add_argument("action", choices=models.ACTIONS, nargs="?", default="list", metavar="|".join(models.ACTIONS))
    made.add_argument("name", nargs="?", metavar="MODEL", help="its name in the list, its folder or file; with pull: OWNER/NAME")
    made.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="with benchmark: where to time it (default: cpu)")


def _care_verbs(verb: Verb) -> None:
    made = verb("daemon", care.daemon, "start, stop or look at the background process")
    made.add_argument("action", choices=("start", "stop", "status"), metavar="start|stop|status")
    made.add_argument(
        "--source", metavar="SOURCE", help="with start: what to watch from now on: auto, nvml, cpu, replay:FILE, replay:FILE*COPIES"
    )
    made = verb("cluster", clusters.cluster, "list the clusters that jobs can be submitted to, or name one")
    made.add_argument("action", choices=("list", "add", "remove"), nargs="?", default="list", metavar="list|add|remove")
    made.add_argument("name", nargs="?", metavar="KIND:NAME", help="such as ray:lab or slurm:hpc")
    made.add_argument("address", nargs="?", metavar="ADDRESS", help="of Ray: its dashboard, e.g. http://head:8265")
    made.add_argument("--token-file", default="", metavar="FILE", help="holds the cluster's token; nobody else may read it (chmod 600)")
    made.add_argument("--force", action="store_true", help="remove it although jobs run there; nobody will know how they end")
    _clean_verb(
        verb("clean", clean.clean, "find debris: old kernels, logs, core dumps, copies of models; move it to the trash after asking")
    )
    verb("diagnostics", care.diagnose, "print one text to paste into a bug report, without names, paths and secrets")
    made = verb("doctor", care.doctor, "check everything GPU Deck needs, and say what to do where something is amiss")
    made.add_argument("--repair", action="store_true", help="where the store is damaged: put one of all that is whole in its place")


def _clean_verb(made: argparse.ArgumentParser) -> None:
    made.add_argument("--kind", type=_kinds, default=(), metavar="KIND,...", help=", ".join(KINDS))
    made.add_argument("--seconds", type=_positive, default=SCAN_S, metavar="N", help=f"look no longer than so (default: {SCAN_S:.0f})")
    made.add_argument("--yes", action="store_true", help="do not ask")
    made.add_argument("--undo", nargs="?", const=clean.LAST, metavar="ID", help="put back what a clean-up moved (default: the last one)")
    made.add_argument("--empty", action="store_true", help="delete for good what clean-ups moved to the trash; nothing else there")
    made.add_argument(
        "--older-than", type=_seconds, default=0.0, metavar="TIME", help="with --empty: only what went there so long ago; unasked"
    )


def _kinds(text: str) -> tuple[str, ...]:
    wanted = tuple(part.strip() for part in text.split(","))
    if unknown := [part for part in wanted if part not in KINDS]:
        raise argparse.ArgumentTypeError(f"there is no kind {unknown[0]!r}. There are: {', '.join(KINDS)}")
    return wanted


def _count(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"a whole number, 0 or more, is needed; got {text!r}")
    return int(text)


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError as e:
        raise argparse.ArgumentTypeError(f"a whole number, also below 0, is needed; got {text!r}") from e


def _some(text: str) -> int:
    if (count := _count(text)) < 1:
        raise argparse.ArgumentTypeError(f"a whole number, 1 or more, is needed; got {text!r}")
    return count


def _points(text: str) -> int:
    if not 1 <= (count := _count(text)) <= MAX_POINTS:
        raise argparse.ArgumentTypeError(f"a number from 1 to {MAX_POINTS} is needed; got {text!r}")
    return count


def _amount(text: str) -> int:
    amount = 0 if text == "0" else _understood(parse_bytes, text)
    if 0 < amount < 2**20:
        raise argparse.ArgumentTypeError(f"{text} is less than 1 MiB: say with a unit what is meant, such as 20GiB")
    return amount


def _seconds(text: str) -> float:
    return 0.0 if text == "0" else _understood(parse_seconds, text)


def _indices(text: str) -> list[int]:
    return _understood(indices, text)


def _moment(text: str) -> float:
    return _understood(lambda given: parse_moment(given, time.time()), text)


def _outcomes(text: str) -> tuple[str, ...]:
    wanted = tuple(part.strip() for part in text.split(","))
    if unknown := [part for part in wanted if part not in OUTCOMES]:
        raise argparse.ArgumentTypeError(f"no job is {unknown[0]!r}. There are: {', '.join(OUTCOMES)}")
    return wanted


def _ids(text: str) -> tuple[int, ...]:
    return tuple(_count(part) for part in text.split(","))


def _understood(parse: Callable[[str], T], text: str) -> T:
    try:
        return parse(text)
    except UserError as e:
        raise argparse.ArgumentTypeError(str(e)) from e


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 86400:
        raise argparse.ArgumentTypeError(f"a number of seconds is needed; got {text!r}")
    return value


if __name__ == "__main__":
    sys.exit(main())
