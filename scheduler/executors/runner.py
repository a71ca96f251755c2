"""The runner: one process for each job, which outlives the daemon.

It uses the standard library only and starts in a few milliseconds, also before there is a job for
it. It waits at a gate (its standard input) until the daemon has committed who runs the job, and
learns all that it needs to know there. Then it runs the command in a process group of its own,
with its output going straight into the log, which it keeps within its limit. Orphans of the job
are its children (it is a subreaper), so that it ends the whole tree. It writes how the job ended
into a file, synced and renamed into place: that file, not the daemon's memory, is the truth.

Before the command starts, it is on disk that the attempt began (see `tickets`). A runner that
cannot write that starts nothing.

It inherits the open files on which the daemon locks the job's GPUs (see `gpu_locks`), and holds
them until no process of the job is left: how the job ended may have to wait for a disk, and the
GPUs need not. The command does not inherit them: an orphan that hides from us must not keep a
GPU from everybody. What it still uses of a GPU is seen by the driver's list of processes. While a
job is suspended, the daemon releases the locks through these files, and the clock of the job's time
limit stops (PAUSE_CLOCK).

    python scheduler/executors/runner.py
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

if not __package__:
    # Run as a script, which finds nothing but the standard library. An empty package `gpudeck`
    # finds the packages beside this one, in a checkout and where they are installed.
    sys.modules["gpudeck"] = ModuleType("gpudeck")
    sys.modules["gpudeck"].__path__ = [str(Path(__file__).parents[2])]

from gpudeck.scheduler.background.user import Identity, identity_of
from gpudeck.scheduler.executors import inheritance as inherit
from gpudeck.scheduler.executors import tickets
from gpudeck.scheduler.executors.containers import (
    container_command,
    removal_command,
    removal_options,
    remove_container,
)
from gpudeck.scheduler.executors.exit_writer import (
    EXIT_FILE,
    LINGERS,
    LOCK_FILE,
    announce,
    write_record,
)
from gpudeck.scheduler.executors.log_cap import LogCap
from gpudeck.scheduler.executors.remote_runner import (
    PR_SET_CHILD_SUBREAPER,
    YIELD,
    EndRequest,
    reap_tree,
)

PR_SET_PTRACER, PR_SET_PTRACER_ANY = 0x59616D61, 2 ** (8 * ctypes.sizeof(ctypes.c_ulong)) - 1
"""Lets a later daemon of this user release the locks of a job that is suspended, also where Yama
forbids that to all but ancestors. Other kernels do not know it, and need not."""
GATE_CLOSED = 3
"""The exit status where the daemon died before it committed who runs the job: nothing may run."""
NOT_BEGUN = 64
"""The exit status where the attempt did not begin, plus the number of the error that forbade it."""
CHECK_S = 1.0
"""Seconds between two checks of the log, which exceeds its limit by what is printed meanwhile."""
FAST_CHECK_S = 0.1
"""The same while the log grows fast."""
LET_GO = signal.SIGUSR1
"""Ends a runner that waits for processes of other users."""
LINGER_S = 60.0
GROUP_CHECKS, GROUP_PAUSE_S = 100, 0.01
"""How often it is tried to remove the job's cgroup, whose last processes are just ending."""


def main() -> int:
    """Run the job that comes through the gate, and return the exit status."""
    os.umask(0o077)
    signal.signal(YIELD, lambda *_: None)  # until there is a command to ask; it is sent again
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    prctl(PR_SET_PTRACER, ctypes.c_ulong(PR_SET_PTRACER_ANY), 0, 0, 0)
    gate = sys.stdin.buffer.readline()
    if not gate.endswith(b"\n"):
        return GATE_CLOSED
    launch = json.loads(gate)
    try:
        ticket = _begin(launch)
    except OSError as e:
        return NOT_BEGUN + (e.errno or 0)
    started = time.time()
    end, asked = _run(launch, Path())
    left = reap_tree()
    record = {
        "attempt": launch["attempt"], "started": started, "ended": time.time(), **end, "left": left,
    }  # fmt: skip
    locks = launch.get("locks", ())
    gpus = GpuHold([locks] if isinstance(locks, int) else locks)  # an older daemon sends one
    gpus.end_with(left)
    write_record(
        EXIT_FILE, launch["folder"], record, ticket, asked, lambda: gpus.end_with(reap_tree())
    )
    _linger()
    return 0


class GpuHold:
    """Hold the locks on the job's GPUs."""

    def __init__(self, locks: Sequence[int]) -> None:
        """Hold what is locked through these descriptors; -1 stands for none."""
        self._locks = [fd for fd in locks if fd >= 0]

    def end_with(self, left: list[int]) -> None:
        """Release the GPUs unless processes of the job are left."""
        while self._locks and not left:
            os.close(self._locks.pop())


