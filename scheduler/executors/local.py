"""Jobs as processes of this machine: start behind a gate, watch, adopt, end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from scheduler import paths
from scheduler.devices.model import Device
from scheduler.errors import MALFORMED, UserError
from scheduler.jobs import NO_RESULT, Job, Running, Starting

EXIT_FILE = "exit.json"
RESULT_FILE = "result.json"
LOCK_FILE = "runner.lock"
ARTEFACTS = "artefacts"
MAX_RESULT = 2**20
"""Bytes of a Result file; a larger one is not read."""
_SPARE_DEPTH = 500
"""A result is embedded in replies and in the store: it must decode there too, some levels deeper."""
KILL_LOOKS = 20
"""A process stuck in the kernel stays visible after its SIGKILL: then it is not waited for."""


class Exit(msgspec.Struct, frozen=True):
    """What the runner wrote about the end of an attempt."""

    attempt: str
    started: float
    ended: float
    code: int | None
    error: str
    over: float = 0.0
    """The limit of time that ended it, seconds; 0 where none did."""


class Waiting(NamedTuple):
    """A runner that stands at its gate."""

    process: subprocess.Popen[bytes]
    running: Running


class FolderError(UserError):
    """The job's own folder cannot be used: no use in trying again."""


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
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()
    return None if fields[0] in (b"Z", b"X") else fields


def prepare(job: Job, attempt: str, devices: tuple[str, ...]) -> Waiting:
    """Start the job's runner; it waits at the gate.

    Raises FolderError where the job's folder is in the way, UserError where no process can be started now.
    """
    folder, boot = (_next_folder(job) if job.tries else _empty_folder(job.id)), boot_id()
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-S", "-E", str(Path(__file__).parent.parent / "queue" / "runner.py"), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
            # the attempt names every process of the job, the runner included
            env={"GPUDECK_ATTEMPT": attempt, "GPUDECK_JOB": str(job.id), **_loader_path()},
        )
    except OSError as e:
        raise UserError(f"no process can be started: {e.strerror}") from e
    waiting = Waiting(process, Running(attempt, devices, time.time(), process.pid, start_time(process.pid) or 0, boot))
    if not waiting.running.started:
        abandon(waiting)
        raise UserError("the runner ended at once")
    return waiting


def _empty_folder(job_id: int) -> Path:
    """The job's folder. An attempt that is prepared has never run: what lies there is of another job of this number, from a store
    that was deleted, and is moved aside.
    """
    folder = paths.job_folder(job_id)
    for left in (folder / ARTEFACTS, folder):
        try:
            left.rmdir()  # of an attempt that got no further than this
        except OSError:
            pass  # there is none, or it holds something
    try:
        if os.path.lexists(folder):
            folder.rename(folder.with_name(f"{job_id}.old-{time.time_ns()}"))
    except OSError as e:
        raise FolderError(f"the folder {folder} holds an older job of this number, and cannot be moved: {e.strerror}") from e
    paths.ensure(paths.ensure(folder) / ARTEFACTS)
    return folder


def _next_folder(job: Job) -> Path:
    """The folder of a job that is tried again: what the last attempt said is put aside under its number, its artefacts stay."""
    folder = paths.job_folder(job.id)
    try:
        for name in ("log", EXIT_FILE, RESULT_FILE):
            if os.path.lexists(folder / name):
                (folder / name).rename(folder / f"{name}.{job.tries}")
    except OSError as e:
        raise FolderError(f"what the last attempt left in {folder} cannot be put aside: {e.strerror}") from e
    paths.ensure(paths.ensure(folder) / ARTEFACTS)
    return folder


def abandon(waiting: Waiting) -> None:
    """Send the runner away from its gate: it ends without having run anything."""
    assert waiting.process.stdin is not None
    waiting.process.stdin.close()
    waiting.process.wait()


def _loader_path() -> dict[str, str]:
    """Some Pythons find their own shared library only through this."""
    return {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}


