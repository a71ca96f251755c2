"""daemon and doctor: looking after GPU Deck itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Literal

import msgspec

from app import __version__
from app.cli.output import say, say_json
from app.cli.watch import first_reading
from app.settings.diagnostics import diagnostics
from assistant.library.describe import describe
from scheduler.background.instance import alone
from scheduler.client import Client
from scheduler.devices.sources import open_source
from scheduler.protocol import paths, settings
from scheduler.protocol.errors import DaemonGone, UserError
from scheduler.protocol.snapshot import STARTING

FREE_BYTES = 500 * 2**20
"""Less than this on the disk of the state folder is a warning."""
START_S = 20.0
"""Seconds that a new source of readings is given."""


class DaemonStatus(msgspec.Struct):
    running: bool
    pid: int | None
    home: str
    log: str


def daemon(args: Namespace) -> int:
    return {"start": _start, "stop": _stop, "status": _status}[args.action](args)


def _start(args: Namespace) -> int:
    with Client() as deck:
        if args.source:
            source = _absolute(args.source)
            if source.startswith("replay:"):
                open_source(source)[
                    0
                ].close()  # one that cannot be played is told before anything is changed
            deck.configure(source=source)
            _see(deck, args.source)
            if not args.json:
                say(f"the source of readings is {args.source} from now on, also after a restart")
    return _status(args)


def _see(deck: Client, source: str) -> None:
    """Raises UserError where the source that was just set cannot be read."""
    end = time.monotonic() + START_S
    while (snapshot := first_reading(deck, timeout=0.5)).source == STARTING:
        if snapshot.notices or time.monotonic() > end:
            why = "; ".join(snapshot.notices) or f"nothing was read within {START_S:.0f} s"
            raise UserError(f"the source {source} is set, but: {why}. See: gpudeck doctor")


def _absolute(source: str) -> str:
    """A recording is named from where the user stands; the daemon stands elsewhere."""
    name, star, copies = source.removeprefix("replay:").partition("*")
    if source.startswith("replay:") and Path(name).is_file():
        return f"replay:{Path(name).absolute()}{star}{copies}"
    return source


def _stop(args: Namespace) -> int:
    was_running = True
    try:
        with Client(start=False) as deck:
            deck.stop_daemon()
    except DaemonGone:
        was_running = False
    if args.json:
        say_json(daemon_status())
    elif was_running:
        say("the daemon has stopped; running jobs run on, and the next daemon takes them over")
    else:
        say("the daemon does not run")
    return 0


def _status(args: Namespace) -> int:
    """Exit status 0 where it runs, 1 where it does not."""
    state = daemon_status()
    if args.json:
        say_json(state)
    elif state.running:
        say(f"the daemon runs (pid {state.pid}); state in {state.home}, log in {state.log}")
    else:
        say("the daemon does not run. Start it with: gpudeck daemon start")
    return 0 if state.running else 1


def daemon_status() -> DaemonStatus:
    try:
        Client(start=False, timeout=3.0).close()
        running = True
    except DaemonGone:
        running = False
    try:
        pid = int(paths.daemon_lock().read_text()) if running else None
    except (OSError, ValueError):
        pid = None
    return DaemonStatus(running, pid, str(paths.home()), str(paths.daemon_log()))


class Finding(msgspec.Struct):
    """One thing the doctor looked at."""

    what: str
    verdict: Literal["ok", "warning", "failure"]
    words: str


def doctor(args: Namespace) -> int:
    """Look at everything GPU Deck needs; exit status 1 where something is broken."""
    checks: list[tuple[str, Callable[[], str]]] = [
        ("Python and packages", _packages),
        ("state folder", _home),
        ("disk", _disk),
        ("settings", _settings),
        ("store", _repaired if args.repair else _store),
        ("window libraries", _window),
        ("daemon", _daemon),
        ("devices", _devices),
    ]
    findings = [_examine(what, check) for what, check in checks]
    if args.json:
        say_json(findings)
    else:
        for f in findings:
            say(f"{f.verdict:8} {f.what}: {f.words}")
    return 1 if any(f.verdict == "failure" for f in findings) else 0


class _Warning(Exception):
    pass


def _examine(what: str, check: Callable[[], str]) -> Finding:
    try:
        return Finding(what, "ok", check())
    except _Warning as e:
        return Finding(what, "warning", str(e))
    except UserError as e:
        return Finding(what, "failure", str(e))


def _packages() -> str:
    names = ("torch", "PySide6-Essentials", "pyqtgraph", "nvidia-ml-py", "safetensors")
    found = ", ".join(f"{name} {metadata.version(name)}" for name in names if _installed(name))
    if missing := [name for name in names if not _installed(name)]:
        raise UserError(f"{', '.join(missing)} not installed. Run: make run")
    return f"GPU Deck {__version__}, Python {sys.version.split()[0]}, {found}"


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _home() -> str:
    home = paths.ensure(paths.home())
    if not os.access(home, os.W_OK):
        raise UserError(
            f"{home} cannot be written to. Set GPUDECK_HOME to a folder you can write to."
        )
    return str(home)


def _disk() -> str:
    free = shutil.disk_usage(paths.home()).free
    words = f"{free / 2**30:.1f} GiB free"
    if free < FREE_BYTES:
        raise _Warning(f"{words} where the state folder is; jobs and logs need room")
    return words


def _settings() -> str:
    used = settings.load().model
    if not used:
        return "valid; no model, so templates write all texts"
    model = describe(used)
    if model.problem:
        raise UserError(f"the assistant's model cannot be used: {model.problem}")
    return f"valid; the assistant's model is {model.name} ({model.path})"


def _store() -> str:
    if daemon_status().running:
        return "in use by the daemon"
    from scheduler.store.repair import examine

    file = paths.store_file()
    if not file.exists():
        return "none yet"
    if amiss := examine(file, _folders()):
        raise UserError(f"{amiss}. To save what is whole: gpudeck doctor --repair")
    return f"whole ({file})"


def _repaired() -> str:
    """A store of all that is whole, where it is damaged. Nobody may have it meanwhile."""
    from scheduler.store.repair import examine, numbers, rebuild

    with alone(
        paths.daemon_lock(),
        "the daemon runs, and has the store open. Stop it first: gpudeck daemon stop",
    ):
        file = paths.store_file()
        amiss = examine(file, _folders()) if file.exists() else ""
        if not amiss:
            return "whole: there is nothing to repair"
        rescue = rebuild(file, _folders())
    lost = (
        f"lost: {numbers(rescue.lost)} (what is left of them is under {paths.home() / 'jobs'})"
        if rescue.lost
        else "none is lost"
    )
    held = f", held for want of their environment: {numbers(rescue.held)}" if rescue.held else ""
    raise _Warning(
        f"it was damaged ({amiss}); {rescue.jobs} jobs were saved, {lost}{held}. The damaged file is kept: {rescue.kept}"
    )


def _folders() -> list[int]:
    """Numbers of the jobs of which there is a folder."""
    return [
        int(folder.name) for folder in (paths.home() / "jobs").glob("*") if folder.name.isdigit()
    ]


def _window() -> str:
    """Tried in a process of its own: libraries that are missing must not end the doctor."""
    tried = subprocess.run(
        [sys.executable, "-P", "-c", "import app.shell.window"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "QT_QPA_PLATFORM": "offscreen"},
    )
    if tried.returncode:
        from app.shell.qtcheck import explain

        raise UserError(
            explain(
                tried.stderr.strip().splitlines()[-1]
                if tried.stderr.strip()
                else "PySide6 cannot be imported"
            )
        )
    return "present"


def _daemon() -> str:
    with Client() as deck:
        notices = deck.snapshot().notices
    if notices:
        raise _Warning("; ".join(notices))
    return f"answers (pid {daemon_status().pid})"


def _devices() -> str:
    with Client() as deck:
        snapshot = first_reading(deck)
    if not snapshot.devices:
        raise UserError("no device can be read; see the log: " + str(paths.daemon_log()))
    names = Counter(s.device.name for s in snapshot.devices)
    return f"{', '.join(f'{count} x {name}' if count > 1 else name for name, count in names.items())}; readings from {snapshot.source}"


def diagnose(args: Namespace) -> int:
    """One text to paste into a bug report; with no daemon, what can be said without it."""
    try:
        with Client(start=False, timeout=5.0) as deck:
            text = diagnostics(deck.snapshot(), deck.alerts(20))
    except DaemonGone:
        text = diagnostics(None)
    if args.json:
        say_json({"diagnostics": text})
    else:
        for line in text.splitlines():
            say(line)
    return 0
