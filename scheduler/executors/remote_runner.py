"""The runner of an attempt on another machine: its source goes there with the job. Standard library only, Python 3.9 or newer.

It runs the command with its output going where its own goes, ends the whole tree when it is told to or the time is over, and says
between which of the bytes the command's output stands, how it ended, and what Result it left: whoever reads the output has it all.
Unlike the runner of this machine it makes no process group: by its own, the cluster kills the attempt.

    GPUDECK_RUNNER=<this source> GPUDECK_LAUNCH=<JSON> python3 -c 'import os; exec(os.environ["GPUDECK_RUNNER"])' COMMAND [ARG ...]
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
TERM_GRACE_S = 5.0
"""Between the polite and the other signal."""
MAX_RESULT = 2**20
"""Bytes of a Result file; a larger one is not brought home."""


COMMAND = """exec python3 -c 'import os; exec(os.environ["GPUDECK_RUNNER"])'"""
"""What a cluster's shell is to run, followed by the command and its arguments."""


def claim(folder: Path, attempt: str) -> Path:
    """Exists in the job's folder once the attempt has begun, where the cluster shares our file system."""
    return folder / f"claim.{attempt}"


def begin_line(attempt: str) -> bytes:
    """Stands before the command's output."""
    return json.dumps({"gpudeck": "begin", "attempt": attempt}).encode() + b"\n"


def end_mark(attempt: str) -> bytes:
    """Stands behind the command's output, and begins a line: JSON of `Exit`, and with the Result as `result`."""
    return b"\n" + json.dumps({"gpudeck": "ended", "attempt": attempt}).encode()[:-1]


def main(argv: list[str], launch: dict[str, object]) -> int:
    attempt, timeout = str(launch["attempt"]), float(str(launch["timeout"]))
    shared = _shared(Path(str(launch["folder"])), attempt)
    if shared is not None and not _claimed(shared, attempt):
        return 1  # a second copy of this attempt, which a confused cluster started: one has run
    out = sys.stdout.buffer
    out.write(begin_line(attempt))
    out.flush()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    started = time.time()
    with tempfile.TemporaryDirectory() as own:
        result = Path(own) / "result.json"
        artefacts = (
            shared / "artefacts"
            if shared is not None
            else Path(tempfile.mkdtemp(prefix=f"gpudeck-{attempt[:8]}-"))
        )
        code, error, over = _run(
            argv,
            launch,
            timeout,
            {"GPUDECK_RESULT": str(result), "GPUDECK_ARTEFACTS": str(artefacts)},
        )
        said = {
            "started": started,
            "ended": time.time(),
            "code": code,
            "error": error,
            "over": over,
            "result": _read(result),
        }
    if shared is None and not _emptied(artefacts):
        out.write(f"\nartefacts stay on {socket.gethostname()} in {artefacts}".encode())
    out.write(end_mark(attempt) + b", " + json.dumps(said).encode()[1:] + b"\n")
    out.flush()
    return 124 if over else 127 if code is None else code if code >= 0 else 128 - code


def _shared(folder: Path, attempt: str) -> Path | None:
    """The job's own folder, where this machine sees the same: whoever sent us left the attempt's name there."""
    try:
        return folder if (folder / "attempt").read_text() == attempt else None
    except OSError:
        return None


def _claimed(folder: Path, attempt: str) -> bool:
    """Whether we are the first to run this attempt."""
    try:
        claim(folder, attempt).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _run(
    argv: list[str], launch: dict[str, object], timeout: float, more: dict[str, str]
) -> tuple[int | None, str, float]:
    """Exit status, why it could not be started, and the limit of time that ended it (0 where none did)."""
    env = {
        name: value
        for name, value in os.environ.items()
        if name not in ("GPUDECK_RUNNER", "GPUDECK_LAUNCH")
    }
    given = launch["env"]
    assert isinstance(given, dict)
    over: list[float] = []
    told: list[int] = []

    def polite(number: int, frame: object) -> None:
        told.append(number)
        _signal_tree(signal.SIGTERM)
        signal.setitimer(signal.ITIMER_REAL, TERM_GRACE_S)

    def alarm(number: int, frame: object) -> None:
        if told:
            _signal_tree(signal.SIGKILL)
        else:
            over.append(timeout)
            polite(number, frame)

    signal.signal(signal.SIGALRM, alarm)
    signal.signal(signal.SIGTERM, polite)
    try:
        child = subprocess.Popen(
            argv,
            cwd=str(launch["cwd"]),
            env={**env, **given, **more},
            stdin=subprocess.DEVNULL,
            stderr=sys.stdout,
        )
    except OSError as e:
        where = f"{launch['cwd']!r} on {socket.gethostname()}"
        return (
            None,
            f"cannot start {argv[0]!r} in {where}: {e.strerror} (folder and command must exist there, too)",
            0.0,
        )
    if told:  # while it was being started
        child.terminate()
    elif timeout:
        signal.setitimer(signal.ITIMER_REAL, timeout)
    while (
        ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
    ) is not None and ended.si_pid != child.pid:
        os.waitpid(ended.si_pid, 0)  # its orphans are our children
    code = child.wait()
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    _reap_tree()
    return code, "", sum(over)


def _signal_tree(number: int) -> None:
    for pid in _tree(os.getpid()):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass  # it ended in this moment


def _tree(pid: int) -> list[int]:
    """All that descend from a process."""
    found: list[int] = []
    for child in _children(pid):
        found += [child, *_tree(child)]
    return found


def _children(pid: int) -> list[int]:
    try:
        return [
            int(child)
            for task in Path(f"/proc/{pid}/task").iterdir()
            for child in (task / "children").read_text().split()
        ]
    except OSError:
        return []  # it ended in this moment


def _reap_tree() -> None:
    """Kill what the command left behind; its orphans show up as our children, one generation at a time."""
    while children := _children(os.getpid()):
        for pid in children:
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            except (ProcessLookupError, ChildProcessError):
                continue


def _read(result: Path) -> str:
    """The Result file; empty where there is none of a sensible size."""
    try:
        return result.read_text() if result.stat().st_size <= MAX_RESULT else ""
    except (OSError, ValueError):
        return ""


def _emptied(folder: Path) -> bool:
    try:
        folder.rmdir()
    except OSError:
        return False
    return True


if __name__ == "__main__" and "GPUDECK_LAUNCH" in os.environ:
    sys.exit(main(sys.argv[1:], json.loads(os.environ["GPUDECK_LAUNCH"])))
