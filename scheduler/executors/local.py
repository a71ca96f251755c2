"""Jobs as processes of this machine: start behind a gate, watch, adopt, end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence, Set
from pathlib import Path

from scheduler.background.descriptors import give_back
from scheduler.executors.base import (
    ARTEFACTS,
    EXIT_FILE,
    RESULT_FILE,
    Exit,
    Lost,
    Unstarted,
    attempt_of,
    exit_record,
    identity,
    next_folder,
)
from scheduler.protocol import paths
from scheduler.protocol.devices import Device
from scheduler.protocol.errors import UserError
from scheduler.protocol.jobs import Job, Running, Starting

LOCK_FILE = "runner.lock"
KILL_LOOKS = 20
"""A process stuck in the kernel stays visible after its SIGKILL: then it is not waited for."""


class Local:
    """The executor of this machine: a runner process for each attempt, which outlives the daemon.

    `watch(job_id, runner_pid)` is called for each runner whose end must be reported; it may raise UserError. `log_limit()` is how many
    bytes of its log an attempt may keep that starts now; 0: all.
    """

    def __init__(
        self, watch: Callable[[int, int], None], log_limit: Callable[[], int] = lambda: 0
    ) -> None:
        self._watch = watch
        self._log_limit = log_limit
        self._spare: subprocess.Popen[bytes] | None = None
        """A runner that was started ahead of need: most of what a start takes is the start of an interpreter."""
        self._waiting: dict[str, subprocess.Popen[bytes]] = {}
        """Runners at their gates, by attempt."""
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        """Runners that were let through, by attempt: to be reaped."""

    def stand_by(self) -> None:
        """Have a runner ready for the next attempt, where processes can be started at present."""
        if self._spare is None or self._spare.poll() is not None:
            try:
                self._spare = _runner()
            except UserError:
                self._spare = None  # whoever needs one will be told

    def prepare(self, job: Job, attempt: str, devices: tuple[str, ...]) -> Running:
        next_folder(job)
        boot, process, self._spare = boot_id(), self._spare, None
        if process is None or process.poll() is not None:
            process = _runner()
        if not (started := start_time(process.pid)):
            _send_away(process)
            raise UserError("the runner ended at once")
        try:
            self._watch(job.id, process.pid)
        except UserError:
            _send_away(process)
            raise
        self._waiting[attempt] = process
        return Running(attempt, devices, time.time(), process.pid, started, boot)

    def abandon(self, running: Running) -> None:
        _send_away(self._waiting.pop(running.attempt))

    def release(
        self, job: Job, running: Running, env: dict[str, str], devices: Sequence[Device]
    ) -> None:
        process = self._children[running.attempt] = self._waiting.pop(running.attempt)
        folder = paths.job_folder(job.id)
        launch = {
            "attempt": running.attempt,
            "folder": str(folder),
            "argv": job.spec.argv,
            "cwd": job.spec.cwd,
            "env": _environment(job, running, env, devices, folder),
            "timeout": job.spec.timeout,
            "log_limit": self._log_limit(),
        }
        assert process.stdin is not None
        process.send_signal(
            signal.SIGCONT
        )  # one that was stopped would never read what is longer than its pipe, nor run the job
        try:
            with process.stdin as gate:
                gate.write(json.dumps(launch).encode() + b"\n")
        except BrokenPipeError:
            pass  # the runner died at the gate; its end is seen like any other

    def adopt(self, job: Job) -> None:
        assert isinstance(job.state, Running)
        self._watch(job.id, job.state.runner)

    def alive(self, running: Running) -> bool:
        return alive(running)

    def end(self, job: Job) -> None:
        assert isinstance(job.state, Running)
        end(job.state)

    def kill(self, jobs: Sequence[Job]) -> None:
        attempts = {job.id: attempt_of(job) for job in jobs}
        for state in attempts.values():
            if (child := self._children.pop(state.attempt, None)) is not None:
                child.wait()
        kill(
            attempts.values(),
            sure=any(
                exit_record(job_id, state.attempt) is None for job_id, state in attempts.items()
            ),
        )

    def outcome(self, job: Job) -> Exit | Unstarted | Lost:
        state = attempt_of(job)
        if (found := exit_record(job.id, state.attempt)) is not None:
            return found
        if isinstance(state, Running) and state.boot != boot_id():
            return Lost("the machine was restarted while it ran")
        if not passed(job.id, state.attempt):
            if not (
                paths.job_folder(job.id) / ARTEFACTS
            ).is_dir():  # it was there before the runner was let through
                return Lost(
                    "its folder was deleted while it ran, and with it what could tell how it ended"
                )
            return Unstarted("its runner ended before it ran anything")
        return Lost("its runner was killed before it could say how the job ended")


def boot_id() -> str:
    """Changes with every boot of the machine. Raises UserError where the kernel does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError as e:
        raise UserError(f"the kernel does not tell its boot id: {e}") from e


def start_time(pid: int) -> int | None:
    """Clock ticks since boot at which the process started, None where there is none. With the pid it names a process for good."""
    fields = _stat(pid)
    return None if fields is None else int(fields[19])