def release(waiting: Waiting, job: Job, env: dict[str, str], devices: Sequence[Device]) -> None:
    """Open the gate: from now on the command runs."""
    folder = paths.job_folder(job.id)
    launch = {
        "attempt": waiting.running.attempt,
        "argv": job.spec.argv,
        "cwd": job.spec.cwd,
        "env": _environment(job, waiting.running, env, devices, folder),
        "timeout": job.spec.timeout,
    }
    assert waiting.process.stdin is not None
    try:
        with waiting.process.stdin as gate:
            gate.write(json.dumps(launch).encode() + b"\n")
    except BrokenPipeError:
        pass  # the runner died at the gate; its end is seen like any other


def _environment(job: Job, running: Running, env: dict[str, str], devices: Sequence[Device], folder: Path) -> dict[str, str]:
    """The job's own environment, told which devices are its, and where to leave its result and artefacts."""
    array = {} if job.spec.index is None else {"GPUDECK_ARRAY_INDEX": str(job.spec.index)}
    uuids = [d.id for d in devices if d.id in running.devices and d.kind == "nvidia"]
    return {
        **env,
        **array,
        # by UUID: the order of indices differs between tools. Empty for a job without GPUs: it must not touch one held by another.
        "CUDA_VISIBLE_DEVICES": ",".join(uuids),
        "GPUDECK_JOB": str(job.id),
        "GPUDECK_ATTEMPT": running.attempt,
        "GPUDECK_TRY": str(job.tries + 1),
        "GPUDECK_RESULT": str(folder / RESULT_FILE),
        "GPUDECK_ARTEFACTS": str(folder / ARTEFACTS),
    }


def alive(running: Running) -> bool:
    """Whether this very runner still runs."""
    return running.boot == boot_id() and start_time(running.runner) == running.started


def exit_record(job_id: int, attempt: str) -> Exit | None:
    """How this attempt ended, None where its runner has not said so."""
    try:
        with paths.open_plain(paths.job_folder(job_id) / EXIT_FILE) as f:
            found = msgspec.json.decode(f.read(MAX_RESULT), type=Exit)
    except (OSError, *MALFORMED):
        return None
    return found if found.attempt == attempt else None


def passed(job_id: int, attempt: str) -> bool:
    """Whether the runner of this attempt passed its gate: it says so before it runs anything."""
    try:
        with paths.open_plain(paths.job_folder(job_id) / LOCK_FILE) as f:
            return f.read(2 * len(attempt)) == attempt.encode()
    except OSError:
        return False


def result_record(job_id: int) -> msgspec.Raw:
    """The Result file the job left, where it is a JSON object of a sensible size; else NO_RESULT."""
    try:
        with paths.open_plain(paths.job_folder(job_id) / RESULT_FILE) as f:
            data = f.read(MAX_RESULT + 1)
        msgspec.json.decode(data, type=dict[str, object])
        msgspec.json.decode(b"[" * _SPARE_DEPTH + data + b"]" * _SPARE_DEPTH)
    except (OSError, *MALFORMED):
        return NO_RESULT
    return msgspec.Raw(data) if len(data) <= MAX_RESULT else NO_RESULT


def end(running: Running) -> None:
    """Ask the runner to end its job: politely, then by force. Returns at once."""
    if alive(running):
        try:
            os.kill(running.runner, signal.SIGTERM)
        except ProcessLookupError:
            pass  # it ended in this moment


def kill(state: Starting | Running) -> None:
    """Kill what an attempt left behind when its runner was killed: again while a look finds any, as they may fork meanwhile.

    That is every process with the attempt's nonce in its environment, and all of the runner's session. One that cleared the
    environment and left the session cannot be told from a stranger any more, and is not found.
    """
    session = None
    if isinstance(state, Running) and state.boot == boot_id() and start_time(state.runner) in (None, state.started):
        session = state.runner  # no other process gets this pid while anybody is left in the session
    needle = f"GPUDECK_ATTEMPT={state.attempt}".encode()
    for _ in range(KILL_LOOKS):
        if not [pid for pid in _left(needle, session) if _killed(pid)]:
            return


def _left(needle: bytes, session: int | None) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            pid = int(entry.name)
            if (fields := _stat(pid)) is not None and (int(fields[3]) == session or needle in _environ(pid)):
                yield pid


def _environ(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []  # ended meanwhile, or not ours to look into


def _killed(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        return False
    return True
