"""The starter's side: start a background process, and wait until it answers."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpudeck.language.text import Message, Span, Text, phrase
from gpudeck.scheduler.background import unit
from gpudeck.scheduler.protocol import paths, wire
from gpudeck.scheduler.protocol.errors import DaemonGone, UserError

READY = "ready"
"""The only line that a background process prints once it answers; another line is an error."""
STILL_S, LONGEST_S = 10.0, 120.0
"""A starting process is given up after it used no CPU for the first time, or for the second."""
MAX_LOG = 2**20
"""Bytes of a log, after which it is renamed to `.old`."""


def open_log(file: Path) -> int:
    """Return a descriptor that appends to the log. Raises OSError."""
    if file.exists() and file.stat().st_size > MAX_LOG:
        file.replace(file.with_name(file.name + ".old"))
    return os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, paths.PRIVATE_FILE)


def start_daemon() -> None:
    """Start the daemon and wait until it answers. Raises UserError with its own message.

    Where a unit of systemd is installed for it, systemd starts it, so that it can give jobs groups
    of their own. Where that fails, its log says so.
    """
    if unit.is_installed():
        problem = unit.systemctl("start", unit.UNIT)
        if not problem and _answers_within(STILL_S):
            return
        _log(f"{unit.UNIT} did not start the daemon: {problem or 'it does not answer'}")
    start_process("gpudeck.scheduler.daemon", paths.daemon_log(), phrase("the daemon"))


def _answers_within(seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            wire.Connection(paths.daemon_socket(), timeout=1.0).close()
            return True
        except DaemonGone:
            time.sleep(0.05)
    return False


def _log(line: str) -> None:
    try:
        with open(open_log(paths.daemon_log()), "a") as log:
            log.write(f"{line}\n")
    except OSError:
        pass  # whoever starts the daemon learns that it has no log


def start_process(
    module: str,
    log: Path,
    name: Text,
    env: Mapping[str, str] | None = None,
    arguments: Sequence[str] = (),
) -> None:
    """Run `python -m module` in a session of its own, and wait until it answers.

    A process that finds another instance reports READY once that one answers. The state folder is
    passed on as a whole path, as the process runs in `/`.

    Args:
        module: The module to run.
        log: Takes its standard error.
        name: Its name in messages.
        env: Variables to add to the environment.
        arguments: Of the module.

    Raises:
        UserError: It did not start.
    """
    paths.ensure(log.parent)
    try:
        fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, paths.PRIVATE_FILE)
    except OSError as e:
        raise UserError(
            phrase(
                "{name} cannot write its log {log}: {error}",
                name=name,
                log=str(log),
                error=str(e.strerror),
            )
        ) from e
    # with a folder of its own it would use a daemon of its own
    home = {} if paths.uses_shared() else {"GPUDECK_HOME": str(paths.home())}
    try:
        # -P: files in the caller's working directory must not be imported in place of our modules
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=fd,
            start_new_session=True,
            cwd="/",
            env={**os.environ, **home, **(env or {})},
        )
    finally:
        os.close(fd)
    said = _first_line(process)
    if said == READY:
        process.returncode = 0  # it outlives us, and Popen must not complain about that
        return
    process.kill()
    process.wait()
    raise UserError(
        phrase(
            "{name} did not start: {why}",
            name=name,
            why=said or phrase("it ended with an error; see {log}", log=str(log)),
        )
    )


def _first_line(process: subprocess.Popen[bytes]) -> Message:
    """Return the first line that it prints, or an error where it hangs.

    A process that uses the CPU is not hung but slow, on a machine that is busy.
    """
    import psutil  # needed only here

    began, before = time.monotonic(), 0.0
    assert process.stdout is not None
    with process.stdout as out, selectors.DefaultSelector() as selector:
        selector.register(out, selectors.EVENT_READ)
        while not selector.select(STILL_S):
            waited = time.monotonic() - began
            used = sum(psutil.Process(process.pid).cpu_times()[:2])
            if used == before or waited > LONGEST_S:
                return phrase("no answer within {span}", span=Span(round(waited)))
            before = used
        return out.readline().decode(errors="replace").strip()
