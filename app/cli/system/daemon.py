"""Start, stop or check the background process."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path

from gpudeck.app.cli.connection import DaemonStatus, daemon_status, wait_for_reading
from gpudeck.app.cli.output import confirm, print_line, print_result
from gpudeck.app.cli.system import boot_unit, system_unit
from gpudeck.language.text import Span, join_texts, phrase
from gpudeck.scheduler.background.instance import hold_lock
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.devices.sources import open_source
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.errors import DaemonGone, UserError
from gpudeck.scheduler.protocol.snapshot import STARTING

START_S = 20.0
"""Seconds within which a new source must be read."""
_REPLAY = "replay:"
END_S = 20.0
"""Seconds within which the daemon must end."""
_JOBS_CONTINUE = "Running jobs continue, and the next daemon takes them over."


def add_arguments(parser: ArgumentParser) -> None:
    """Add the action, and the source of readings."""
    parser.add_argument(
        "action",
        choices=("start", "stop", "status", "install", "uninstall", "run"),
        metavar="start|stop|status|install|uninstall|run",
        help="what to do; install makes systemd start the daemon at boot, so that queued jobs "
        "continue; run stays in the foreground, for supervisors and containers",
    )
    parser.add_argument(
        "--source",
        metavar="SOURCE",
        help="with start: read the devices from auto, nvml, cpu, replay:FILE or "
        "replay:FILE*COPIES from now on",
    )
    parser.add_argument(
        "--system",
        action="store_true",
        help="with install, uninstall and run, as root: one daemon for all users of this machine; "
        "each job runs as the user who submitted it",
    )
    parser.add_argument(
        "--locks",
        choices=("mixed", "members"),
        metavar="mixed|members",
        help="with install, as root: only members of the group gpudeck can hold GPUs against other "
        "users' queues; mixed as long as queues of others, or of older versions, are left",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="with stop: kill a daemon that does not answer; running jobs continue",
    )


def run(args: Namespace) -> int | None:
    """Carry out the action that the arguments name."""
    actions: dict[str, Callable[[Namespace], int | None]] = {
        "start": _start,
        "stop": _stop,
        "status": _print_status,
        "install": _install,
        "uninstall": _uninstall,
        "run": _run,
    }
    return actions[args.action](args)


def _start(args: Namespace) -> int:
    with Client() as client:
        if args.source:
            source = _absolute(args.source)
            if source.startswith(_REPLAY):
                open_source(source)[0].close()  # raises, before anything is changed
            client.configure(source=source)
            _wait_for_source(client, args.source)
            if not args.json:
                print_line(f"Readings now come from {args.source}, also after a restart.")
                if source.startswith(_REPLAY):
                    print_line("It runs no GPU jobs. To end it: gpudeck daemon start --source auto")
    return _print_status(args)


def _absolute(source: str) -> str:
    """Return the source with an absolute path, because the daemon runs in another folder."""
    name, star, copies = source.removeprefix(_REPLAY).partition("*")
    if source.startswith(_REPLAY) and Path(name).is_file():
        return f"{_REPLAY}{Path(name).absolute()}{star}{copies}"
    return source


def _wait_for_source(client: Client, source: str) -> None:
    """Wait for the first reading of a new source, or raise UserError if there is none."""
    end = time.monotonic() + START_S
    while (snapshot := wait_for_reading(client, timeout=0.5)).source == STARTING:
        if snapshot.notices or time.monotonic() > end:
            why = (
                join_texts(snapshot.notices)
                if snapshot.notices
                else phrase("nothing was read within {span}", span=Span(START_S))
            )
            raise UserError(
                phrase(
                    "the source was set to {source}, but it cannot be read: {why}. "
                    "See: gpudeck doctor",
                    source=source,
                    why=why,
                )
            )


def _stop(args: Namespace) -> None:
    status = daemon_status()
    if not status.running:
        text = "The daemon is not running."
    elif status.answers and _ends_itself():
        text = f"The daemon has stopped. {_JOBS_CONTINUE}"
    else:
        text = _kill(args, status)
    print_result(args, daemon_status(), text)


def _ends_itself() -> bool:
    """Ask the daemon to end, and return True once it has ended."""
    try:
        with Client(start=False, timeout=END_S) as client:
            client.stop_daemon()
    except DaemonGone:
        pass  # it ended before it replied, or hangs
    return not daemon_status().running


def _kill(args: Namespace, status: DaemonStatus) -> str:
    """Kill a daemon that does not answer, if the user wants that. Raises UserError."""
    hung = phrase(
        "the daemon (pid {pid}) does not answer, and was not stopped", pid=str(status.pid)
    )
    question = f"The daemon (pid {status.pid}) does not answer. Kill it? Running jobs continue."
    may_ask = sys.stdin.isatty() and not args.json
    if not args.force and not (may_ask and confirm(question)):
        raise UserError(
            phrase(
                "{hung}. To kill it (running jobs continue): gpudeck daemon stop --force", hung=hung
            )
        )
    assert status.pid is not None
    try:
        process = os.pidfd_open(status.pid)
        try:
            if daemon_status().pid == status.pid:  # it still lives, so this is its descriptor
                signal.pidfd_send_signal(process, signal.SIGKILL)
            ended = bool(select.select([process], [], [], END_S)[0])
        finally:
            os.close(process)
    except OSError as e:
        raise UserError(
            phrase("{hung}: it cannot be killed: {error}", hung=hung, error=str(e.strerror))
        ) from e
    if not ended:
        raise UserError(
            phrase("{hung}: it was killed and does not end. Its disk or driver may hang", hung=hung)
        )
    return f"The daemon was killed. {_JOBS_CONTINUE}"


def _install(args: Namespace) -> None:
    """Have systemd start the daemon, in place of one that runs."""
    if args.locks:
        done = system_unit.install_locks(mixed=args.locks == "mixed")
        print_result(args, done, *(f"{line}." for line in done.notes))
        return
    if args.system:
        done = system_unit.install()
        _wait_until_it_answers(done.active)
        first = f"The daemon of all users is started at boot by {done.file}"
        print_result(args, done, *(f"{line}." for line in (first, *done.notes)))
        return
    if daemon_status().answers:
        _ends_itself()
    try:
        done = boot_unit.install()
        _wait_until_it_answers(done.active)
    finally:
        Client().close()  # queued jobs go on, also where systemd does not start the daemon
    first = f"systemd starts the daemon at boot (unit {done.file})"
    print_result(args, done, *(f"{line}." for line in (first, *done.notes)))


def _wait_until_it_answers(active: bool) -> None:
    """Wait for the first answer of a daemon that is active, as what starts it does not wait."""
    end = time.monotonic() + START_S
    while active and not daemon_status().answers and time.monotonic() < end:
        time.sleep(0.1)


def _uninstall(args: Namespace) -> None:
    done = system_unit.uninstall() if args.system else boot_unit.uninstall()
    first = f"{done.file} was removed"
    if not args.system:
        first += ". The next command starts the daemon again"
    print_result(args, done, *(f"{line}." for line in (first, *done.notes)))


def _run(args: Namespace) -> int:
    """Become the daemon. Raises UserError where it runs already."""
    if args.system:
        system_unit.prepare()
        os.environ["GPUDECK_HOME"], os.environ["GPUDECK_SYSTEM"] = str(paths.shared_home()), "1"
    with hold_lock(
        paths.daemon_lock(), phrase("the daemon of {folder} runs already", folder=str(paths.home()))
    ):
        pass
    os.chdir("/")
    os.execv(sys.executable, [sys.executable, "-P", "-m", "gpudeck.scheduler.daemon"])


def _print_status(args: Namespace) -> int:
    status = daemon_status()
    if status.running and not status.answers:
        text = (
            f"The daemon (pid {status.pid}) does not answer. Its log is in {status.log}. "
            "To end it: gpudeck daemon stop"
        )
    elif status.running:
        text = (
            f"The daemon is running (pid {status.pid}). Its state is in {status.home}, "
            f"its log in {status.log}."
        )
    else:
        text = "The daemon is not running. Start it with: gpudeck daemon start"
    print_result(args, status, text)
    return 0 if status.answers else 1