def _stat(pid: int) -> list[bytes] | None:
    """What the kernel tells of a process, from its state on (proc_pid_stat(5), field 3); None where it has ended."""
    if (stat := _read(f"/proc/{pid}/stat")) is None:
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()
    return None if fields[0] in (b"Z", b"X") else fields


def _runner() -> subprocess.Popen[bytes]:
    """A runner at its gate. Raises UserError where no process can be started now."""
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-S", "-E", str(Path(__file__).with_name("runner.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
            env=_loader_path(),
        )
    except OSError as e:
        raise UserError(f"no process can be started: {e.strerror}") from e
    give_back(
        process.pid
    )  # a zombie still has its limits: who ended at once is found out by whoever needs it
    return process


def _send_away(process: subprocess.Popen[bytes]) -> None:
    """From its gate: the runner ends without having run anything. Killed, as one that was stopped would not see the gate close."""
    assert process.stdin is not None
    process.kill()
    process.stdin.close()
    process.wait()


def _loader_path() -> dict[str, str]:
    """Some Pythons find their own shared library only through this."""
    return {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}


def _environment(
    job: Job, running: Running, env: dict[str, str], devices: Sequence[Device], folder: Path
) -> dict[str, str]:
    """The job's own environment, told which devices are its, and where to leave its result and artefacts."""
    uuids = [d.id for d in devices if d.id in running.devices and d.kind == "nvidia"]
    return {
        **env,
        **identity(job, running.attempt),
        # by UUID: the order of indices differs between tools. Empty for a job without GPUs: it must not touch one held by another.
        "CUDA_VISIBLE_DEVICES": ",".join(uuids),
        "GPUDECK_RESULT": str(folder / RESULT_FILE),
        "GPUDECK_ARTEFACTS": str(folder / ARTEFACTS),
    }


def alive(running: Running) -> bool:
    """Whether this very runner still runs."""
    return running.boot == boot_id() and start_time(running.runner) == running.started


def passed(job_id: int, attempt: str) -> bool:
    """Whether the runner of this attempt passed its gate: it says so before it runs anything."""
    try:
        with paths.open_plain(paths.job_folder(job_id) / LOCK_FILE) as f:
            return f.read(2 * len(attempt)) == attempt.encode()
    except OSError:
        return False


def begun(job: Job) -> str:
    """The attempt of this job that ran something although the store does not know, as its newest changes were lost; empty where none did.

    A job that waits for its first attempt has none; what lies in its folder from before it was submitted is of another of its number.
    One that waits for a further one has the record of its last, which was put aside where that further one was prepared.
    """
    if job.spec.where or isinstance(job.state, Running):
        return ""
    folder = paths.job_folder(job.id)
    try:
        with paths.open_plain(folder / LOCK_FILE) as f:
            attempt, written = f.read(100).decode(), os.fstat(f.fileno()).st_mtime
    except (OSError, UnicodeDecodeError):
        return ""
    if not job.tries:
        return attempt if written > job.submitted else ""
    aside = f"{EXIT_FILE}.{job.tries}"
    last = exit_record(job.id, attempt, aside if os.path.lexists(folder / aside) else EXIT_FILE)
    return attempt if last is None else ""


def end(running: Running) -> None:
    """Ask the runner to end its job: politely, then by force. Returns at once."""
    if alive(running):
        try:
            os.kill(running.runner, signal.SIGTERM)
            os.kill(running.runner, signal.SIGCONT)  # one that was stopped would not hear it
        except ProcessLookupError:
            pass  # it ended in this moment


def kill(states: Collection[Starting | Running], sure: bool) -> None:
    """Kill what these attempts left behind when their runners were killed: again while a look finds any, as they may fork meanwhile.

    That is every process with the nonce of one in its environment, and all of the runners' sessions. One that cleared the
    environment and left the session cannot be told from a stranger any more, and is not found. `sure`: a look that finds nobody is
    followed by another, as during a look a process may be born and its parent end; needless where the runners have told the end.
    Each look goes through all processes of the machine, however many attempts there are.
    """
    attempts = {f"GPUDECK_ATTEMPT={state.attempt}".encode() for state in states}
    if not attempts:
        return
    boot = boot_id()
    ran = [state for state in states if isinstance(state, Running) and state.boot == boot]
    sessions = {state.runner for state in ran if start_time(state.runner) in (None, state.started)}
    # no other process gets a runner's pid while anybody is left in its session
    clean = 0
    for _ in range(KILL_LOOKS):
        clean = 0 if [pid for pid in _left(attempts, sessions) if _killed(pid)] else clean + 1
        if clean > sure:
            return


def _left(attempts: Set[bytes], sessions: Set[int]) -> Iterator[int]:
    for pid in [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]:
        if (fields := _stat(pid)) is not None and (
            int(fields[3]) in sessions or not attempts.isdisjoint(_environ(pid))
        ):
            yield pid


def _environ(pid: int) -> list[bytes]:
    return (_read(f"/proc/{pid}/environ") or b"").split(b"\0")


def _read(name: str) -> bytes | None:
    """What the kernel tells of a process; None where it has ended, or is not ours to look into. Many are read: no Path, no buffer."""
    try:
        with open(name, "rb", buffering=0) as file:  # noqa: PTH123
            return file.read()
    except OSError:
        return None


def _killed(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        return False
    return True
