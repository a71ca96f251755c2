"""The runner: one process a job, which outlives the daemon. Standard library only, so that it starts in a few milliseconds.

It waits at a gate (its standard input) until the daemon has committed who runs, then runs the command in a process group of its own,
its output going straight into the log. While it waits for the end it looks at the log: where that has grown over its limit, it drops the
middle, by a hole in the file. Orphans of the job are its children (it is a subreaper), so it ends the whole tree. The way
the job ended is written as a file, synced and renamed into place: that file, not the daemon's memory, is the truth.

It may be started before there is a job for it: all it needs to know comes through the gate.

    python -m scheduler.executors.runner
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
from pathlib import Path
from types import FrameType
from typing import Any

PR_SET_CHILD_SUBREAPER = 36
TERM_GRACE_S = 5.0
"""Between the polite and the other signal."""
RETRY_S = 0.5
LOOK_S = 1.0
"""Between two looks at the log; its size is over the limit by what is printed meanwhile."""
HURRY_S = 0.1
"""While it grows fast."""
PUNCH_HOLE = 0x02 | 0x01
"""FALLOC_FL_PUNCH_HOLE, which goes with FALLOC_FL_KEEP_SIZE: fallocate(2)."""
LIBC = ctypes.CDLL(None, use_errno=True)
EXIT_FILE = "exit.json"


def main() -> int:
    os.umask(0o077)
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    gate = sys.stdin.buffer.readline()
    if not gate.endswith(b"\n"):
        return 3  # the daemon is gone before it committed: nobody will know this attempt, so nothing may run
    launch = json.loads(gate)
    os.chdir(launch["folder"])  # it stays ours wherever it is moved
    folder = Path()
    lock = os.open(folder / "runner.lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)  # the runner of an earlier attempt may not be quite gone
    os.ftruncate(lock, 0)
    os.write(
        lock, launch["attempt"].encode()
    )  # from here on the job may have run; where this is missing, it never did
    started = time.time()
    how = _run(launch, folder)
    _write(
        folder / EXIT_FILE,
        launch["folder"],
        {"attempt": launch["attempt"], "started": started, "ended": time.time(), **how},
    )
    return 0


def _run(launch: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Exit status, why it could not be started, the limit of time that ended it (0 where none did), why its log is over the limit."""
    try:
        with (folder / "log").open("ab") as log:
            child = subprocess.Popen(
                launch["argv"],
                cwd=launch["cwd"],
                env=launch["env"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,  # the session stays ours: by that the daemon finds them all, should we be killed
            )
            over = _end_in_time(child, launch.get("timeout", 0.0))
            uncapped = _wait(child, log.fileno(), launch.get("log_limit", 0))
            return {"code": child.returncode, "error": "", "over": sum(over), "uncapped": uncapped}
    except OSError as e:
        why = e.strerror if Path(launch["cwd"]).is_dir() else "there is no such folder any more"
        return {
            "code": None,
            "error": f"cannot start {launch['argv'][0]!r} in {launch['cwd']}: {why}",
        }
    finally:
        _reap_tree()


def _wait(child: subprocess.Popen[bytes], log: int, limit: int) -> str:
    """Until the command has ended, its log within `limit` bytes (0: any). Returns why the log is over it, empty where it is not."""
    cap, pause = Cap(log, limit), LOOK_S
    signal.pthread_sigmask(
        signal.SIG_BLOCK, {signal.SIGCHLD}
    )  # an end between the two next lines ends the wait, too
    while not _ended(child):
        signal.sigtimedwait({signal.SIGCHLD}, pause)
        cap.look()
        pause = HURRY_S if cap.fast else LOOK_S
    _reap_tree()  # from here on nobody writes
    cap.look()
    return cap.error


def _ended(child: subprocess.Popen[bytes]) -> bool:
    """Whether the command has. Its orphans are our children: they are reaped as they end, or their numbers would be used up."""
    while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT | os.WNOHANG)) is not None:
        if ended.si_pid == child.pid:
            child.wait()
            return True
        os.waitpid(ended.si_pid, 0)
    return False


class Cap:
    """Keeps a log within `limit` bytes (0: any): an eighth for the first, half or more for the newest. Offsets stay true."""

    def __init__(self, log: int, limit: int) -> None:
        self._log, self._limit, self._block = log, limit, os.fstat(log).st_blksize
        self._head = -(-limit // (8 * self._block)) * self._block  # holes are of whole blocks
        self._end = self._head
        """Where the hole ends: there the newest begins."""
        self._seen = 0
        self.fast = False
        """It grew so much since the last look that it could be far over its limit at the next."""
        self.error = ""
        """Why there is too much: nothing could be dropped."""

    def look(self) -> None:
        """Drop what is too much."""
        if not self._limit:
            return
        size = os.fstat(self._log).st_size
        self.fast, self._seen = size - self._seen > self._limit // 64, size
        if size < self._end:  # it is short, or somebody emptied it
            self._end = self._head
        end = (size - self._limit // 2) // self._block * self._block
        if self._head + size - self._end <= self._limit or end <= self._end:
            self.error = ""
            return
        try:
            _punch(self._log, self._end, end - self._end)
        except OSError as e:
            self.error = str(e.strerror)
        else:
            self._end, self.error = end, ""


def _punch(file: int, start: int, length: int) -> None:
    """Give back the disk space of a part of the file, which reads as zeros then. Raises OSError."""
    while LIBC.fallocate(file, PUNCH_HOLE, ctypes.c_int64(start), ctypes.c_int64(length)):
        if (number := ctypes.get_errno()) != errno.EINTR:
            raise OSError(number, os.strerror(number))


def _end_in_time(child: subprocess.Popen[bytes], timeout: float) -> list[float]:
    """SIGTERM to us, or the end of its time, ends the job: politely, and by force when the grace is over.

    We stay until it is gone, to write how it ended. The limit is put into the list that is returned, once it has ended the job. The
    timer counts on while clocks are set, and while no daemon runs.
    """
    over: list[float] = []
    told: list[int] = []

    def send(number: int) -> None:
        if child.returncode is None:
            try:
                os.killpg(child.pid, number)
            except ProcessLookupError:
                pass  # it ended in this moment

    def polite(number: int, frame: FrameType | None) -> None:
        told.append(number)
        send(signal.SIGTERM)
        signal.setitimer(signal.ITIMER_REAL, TERM_GRACE_S)

    def alarm(number: int, frame: FrameType | None) -> None:
        if told:
            send(signal.SIGKILL)
        else:
            over.append(timeout)
            polite(number, frame)

    signal.signal(signal.SIGALRM, alarm)
    signal.signal(signal.SIGTERM, polite)
    if timeout:
        signal.setitimer(signal.ITIMER_REAL, timeout)
    return over


def _reap_tree() -> None:
    """Kill what the job left behind; a subreaper inherits the orphans, so they show up as our children, one generation at a time."""
    while children := _children():
        for pid in children:
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            except (ProcessLookupError, ChildProcessError):
                continue


def _children() -> list[int]:
    text = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text()
    return [int(pid) for pid in text.split()]


def _write(file: Path, folder: str, content: dict[str, Any]) -> None:
    """Into our folder; where somebody deleted it meanwhile, into another in its place."""
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
