"""Run as a job: append the job's token to the ledger, then do what its kind does.

The ledger is opened with O_APPEND and synced after each line, so that the runs of a job are counted
without the store. A job that is about to end by itself appends another line with its exit status.

python -S -E victim.py KIND LEDGER TOKEN [SECONDS]
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from pathlib import Path

KIND, LEDGER, TOKEN = sys.argv[1:4]
SECONDS = float(sys.argv[4]) if len(sys.argv) > 4 else 0.0
TOKEN += "." + os.environ.get("GPUDECK_ARRAY_INDEX", "")
ATTEMPT = int(os.environ.get("GPUDECK_TRY", "1"))
RUNNER = os.getppid()


def record(*words: object) -> None:
    """Append a line by one write(2), so that those of several jobs cannot mix."""
    fd = os.open(LEDGER, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(fd, " ".join(map(str, (TOKEN, ATTEMPT, *words))).encode() + b"\n")
    os.fsync(fd)
    os.close(fd)


def fork_away(seconds: float = 600.0) -> None:
    """Leave a process behind in a session of its own whose parent has ended."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(seconds)
        os._exit(0)
    os.wait()


def attack(kind: str) -> int:
    """Attack the queue from inside a job, and return the job's exit status."""
    artefacts = Path(os.environ["GPUDECK_ARTEFACTS"])
    folder, treasure = artefacts.parent, Path(LEDGER).with_name("treasure")
    lock, new = folder / "runner.lock", folder / "exit.new"
    match kind:
        case "folder chmod 0":
            folder.chmod(0)
        case "artefacts chmod 0":
            artefacts.chmod(0)
        case "jobs chmod 0":
            folder.parent.chmod(0)
        case "artefacts group writable":
            artefacts.chmod(0o770)
            return 1
        case "lock removed":
            lock.unlink()
            return 1
        case "lock removed, runner killed":
            lock.unlink()
            os.kill(RUNNER, signal.SIGKILL)
            time.sleep(600)
        case "lock is a folder":
            lock.unlink()
            lock.mkdir()
            return 1
        case "lock is a folder, runner killed":
            lock.unlink()
            lock.mkdir()
            os.kill(RUNNER, signal.SIGKILL)
            time.sleep(600)
        case "exit.new is a link":
            new.symlink_to(treasure)
        case "exit.new is a link to a full device":
            new.symlink_to("/dev/full")
        case "exit.new is a folder":
            new.mkdir()
        case "exit.json is a folder":
            (folder / "exit.json").mkdir()
        case "log is a pipe":
            (folder / "log").unlink()
            os.mkfifo(folder / "log")
        case "folder deleted":
            shutil.rmtree(folder)
        case "jobs deleted":
            shutil.rmtree(folder.parent, ignore_errors=True)
        case "runner stopped by its job":
            os.kill(RUNNER, signal.SIGSTOP)
            time.sleep(SECONDS)
            os.kill(RUNNER, signal.SIGCONT)
        case "daemon killed by a job":
            os.kill(int((folder.parents[1] / "daemon.lock").read_text()), signal.SIGKILL)
    return 0


record("begins")
code = 0
match KIND:
    case "quick" | "array" | "ask":
        pass
    case "fail" | "hopeless":
        code = 3
    case "flaky":  # fails the first time
        code = int(ATTEMPT == 1)
    case "slow" | "cancelled":
        time.sleep(0.3)
    case "overtime":
        time.sleep(600)
    case "fork":
        fork_away()
    case "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        fork_away()
        time.sleep(600)
    case _:
        code = attack(KIND)
record("ends", code)
sys.exit(code)
