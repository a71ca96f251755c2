"""The runner: one process for each job, which outlives the daemon.

It uses the standard library only and starts in a few milliseconds, also before there is a job for
it. It waits at a gate (its standard input) until the daemon has committed who runs the job, and
learns all that it needs to know there. Then it runs the command in a process group of its own,
with its output going straight into the log, which it keeps within its limit. Orphans of the job
are its children (it is a subreaper), so that it ends the whole tree. It writes how the job ended
into a file, synced and renamed into place: that file, not the daemon's memory, is the truth.

    python scheduler/executors/runner.py
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

if not __package__:  # run as a script, which finds nothing but the standard library
    sys.path.append(str(Path(__file__).parents[2]))

from scheduler.executors.log_cap import LogCap
from scheduler.executors.remote_runner import PR_SET_CHILD_SUBREAPER, EndRequest, reap_tree

RETRY_S = 0.5
CHECK_S = 1.0
"""Seconds between two checks of the log, which exceeds its limit by what is printed meanwhile."""
FAST_CHECK_S = 0.1
"""The same while the log grows fast."""
EXIT_FILE = "exit.json"


def main() -> int:
    """Run the job that comes through the gate, and return the exit status."""
    os.umask(0o077)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    gate = sys.stdin.buffer.readline()
    if not gate.endswith(b"\n"):
        return 3  # the daemon died before it committed who runs the job, so nothing may run
    launch = json.loads(gate)
    os.chdir(launch["folder"])  # it stays ours wherever it is moved
    folder = Path()
    lock = os.open(folder / "runner.lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)  # the runner of an earlier attempt may not be quite gone
    os.ftruncate(lock, 0)
    # the record that the job may have run: where it is missing, the job never did
    os.write(lock, launch["attempt"].encode())
    started = time.time()
    end = _run(launch, folder)
    record = {"attempt": launch["attempt"], "started": started, "ended": time.time(), **end}
    _write(folder / EXIT_FILE, launch["folder"], record)
    return 0


def _run(launch: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Run the command, and return the fields of its exit record that tell how it ended."""
    nice = launch.get("nice", 0)
    try:
        with (folder / "log").open("ab") as log:
            child = subprocess.Popen(
                launch["argv"],
                cwd=launch["cwd"],
                env=launch["env"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=partial(os.nice, nice) if nice else None,  # noqa: PLW1509 - one thread
                process_group=0,  # the session stays ours: the daemon finds all by it, if we die
            )
            end = EndRequest(lambda number: _send(child, number))
            end.limit(launch.get("timeout", 0.0))
            uncapped = _wait(child, log.fileno(), launch.get("log_limit", 0))
            return {"code": child.returncode, "error": "", "over": end.over, "uncapped": uncapped}
    except OSError as e:
        why = e.strerror if Path(launch["cwd"]).is_dir() else "there is no such folder any more"
        error = f"cannot start {launch['argv'][0]!r} in {launch['cwd']}: {why}"
        return {"code": None, "error": error}
    finally:
        reap_tree()


def _send(child: subprocess.Popen[bytes], number: int) -> None:
    if child.returncode is None:
        try:
            os.killpg(child.pid, number)
        except ProcessLookupError:
            pass  # it ended in this moment


def _wait(child: subprocess.Popen[bytes], log: int, limit: int) -> str:
    """Wait for the end of the command, and keep its log within `limit` bytes (0: any number).

    Returns why the log exceeds the limit; an empty text where it does not.
    """
    cap, pause = LogCap(log, limit), CHECK_S
    # an end between the two next lines ends the wait, too
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    while not _ended(child):
        signal.sigtimedwait({signal.SIGCHLD}, pause)
        cap.enforce()
        pause = FAST_CHECK_S if cap.grows_fast else CHECK_S
    reap_tree()  # from here on nobody writes
    cap.enforce()
    return cap.error


def _ended(child: subprocess.Popen[bytes]) -> bool:
    """Return whether the command has ended. Reap its orphans, which are our children."""
    while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT | os.WNOHANG)) is not None:
        if ended.si_pid == child.pid:
            child.wait()
            return True
        os.waitpid(ended.si_pid, 0)
    return False


def _write(file: Path, folder: str, content: dict[str, Any]) -> None:
    """Write the file into our folder, or into a new one where somebody deleted that meanwhile."""
    new = file.with_suffix(".new")
    while True:
        try:
            with new.open("w") as f:
                json.dump(content, f)
                f.flush()
                os.fsync(f.fileno())
            break
        except FileNotFoundError:
            if not Path(folder).is_dir():
                Path(folder).mkdir(0o700)
            os.chdir(folder)
        except OSError as e:
            if e.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            time.sleep(RETRY_S)  # the disk is full: how the job ended must not be lost over that
    new.rename(file)
    fd = os.open(file.parent, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


if __name__ == "__main__":
    sys.exit(main())
