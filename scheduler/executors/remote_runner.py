r"""The runner of an attempt on another machine: its source is sent there with the job.

It uses the standard library of Python 3.9 or newer only. It runs the command with its own output,
ends the whole tree of processes when it is asked to or when the time limit is up, and prints a
line before and after the command's output. The last one holds how the command ended and what
Result it left, so that the output is all that has to be copied. Unlike the runner of this machine
it makes no process group: the cluster kills an attempt by its own.

    GPUDECK_RUNNER=<this source> GPUDECK_LAUNCH=<JSON> \
        python3 -c 'import os; exec(os.environ["GPUDECK_RUNNER"])' COMMAND [ARG ...]
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
PAUSE_CLOCK, CONTINUE_CLOCK = signal.SIGURG, signal.SIGWINCH
"""Tell a runner that its job is suspended, and that it runs again. A runner of an older version
ignores these signals, and so does every process that does not know them."""
YIELD = signal.SIGUSR2
"""Tells a runner that its job, which is resumable, must end in order to be queued again."""
YIELD_GRACE_S = 30.0
"""Seconds that such a job has for saving its state."""
TERM_GRACE_S = 5.0
"""Seconds between SIGTERM and SIGKILL."""
MAX_RESULT = 2**21
"""Bytes of a Result file; a larger one is not sent back."""


COMMAND = """exec python3 -c 'import os; exec(os.environ["GPUDECK_RUNNER"])'"""
"""The shell command that a cluster runs, followed by the job's command and its arguments."""


def claim(folder: Path, attempt: str) -> Path:
    """Return the file that exists once the attempt began, where the file system is shared."""
    return folder / f"claim.{attempt}"


def begin_line(attempt: str) -> bytes:
    """Return the line before the command's output."""
    return json.dumps({"gpudeck": "begin", "attempt": attempt}).encode() + b"\n"


def end_mark(attempt: str) -> bytes:
    """Return the beginning of the line after the command's output: JSON of `FinalReport`."""
    return b"\n" + json.dumps({"gpudeck": "ended", "attempt": attempt}).encode()[:-1]


def main(argv: list[str], launch: dict[str, object]) -> int:
    """Run the command, and return the exit status that the cluster shall see."""
    import tempfile

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
        files = {"GPUDECK_RESULT": str(result), "GPUDECK_ARTEFACTS": str(artefacts)}
        code, error, over = _run(argv, launch, timeout, files)
        report = {
            "started": started,
            "ended": time.time(),
            "code": code,
            "error": error,
            "over": over,
            "result": _read(result),
        }
    if shared is None and not _removed(artefacts):
        out.write(f"\nThe artefacts are on {os.uname().nodename} in {artefacts}".encode())
    out.write(end_mark(attempt) + b", " + json.dumps(report).encode()[1:] + b"\n")
    out.flush()
    return 124 if over else 127 if code is None else code if code >= 0 else 128 - code


def _shared(folder: Path, attempt: str) -> Path | None:
    """Return the job's own folder, where this machine shares it: it holds the attempt's name."""
    try:
        return folder if (folder / "attempt").read_text() == attempt else None
    except OSError:
        return None


def _claimed(folder: Path, attempt: str) -> bool:
    """Return whether this process is the first to run the attempt."""
    try:
        claim(folder, attempt).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _run(
    argv: list[str], launch: dict[str, object], timeout: float, files: dict[str, str]
) -> tuple[int | None, str, float]:
    """Run the command.

    Returns its exit status, why it could not be started, and the time limit that ended it (0 where
    none did).
    """
    own = ("GPUDECK_RUNNER", "GPUDECK_LAUNCH")
    env = {name: value for name, value in os.environ.items() if name not in own}
    given = launch["env"]
    assert isinstance(given, dict)
    end = EndRequest(_signal_tree)
    try:
        child = subprocess.Popen(
            argv,
            cwd=str(launch["cwd"]),
            env={**env, **given, **files},
            stdin=subprocess.DEVNULL,
            stderr=sys.stdout,
        )
    except OSError as e:
        where = f"{launch['cwd']!r} on {os.uname().nodename}"
        advice = "The folder and the command must exist there, too."
        return None, f"cannot start {argv[0]!r} in {where}: {e.strerror}. {advice}", 0.0
    if end.asked:  # while it was being started
        child.terminate()
    else:
        end.limit(timeout)
    while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)) is not None:
        if ended.si_pid == child.pid:
            break
        os.waitpid(ended.si_pid, 0)  # its orphans are our children
    code = child.wait()
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    reap_tree()
    return code, "", end.over


