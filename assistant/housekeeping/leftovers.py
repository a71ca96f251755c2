"""Find what crashed or killed programs left behind: core dumps, shared memory, GPU processes.

Processes are only reported: `Client.kill` ends one after a person approved.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import psutil

from gpudeck.assistant.housekeeping.findings import Finding, ScanMonitor, StaysError, encoded
from gpudeck.assistant.housekeeping.in_use import OpenFiles, check_unused
from gpudeck.assistant.housekeeping.scope import Scope
from gpudeck.assistant.housekeeping.walk import Candidate, directly_in, measured, parent
from gpudeck.language.text import Text, phrase
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.devices import Detail, Process
from gpudeck.scheduler.protocol.errors import NotFound
from gpudeck.scheduler.protocol.jobs import Job

_NAME = re.compile(r"(?:vg)?core(?:[._-].*)?|.*\.core(?:\.\d+)?|.*\.nvcudmp", re.DOTALL)
"""Names from core(5), systemd and other patterns, and Valgrind; CUDA's core dumps end with
.nvcudmp.
"""
_ELF = b"\x7fELF"
_BIG = b"\x02"
_CORE, _AT = 4, 16
"""The e_type of a core dump, and its offset in the file (elf(5))."""


def find_core_dumps(
    scope: Scope, files: Iterable[Candidate], monitor: ScanMonitor
) -> Iterator[Finding]:
    """Yield old core dumps, recognised by name and content."""
    oldest, now = scope.age_of("core"), time.time()
    if oldest is None:
        return
    for path, root, info in files:
        if (
            not stat.S_ISREG(info.st_mode)
            or now - info.st_mtime < oldest
            or not _NAME.fullmatch(path.name)
        ):
            continue
        try:
            if not _is_core(path):
                continue
            found = measured(path)
        except (StaysError, OSError) as e:
            monitor.note_unreadable(path, e)
            continue
        yield Finding(
            "core",
            encoded(path),
            encoded(root),
            found.bytes,
            phrase("left by a program that crashed"),
            now - info.st_mtime,
            found.seal,
        )


def _is_core(path: Path) -> bool:
    with paths.open_plain(path) as f:
        head = f.read(_AT + 2)
    kind = int.from_bytes(head[_AT : _AT + 2], "big" if head[5:6] == _BIG else "little")
    return head.startswith(_ELF) and (path.suffix == ".nvcudmp" or kind == _CORE)


REASON = phrase("shared memory that no process has open; it is memory until the trash is emptied")


def find_shared_memory(scope: Scope, monitor: ScanMonitor) -> Iterator[Finding]:
    """Yield files in shared memory that no process has open.

    Folders are left alone: whoever made one there means to come back.
    """
    oldest, now = scope.age_of("memory"), time.time()
    if oldest is None or scope.memory is None:
        return
    holders = OpenFiles()
    for path, root, info in directly_in(scope.memory, monitor):
        if not stat.S_ISREG(info.st_mode) or now - max(info.st_mtime, info.st_atime) < oldest:
            continue
        try:
            with parent(path) as (folder, name):
                found = check_unused(folder, name, holders=holders)
        except StaysError:
            continue  # It is in use, or belongs to another user.
        except OSError as e:
            monitor.note_unreadable(path, e)
            continue
        yield Finding(
            "memory",
            encoded(path),
            encoded(root),
            found.bytes,
            REASON,
            now - found.used,
            found.seal,
        )


def find_processes(
    scope: Scope, details: Iterable[Detail], job: Callable[[int], Job]
) -> Iterator[Finding]:
    """Yield GPU processes that a job of this queue left behind.

    Args:
        scope: The scope of the scan.
        details: The details of the devices.
        job: Returns a job by its number, or raises NotFound.
    """
    now, user = time.time(), psutil.Process().username()
    if scope.age_of("process") is None:
        return
    memory: dict[int, float] = {}
    found: dict[int, Process] = {}
    for process in (p for detail in details for p in detail.processes):
        if process.job is not None and process.ticks and process.user == user:
            memory[process.pid] = memory.get(process.pid, 0.0) + (process.memory or 0.0)
            found[process.pid] = process
    for pid, process in found.items():
        assert process.job is not None
        if _was_started_by(pid, scope.jobs, process.job) and (
            status := _how_it_ended(process.job, job)
        ):
            reason = phrase(
                "{name} holds a GPU for job {job}, which has ended ({status})",
                name=process.name, job=process.job, status=status,
            )  # fmt: skip
            yield Finding(
                "process", "", "", int(memory[pid]), reason, now - process.start, process=process
            )


def _was_started_by(pid: int, jobs: Path | None, job: int) -> bool:
    """Return True if this queue started the process: other state folders use the same
    job numbers.
    """
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    named = next(
        (line.partition(b"=")[2] for line in environment if line.startswith(b"GPUDECK_ARTEFACTS=")),
        b"",
    )
    return jobs is not None and Path(os.path.realpath(os.fsdecode(named))).parent == jobs / str(job)


def _how_it_ended(number: int, job: Callable[[int], Job]) -> Text | None:
    """Return how a job ended; None while it is active."""
    try:
        found = job(number)
    except NotFound:
        return phrase("the queue does not know it")
    return None if found.active else Text(found.status)
