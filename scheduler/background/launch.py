"""Starting a background process of ours and learning whether it came up."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from scheduler.protocol import paths
from scheduler.protocol.errors import UserError

READY = "ready"
"""What a background process prints on its standard output, alone on a line, once its door is open; anything else is why not."""
STILL_S, LONGEST_S = 10.0, 120.0
"""A process that is starting is given up where it computed nothing for so long, or did not answer in so long."""
MAX_LOG = 2**20
"""Bytes of a log, after which it is put aside as the old one."""


def open_log(file: Path) -> int:
    """A descriptor that appends to the log. Raises OSError."""
    if file.exists() and file.stat().st_size > MAX_LOG:
        file.replace(file.with_name(file.name + ".old"))
    return os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, paths.PRIVATE_FILE)


def start_daemon() -> None:
    """Start the daemon and wait until it answers. Raises UserError with the daemon's own words where it could not start."""
    start_process("scheduler.daemon", paths.daemon_log(), "the daemon")


def start_process(module: str, log: Path, what: str, env: Mapping[str, str] | None = None) -> None:
    """Run `python -m module` in a session of its own, its errors going to `log`, and wait for its READY line.

    `env` is added to the environment, and the state folder: a relative GPUDECK_HOME would mean another one to a process in `/`.
    A process that finds another one running already says READY once that one answers. Raises UserError where it does not come up.
    """
    paths.ensure(log.parent)
    try:
        fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, paths.PRIVATE_FILE)
    except OSError as e:
        raise UserError(f"{what} cannot write its log {log}: {e.strerror}") from e
    try:
        # -P: what lies in the caller's working directory must not be imported in place of our modules
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", module],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=fd,
            start_new_session=True,
            cwd="/",
            env={**os.environ, "GPUDECK_HOME": str(paths.home()), **(env or {})},
        )
    finally:
        os.close(fd)
    said = _first_line(process)
    if said == READY:
        # it lives on after us: there is nobody to wait for, so tell Popen not to complain about it
        process.returncode = 0
        return
    process.kill()
    process.wait()
    raise UserError(f"{what} did not start: {said or f'it ended with an error; see {log}'}")


def _first_line(process: subprocess.Popen[bytes]) -> str:
    """What it says first; that it says nothing where it hangs. One that gets on is only slow, on a machine that has much to do."""
    import psutil  # only who starts a process needs it

    began, before = time.monotonic(), 0.0
    assert process.stdout is not None
    with process.stdout as out, selectors.DefaultSelector() as waiting:
        waiting.register(out, selectors.EVENT_READ)
        while not waiting.select(STILL_S):
            waited, computed = (
                time.monotonic() - began,
                sum(psutil.Process(process.pid).cpu_times()[:2]),
            )
            if computed == before or waited > LONGEST_S:
                return f"no answer within {waited:.0f} s"
            before = computed
        return out.readline().decode(errors="replace").strip()