class EndRequest:
    """End the command when this process gets SIGTERM, or when the time limit is up.

    SIGTERM first, and SIGKILL after a grace period. The timer counts on while clocks are set.
    """

    def __init__(self, send: Callable[[int], None]) -> None:
        """Handle the signals from now on.

        Args:
            send: sends a signal to the command.
        """
        self._send, self._timeout = send, 0.0
        self._yields = False
        self._left = 0.0
        """Seconds of the time limit that were left when the job was suspended; 0 while it runs."""
        self.asked = False
        self.over = 0.0
        """The time limit in seconds, once it has ended the command."""
        signal.signal(signal.SIGALRM, self._on_alarm)
        signal.signal(signal.SIGTERM, self._on_term)
        signal.signal(PAUSE_CLOCK, self._on_pause)
        signal.signal(CONTINUE_CLOCK, self._on_continue)

    def limit(self, timeout: float) -> None:
        """End the command after so many seconds; 0 sets no limit."""
        self._timeout = timeout
        if timeout and not self.asked:
            signal.setitimer(signal.ITIMER_REAL, timeout)

    def _on_term(self, number: int, frame: object) -> None:
        self.asked = True
        self._send(signal.SIGTERM)
        signal.setitimer(signal.ITIMER_REAL, TERM_GRACE_S)

    def allow_yield(self, number: int) -> None:
        """Ask the command by this signal to end when this process gets YIELD."""

        def on_yield(_: int, frame: object) -> None:
            if not self.asked and not self._yields:
                self._yields = True
                self._send(number)
                signal.setitimer(signal.ITIMER_REAL, YIELD_GRACE_S)

        signal.signal(YIELD, on_yield)

    def _on_pause(self, number: int, frame: object) -> None:
        if not (self.asked or self._yields or self._left):
            self._left, _ = signal.setitimer(signal.ITIMER_REAL, 0.0)

    def _on_continue(self, number: int, frame: object) -> None:
        if self._left and not (self.asked or self._yields):
            signal.setitimer(signal.ITIMER_REAL, self._left)
        self._left = 0.0

    def _on_alarm(self, number: int, frame: object) -> None:
        if self.asked or self._yields:
            self._send(signal.SIGKILL)
        else:
            self.over = self._timeout
            self._on_term(number, frame)


def _signal_tree(number: int) -> None:
    for pid in _descendants(os.getpid()):
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            pass  # it ended in this moment, or is another user's, as by sudo


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    for child in _children(pid):
        found += [child, *_descendants(child)]
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


def reap_tree() -> list[int]:
    """Kill what the command left behind, and return the children that only others may kill.

    A subreaper inherits orphans, so that they show up as our children, a generation at a time.
    """
    left = set[int]()
    while children := set(_children(os.getpid())) - left:
        for pid in children:
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            except PermissionError:  # it is another user's, as by sudo
                if os.waitpid(pid, os.WNOHANG) == (0, 0):
                    left.add(pid)
            except (ProcessLookupError, ChildProcessError):
                continue
    return sorted(left)


def _read(result: Path) -> str:
    """Return the Result file; an empty text where there is none of a sensible size."""
    try:
        return result.read_text() if result.stat().st_size <= MAX_RESULT else ""
    except (OSError, ValueError):
        return ""


def _removed(folder: Path) -> bool:
    """Remove the folder where it is empty, and return whether it was."""
    try:
        folder.rmdir()
    except OSError:
        return False
    return True


if __name__ == "__main__" and "GPUDECK_LAUNCH" in os.environ:
    sys.exit(main(sys.argv[1:], json.loads(os.environ["GPUDECK_LAUNCH"])))