def _linger() -> None:
    """Stay, and hold the GPUs, while processes of the job live that only others may kill.

    The daemon ends that once none of them is on the GPUs.
    """
    signals = {signal.SIGCHLD, LET_GO}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    while reap_tree():
        announce(LINGERS)
        got = signal.sigtimedwait(signals, LINGER_S)
        if got is not None and got.si_signo == LET_GO:
            return


def _begin(launch: dict[str, Any]) -> int:
    """Record that the attempt begins, and return the descriptor of its ticket, which is locked.

    Raises OSError where that cannot be recorded: then the command must not start.
    """
    os.chdir(launch["folder"])  # it stays ours wherever it is moved
    name = f"{launch['attempt']} {launch['submitted']!r}".encode()
    own = os.open(LOCK_FILE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        os.write(own, bytes(len(name)))  # on a full disk, the ticket is not taken
        ticket = tickets.take(Path(launch["ticket"]))
        # which attempt of which job ran here, should the store lose its newest changes later
        os.pwrite(own, name, 0)
        os.fsync(own)
    finally:
        os.close(own)
    return ticket


def _run(launch: dict[str, Any], folder: Path) -> tuple[dict[str, Any], bool]:
    """Run the command.

    Returns the fields of its exit record that tell how it ended, and whether it was asked to end.
    """
    uid = launch.get("user")
    inheritance = inherit.prepare(launch.get("inherited"), launch.get("nice", 0), uid is None)
    group = Path(launch["cgroup"]) if launch.get("cgroup") else None
    contained, argv = launch.get("container", ""), launch["argv"]
    identity: Identity | None = None

    def prepare_child() -> None:
        if group is not None:
            _write(group / "cgroup.procs", "0")
        if identity is not None:
            identity.assume(launch["cwd"])
        inheritance.apply()

    try:
        identity = None if uid is None else identity_of(uid)
        if contained:
            argv = container_command(launch, *(identity or (os.getuid(), os.getgid()))[:2])
        with (folder / "log").open("ab") as log:
            if identity is not None:
                os.fchown(log.fileno(), identity.uid, identity.gid)
            child = subprocess.Popen(
                argv,
                cwd=launch["cwd"] if identity is None else None,
                env=launch["env"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=prepare_child,  # noqa: PLW1509 - this process has one thread
                process_group=0,  # the session stays ours: the daemon finds all by it, if we die
            )
            end = EndRequest(lambda number: _send(child, number, group))
            if name := launch.get("resumable") or "KILL" * launch.get("when_idle", False):
                end.allow_yield(signal.Signals[f"SIG{name}"])
            end.limit(launch.get("timeout", 0.0))
            uncapped = _wait(child, log.fileno(), launch.get("log_limit", 0))
            asked = end.asked and not end.over
            return {
                "code": child.returncode, "error": "", "over": end.over, "uncapped": uncapped,
                "limited": inheritance.denied, "starved": _starved(group, launch),
            }, asked  # fmt: skip
    except OSError as e:
        # root sees more than the user may
        gone = uid is None and not Path(launch["cwd"]).is_dir()
        return {
            "code": None, "error": e.strerror, "program": argv[0], "folder": launch["cwd"],
            "folder_gone": gone,
        }, False  # fmt: skip
    except ValueError as e:  # a NUL somewhere: a runner that dies leaves no record of the end
        return {"code": None, "error": str(e), "program": argv[0]}, False
    except subprocess.SubprocessError as e:  # of `inheritance.apply`
        who = "" if uid is None else f" as user {uid} in {launch['cwd']}"
        return {"code": None, "error": f"cannot start {launch['argv'][0]!r}{who}: {e}"}, False
    finally:
        if group is not None:
            _end_group(group)
        reap_tree()
        removal = removal_command(contained, launch["attempt"])
        remove_container(removal, removal_options(launch["env"], identity))
        reap_tree()


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text)
    except OSError:
        pass  # the group is gone: what it does for the job, the rest of this module does, too


def _starved(group: Path | None, launch: dict[str, Any]) -> int:
    """Return the limit of host memory, in bytes, for which the kernel killed the job; else 0."""
    limit: int = launch.get("host_memory", 0)
    try:
        events = (group / "memory.events").read_text().split() if group and limit else []
    except OSError:
        return 0
    kills = dict(zip(events[::2], events[1::2], strict=False)).get("oom_kill", "0")
    return limit if kills != "0" else 0


def _end_group(group: Path) -> None:
    """Kill what is in the job's cgroup, whoever it belongs to, and remove it."""
    _write(group / "cgroup.kill", "1")
    for _ in range(GROUP_CHECKS):
        reap_tree()  # a group that has zombies cannot be removed
        try:
            return group.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(GROUP_PAUSE_S)


def _send(child: subprocess.Popen[bytes], number: int, group: Path | None) -> None:
    if child.returncode is None:
        if number == signal.SIGKILL and group is not None:
            _write(group / "cgroup.kill", "1")
        try:
            os.killpg(child.pid, number)
        except (ProcessLookupError, PermissionError):
            pass  # it ended in this moment, or is another user's, as by sudo


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


if __name__ == "__main__":
    sys.exit(main())
