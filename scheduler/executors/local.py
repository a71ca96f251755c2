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
from scheduler.jobs import NO_RESULT, Job, Running

EXIT_FILE = "exit.json"
RESULT_FILE = "result.json"
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


class Waiting(NamedTuple):
    """A runner that stands at its gate."""

    process: subprocess.Popen[bytes]
    running: Running


def boot_id() -> str:
    """Changes with every boot of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def start_time(pid: int) -> int | None:
    """Clock ticks since boot at which the process started, None where there is none. With the pid it names a process for good."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()
    return None if fields[0] == b"Z" else int(fields[19])


def prepare(job: Job, attempt: str, devices: tuple[str, ...]) -> Waiting:
    """Start the job's runner; it waits at the gate. Raises UserError where no process can be started."""
    folder = paths.ensure(paths.job_folder(job.id))
    paths.ensure(folder / ARTEFACTS)
    for name in (EXIT_FILE, RESULT_FILE):  # of an earlier attempt
        (folder / name).unlink(missing_ok=True)
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
    ticks = start_time(process.pid)
    if ticks is None:
        raise UserError("the runner ended at once")
    return Waiting(process, Running(attempt, devices, time.time(), process.pid, ticks, boot_id()))


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
    }
    assert waiting.process.stdin is not None
    try:
        with waiting.process.stdin as gate:
            gate.write(json.dumps(launch).encode() + b"\n")
    except BrokenPipeError:
        pass  # the runner died at the gate; its end is seen like any other


def _environment(job: Job, running: Running, env: dict[str, str], devices: Sequence[Device], folder: Path) -> dict[str, str]:
    """The job's own environment, told which devices are its, and where to leave its result and artefacts."""
    uuids = [d.id for d in devices if d.id in running.devices and d.kind == "nvidia"]
    return {
        **env,
        # by UUID: the order of indices differs between tools. Empty for a job without GPUs: it must not touch one held by another.
        "CUDA_VISIBLE_DEVICES": ",".join(uuids),
        "GPUDECK_JOB": str(job.id),
        "GPUDECK_ATTEMPT": running.attempt,
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


def kill(attempt: str) -> None:
    """Kill every process that carries this attempt's nonce, wherever it hid: again while a look finds any, as they may fork meanwhile."""
    needle = f"GPUDECK_ATTEMPT={attempt}".encode()
    for _ in range(KILL_LOOKS):
        if not [pid for pid in _carriers(needle) if _killed(pid)]:
            return


def _carriers(needle: bytes) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if needle in (entry / "environ").read_bytes().split(b"\0"):
                    yield int(entry.name)
            except OSError:
                continue  # ended meanwhile, or not ours to look into


def _killed(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        return False
    return True
