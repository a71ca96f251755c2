"""Start interactive jobs, list them with what they hold, and open them again."""

from __future__ import annotations

import os
import shutil
import sys
import time
import webbrowser
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

import msgspec

from gpudeck.app.cli import arguments
from gpudeck.app.cli.connection import POLL_S, with_retries
from gpudeck.app.cli.output import (
    UsageError,
    clear_progress,
    print_line,
    print_list,
    print_result,
    show_progress,
)
from gpudeck.app.cli.queue.wait import WaitReasons
from gpudeck.app.format.job_rows import describe, device_labels
from gpudeck.app.format.values import ago
from gpudeck.app.sessions import files
from gpudeck.app.sessions.attach import attach
from gpudeck.app.sessions.files import NOTEBOOK, TERMINAL, Session
from gpudeck.language.numbers import amount, span
from gpudeck.language.text import phrase
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Job, Queued, held_devices

_SERVERS = ("jupyter-lab", "jupyter-notebook", "jupyter-server")
"""The commands that start Jupyter, the best one first."""
_MOST = 1000


class Row(msgspec.Struct):
    """Describe a session that waits or runs."""

    job: int
    kind: str
    name: str
    state: str
    holds: tuple[str, ...]
    """The devices that it has to itself, or shares."""
    memory: int
    """Bytes that it reserves on each of them; 0: the whole device."""
    active: float | None
    """When it was last used, in seconds since the epoch; None before it begins."""
    idle: float
    """Seconds without use after which it ends; 0: never."""


def add_session_arguments(parser: ArgumentParser, what: str) -> None:
    """Add the options of a job and of a session; `what` describes what follows after --."""
    arguments.add_job_options(parser)
    parser.add_argument(
        "--idle",
        type=arguments.duration,
        default=0.0,
        metavar="TIME",
        help="end the session after this time without use, e.g. 30m (default: never)",
    )
    parser.add_argument(
        "--no-open", action="store_true", help="only queue it; open it later with: open JOB"
    )
    parser.add_argument(
        "words",
        nargs="*",
        metavar="list | open JOB | -- ...",
        help=f"list all notebooks and shells, open one again, or {what}",
    )


def run_session(args: Namespace, kind: str) -> None:
    """Start a session of this kind, list all sessions, or open one again."""
    words = args.words
    if words[:1] == ["list"]:
        _list(args)
    elif words[:1] == ["open"]:
        _open(_named(words[1:], kind), args)
    else:
        job = _start(args, kind, words)
        if args.no_open:
            print_result(args, job, f"job {job.id}: to open it: gpudeck {kind} open {job.id}")
        else:
            _open(job.id, args)


def _named(words: Sequence[str], kind: str) -> int:
    if len(words) != 1 or not words[0].isdecimal():
        raise UsageError(f"open takes the number of a job. Example: gpudeck {kind} open 12")
    return int(words[0])


def _start(args: Namespace, kind: str, more: Sequence[str]) -> Job:
    """Queue the session."""
    for option in ("where", "container"):
        if getattr(args, option):
            raise UsageError(f"a {kind} runs on this machine, without a container")
    if kind == NOTEBOOK:
        command = [_jupyter(), *more]
    else:
        command = [*more] or [os.environ.get("SHELL") or "/bin/sh"]
    options = arguments.job_options(args)
    options.setdefault("gpus", 1)
    options.setdefault("name", kind)
    options["tags"] = (*options.get("tags", ()), kind)
    host = [sys.executable, "-P", "-m", f"gpudeck.app.sessions.{_HOSTS[kind]}"]
    with Client() as client:
        handle = client.submit([*host, str(args.idle), *command], **options)
        return client.job(handle.id)


_HOSTS = {NOTEBOOK: "notebook", TERMINAL: "terminal"}


def _jupyter() -> str:
    found = next(filter(None, map(shutil.which, _SERVERS)), None)
    if found is None:
        raise UserError(
            phrase(
                "Jupyter is not in your PATH. Install it in your environment: pip "
                "install jupyterlab"
            )
        )
    return found


def _open(number: int, args: Namespace) -> None:
    """Wait until the session runs, then open it here."""
    job, session = _begun(number)
    if session is None:
        raise UserError(
            phrase(
                "job {number} is no session that can be opened: {state}",
                number=number,
                state=describe(job),
            )
        )
    if session.kind == NOTEBOOK:
        print_result(args, session, f"job {number}: {session.url}")
        webbrowser.open(session.url)
        return
    print_line(f"job {number}: to leave it running, press Ctrl+] or close the window")
    with Client() as client:
        ended = attach(files.socket_of(client.artefact_folder(number)))
    print_line("" if ended else f"To come back: gpudeck shell open {number}")


def _begun(number: int) -> tuple[Job, Session | None]:
    """Return the job once its session has begun or it has ended; say why it waits."""
    reasons = WaitReasons()
    try:
        while True:
            job = with_retries(lambda client: client.job(number))
            with Client() as client:
                session = files.read(client.artefact_folder(number))
            if not job.active:
                return job, None
            if session is not None and not isinstance(job.state, Queued):
                return job, session
            show_progress(describe(job))
            reasons.tell(job)
            time.sleep(POLL_S)
    finally:
        clear_progress()


def _list(args: Namespace) -> None:
    """List all sessions that wait or run."""
    with Client() as client:
        snapshot, now = client.snapshot(live=False), time.time()
        labels = device_labels(snapshot)
        rows = []
        for job in client.jobs(_MOST, active=True):
            kind = next((kind for kind in _HOSTS if kind in job.spec.tags), None)
            if kind is None:
                continue
            session = files.read(client.artefact_folder(job.id))
            active, idle = (session.active, session.idle) if session else (None, 0.0)
            held = tuple(labels.get(device, device) for device in held_devices(job))
            memory = job.spec.memory
            rows.append(Row(job.id, kind, job.spec.name, describe(job), held, memory, active, idle))
    print_list(
        args, rows, ("JOB", "KIND", "NAME", "HOLDS", "LAST USED", "ENDS AFTER", "STATE"),
        [_cells(row, now) for row in rows], "No notebook or shell waits or runs.",
    )  # fmt: skip


def _cells(row: Row, now: float) -> tuple[str, ...]:
    size = f" ({amount(row.memory)} each)" if row.memory and row.holds else ""
    return (
        str(row.job), row.kind, row.name, ", ".join(row.holds) + size,
        "" if row.active is None else ago(row.active, now),
        f"{span(row.idle)} idle" if row.idle else "never", row.state,
    )  # fmt: skip
