"""Find out what a runner waits for that has not ended, and let it go where it need not wait."""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from gpudeck.language.text import Message, Text, phrase
from gpudeck.scheduler.background.process_stat import boot_id, pid_namespace, read_proc
from gpudeck.scheduler.executors.exit_writer import LINGERS, UNWRITTEN
from gpudeck.scheduler.executors.runner import LET_GO
from gpudeck.scheduler.protocol.devices import Device, Reading
from gpudeck.scheduler.protocol.jobs import Job, Running
from gpudeck.scheduler.protocol.snapshot import label

ELSEWHERE = phrase(
    "runs in another PID namespace, as in a container, and can only be cancelled there"
)


class Finding(NamedTuple):
    """Describe what was found about the runner of a job."""

    job: int
    note: Message = ""
    """What it waits for, for display; empty where it waits for its command."""
    ended: bool = False
    """True where it is gone, and nobody reports that."""
    left: str = ""
    """Which processes stay behind as it is let go; empty where it is not."""


class RunnerInspector:
    """Inspect the runners of this PID namespace that live."""

    def __init__(self) -> None:
        self._lingers_since: dict[str, float] = {}
        """When each runner that lingers was seen to, by its attempt."""

    def inspect(
        self,
        job: Job,
        state: Running,
        readings: Mapping[str, Reading],
        devices: Sequence[Device],
    ) -> Finding:
        """Return what the runner waits for."""
        what, _, number = (read_proc(f"/proc/{state.runner}/comm") or b"").decode().partition(" ")
        if what == UNWRITTEN:
            problem = os.strerror(int(number))
            return Finding(job.id, phrase("its end cannot be recorded: {problem}", problem=problem))
        if what.rstrip() == LINGERS:
            return self._inspect_lingering(job, state, readings, devices)
        self._lingers_since.pop(state.attempt, None)
        if not state.stopping or not (others := _others(state.runner)):
            return Finding(job.id)
        first = others[0]
        note = phrase(
            "waits for {process}: end it with {command}",
            process=_describe(first),
            command=f"sudo kill {first}",
        )
        return Finding(job.id, note)

    def _inspect_lingering(
        self, job: Job, state: Running, readings: Mapping[str, Reading], devices: Sequence[Device]
    ) -> Finding:
        """Return which process keeps its GPU. Let the runner go where none does."""
        since = self._lingers_since.setdefault(state.attempt, time.time())
        others = _others(state.runner)
        known = {device.id: device for device in devices}
        for name in state.devices:
            device, reading = known.get(name), readings.get(name)
            if device is not None and device.kind != "nvidia":
                continue
            if device is None or reading is None or reading.time <= since:
                note = phrase(
                    "has ended; {process} may still be on {device}",
                    process=_describe(others[0]) if others else phrase("a process of another user"),
                    device=name if device is None else label(device),
                )
                return Finding(job.id, note)
            for process in reading.processes:
                if process.pid in others:
                    note = phrase(
                        "has ended; {process} is still on {device}",
                        process=_describe(process.pid),
                        device=label(device),
                    )
                    return Finding(job.id, note)
        try:
            os.kill(state.runner, LET_GO)
        except ProcessLookupError:
            return Finding(job.id)  # it ended in this moment
        self._lingers_since.pop(state.attempt, None)
        return Finding(job.id, left=", ".join(str(_describe(other)) for other in others))


def is_elsewhere(state: Running) -> bool:
    """Return whether the runner is in another PID namespace, so that its pid means nothing here."""
    return state.boot == boot_id() and state.namespace not in (0, pid_namespace())


def _others(pid: int) -> list[int]:
    """Return the descendants of a process that belong to other users, parents first."""
    own, found = os.getuid(), []
    for child in _descendants(pid):
        try:
            if Path(f"/proc/{child}").stat().st_uid != own:
                found.append(child)
        except OSError:
            continue  # it ended in this moment
    return found


def _descendants(pid: int) -> Iterator[int]:
    for child in (read_proc(f"/proc/{pid}/task/{pid}/children") or b"").split():
        yield int(child)
        yield from _descendants(int(child))


def _describe(pid: int) -> Text:
    """Return the process with its owner: "process 1234 of root (python)"."""
    try:
        uid = Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return phrase("process {pid}", pid=pid)
    user: Message
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = phrase("user {uid}", uid=uid)
    name = (read_proc(f"/proc/{pid}/comm") or b"").decode(errors="replace").strip()
    return phrase("process {pid} of {user} ({name})", pid=pid, user=user, name=name)
