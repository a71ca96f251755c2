"""Check that no process has a file open, and that no job may need it."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path

from assistant.housekeeping.findings import Finding, StaysError
from assistant.housekeeping.scope import Scope
from assistant.housekeeping.walk import Entry, Measure, measure
from scheduler.protocol import paths
from scheduler.protocol.jobs import Job

CHANGED = "it has changed since it was looked at"
_PROBE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOATIME | os.O_CLOEXEC


class Holders:
    """Who had what open, mapped, or as its working folder, when this was first asked. Processes of others cannot be seen into."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, int], int] = {}
        self._mapped: dict[int, int] = {}
        """By inode number alone: the device that maps tell is not always the one that stat(2) tells (btrfs, overlay)."""
        self._looked = False

    def of(self, inodes: frozenset[tuple[int, int]]) -> str:
        """Which process has one of these; empty where none has."""
        if not self._looked:
            self._look_at_all()
        for inode in inodes:
            pid = self._open.get(inode) or self._mapped.get(inode[1])
            if pid is not None:
                return _name(pid)
        return ""

    def _look_at_all(self) -> None:
        self._looked = True
        with os.scandir("/proc") as processes:
            for process in processes:
                if process.name.isdigit():
                    self._look(int(process.name))

    def _look(self, pid: int) -> None:
        """A process that ends meanwhile has nothing open; one that is not ours tells nothing."""
        try:
            cwd = Path(f"/proc/{pid}/cwd").stat()
            self._open[cwd.st_dev, cwd.st_ino] = pid
            with os.scandir(f"/proc/{pid}/fd") as files:
                for file in files:
                    self._add(file, pid)
            maps = Path(f"/proc/{pid}/maps").read_bytes()
        except OSError:
            return
        for line in maps.splitlines():
            if inode := int(line.split(maxsplit=5)[4]):
                self._mapped[inode] = pid

    def _add(self, file: os.DirEntry[str], pid: int) -> None:
        try:
            info = file.stat()
        except OSError:
            return  # closed meanwhile
        self._open[info.st_dev, info.st_ino] = pid


def _name(pid: int) -> str:
    try:
        return f"{Path(f'/proc/{pid}/comm').read_text(errors='replace').strip()} (pid {pid})"
    except OSError:
        return f"process {pid}"


def check_unused(folder: int, name: str, seal: str = "", holders: Holders | None = None) -> Measure:
    """The measure of what nobody has open. Raises StaysError where somebody has, or its seal is another; and what `walk` raises.

    Of plain files the kernel tells, whoever has them open: a lease for writing is granted only on a file that nobody else has open
    (fcntl(2), F_SETLEASE); it is given back at once. File systems without leases leave it to `holders`.
    """
    held: list[Entry] = []
    found = measure(
        folder,
        name,
        lambda entry: (
            held.append(entry) if entry.plain and _held(entry.folder, entry.name) else None
        ),
    )
    if seal and found.seal != seal:
        raise StaysError(CHANGED)
    if who := (holders or Holders()).of(found.inodes):
        raise StaysError(f"{who} has it open")
    if held:
        raise StaysError(
            "a process has a file in it open" if held[0].below else "a process has it open"
        )
    return found


def _held(folder: int, name: str) -> bool:
    fd = os.open(name, _PROBE, dir_fd=folder)
    try:
        fcntl.fcntl(
            fd, fcntl.F_SETSIG, signal.SIGURG
        )  # one that is ignored, where somebody opens the file just now
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as e:
        return e.errno == errno.EAGAIN
    finally:
        os.close(fd)
    return False


_WHERE_THEY_WORK = ("core", "duplicate")
"""Kinds that may be anything a job wants to read; a cache or an old log in its working folder is what it is."""


class Needs:
    """Made once for many finds: a path is looked up, not compared with all others."""

    def __init__(self, scope: Scope) -> None:
        self._named: dict[Path, str] = {}
        """What is needed, with all that lies in it."""
        self._above: dict[Path, str] = {}
        """The folders that something needed lies in."""
        self._work: dict[Path, str] = {}
        for job in scope.active:
            cwd = _real(job.spec.cwd)
            self._work[cwd] = f"job {job.id} works in {cwd}"
            for path in _paths(job, cwd):
                self._add(path, f"job {job.id} needs it")
        if scope.model:
            self._add(scope.model, "it belongs to the assistant's model")

    def of(self, find: Finding) -> str:
        """Who may need it; empty where nobody does."""
        path = find.path
        where = (path, *path.parents)
        if why := self._above.get(path) or _first(self._named, where):
            return why
        return _first(self._work, where) if find.kind in _WHERE_THEY_WORK else ""

    def _add(self, path: Path, why: str) -> None:
        self._named[path] = why
        self._above |= dict.fromkeys(path.parents, why)


def _paths(job: Job, cwd: Path) -> Iterator[Path]:
    """The job's folder, and what a word of its command names: itself, or behind its =."""
    yield _real(paths.job_folder(job.id))
    for word in job.spec.argv:
        for part in (word, word.partition("=")[2]):
            if "/" in part or Path(part).suffix:
                yield _real(cwd / part)


def _real(path: str | Path) -> Path:
    return Path(os.path.realpath(path))


def _first(found: dict[Path, str], where: Iterable[Path]) -> str:
    return next((found[path] for path in where if path in found), "")
