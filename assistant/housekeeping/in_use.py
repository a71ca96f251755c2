"""Check that no process has a file open, and that no job may need it.

Processes of this user show their open files in /proc. For a regular file of ours the kernel also
knows about all other processes, through a lease.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path

from gpudeck.assistant.housekeeping.findings import Finding, StaysError
from gpudeck.assistant.housekeeping.scope import Scope
from gpudeck.assistant.housekeeping.walk import Entry, Measure, measure
from gpudeck.language.text import Text, phrase
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.jobs import Job

CHANGED = phrase("it has changed since the scan")
_NAMELESS = (b"/memfd:", b"/dev/zero (deleted)", b"/SYSV")
"""What maps show for memory that no folder has, whose inodes are numbered apart from those of
files."""
_SHARED_MEMORY = b"/dev/shm/"
"""The folder of semaphores and shared memory, which programs map and delete at once. It is a tmpfs,
for which maps show the device that stat(2) shows."""
_WHERE_THEY_WORK = ("core", "duplicate")
"""Kinds of files that a job might read from its working folder. A cache or an old log there is
never input."""
_PROBE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOATIME | os.O_CLOEXEC


class OpenFiles:
    """Record which process has which file open, mapped, or as its working folder.

    The record is taken at the first question. Processes of other users cannot be inspected.
    """

    def __init__(self) -> None:
        self._open: dict[tuple[int, int], int] = {}
        self._mapped: dict[int, int] = {}
        """By inode number alone, where the mapped file cannot be found by its name: maps do not
        always show the device that stat(2) shows (btrfs, overlay).
        """
        self._files: dict[tuple[bytes, int], tuple[int, int] | None] = {}
        """The device and inode of stat(2) by those that maps show; None if it is not known."""
        self._complete = False

    def of(self, inodes: frozenset[tuple[int, int]]) -> str:
        """Return the process that has one of these inodes open, or an empty string."""
        if not self._complete:
            self._read_all()
        for inode in inodes:
            pid = self._open.get(inode) or self._mapped.get(inode[1])
            if pid is not None:
                return _name(pid)
        return ""

    def _read_all(self) -> None:
        self._complete = True
        with os.scandir("/proc") as processes:
            for process in processes:
                if process.name.isdigit():
                    self._read_process(int(process.name))

    def _read_process(self, pid: int) -> None:
        """Record what one process has open.

        A process that ends meanwhile has nothing open; one of another user cannot be inspected.
        """
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
            _, _, _, device, number, *named = line.split(maxsplit=5)
            name = named[0] if named else b""
            if (inode := int(number)) and not name.startswith(_NAMELESS):
                self._add_mapped(device, inode, name, pid)

    def _add_mapped(self, device: bytes, inode: int, name: bytes, pid: int) -> None:
        if (device, inode) not in self._files:
            self._files[device, inode] = _file_of(device, inode, name, pid)
        if (file := self._files[device, inode]) is None:
            self._mapped[inode] = pid
        else:
            self._open[file] = pid

    def _add(self, file: os.DirEntry[str], pid: int) -> None:
        try:
            info = file.stat()
        except OSError:
            return  # It was closed meanwhile.
        self._open[info.st_dev, info.st_ino] = pid


def _file_of(device: bytes, inode: int, name: bytes, pid: int) -> tuple[int, int] | None:
    """Return the device and inode of a file that a process has mapped, if its name leads to it, or
    if its folder is shared memory on that device.
    """
    path = Path(f"/proc/{pid}/root{os.fsdecode(name)}")
    try:
        if name.startswith(_SHARED_MEMORY):
            there = path.parent.stat().st_dev
            shown = f"{os.major(there):02x}:{os.minor(there):02x}".encode()
            return (there, inode) if shown == device else None
        info = path.stat()
    except OSError:
        return None
    return (info.st_dev, info.st_ino) if info.st_ino == inode else None


def _name(pid: int) -> str:
    try:
        return f"{Path(f'/proc/{pid}/comm').read_text(errors='replace').strip()} (pid {pid})"
    except OSError:
        return f"process {pid}"


def check_unused(
    folder: int, name: str, seal: str = "", holders: OpenFiles | None = None
) -> Measure:
    """Return the measure of a file or folder that nobody has open.

    The kernel knows about every process: it grants a write lease only on a file that nobody else
    has open (fcntl(2), F_SETLEASE). The lease is given back at once. On file systems without
    leases, only `holders` can tell.

    Raises:
        StaysError: A process has it open, its seal differs, or `walk` refuses it.
        OSError: It cannot be read.
    """
    held: list[Entry] = []

    def look(entry: Entry) -> None:
        if entry.plain and _held(entry.folder, entry.name):
            held.append(entry)

    found = measure(folder, name, look)
    if seal and found.seal != seal:
        raise StaysError(CHANGED)
    if who := (holders or OpenFiles()).of(found.inodes):
        raise StaysError(phrase("{name} has it open", name=who))
    if held:
        raise StaysError(
            phrase("a process has a file in it open")
            if held[0].below
            else phrase("a process has it open")
        )
    return found


def _held(folder: int, name: str) -> bool:
    fd = os.open(name, _PROBE, dir_fd=folder)
    try:
        # SIGURG is ignored by default; it arrives if somebody opens the file just now
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as e:
        return e.errno == errno.EAGAIN
    finally:
        os.close(fd)
    return False


class Needs:
    """Look up who needs a path. Built once for many findings, so that a path is looked up, not
    compared.
    """

    def __init__(self, scope: Scope) -> None:
        self._named: dict[Path, Text] = {}
        """Paths that are needed, with everything below them."""
        self._above: dict[Path, Text] = {}
        """Folders that hold something needed."""
        self._work: dict[Path, Text] = {}
        for job in scope.active:
            cwd = _real(job.spec.cwd)
            self._work[cwd] = phrase("job {job} works in {path}", job=job.id, path=str(cwd))
            for path in _paths(job, cwd):
                self._add(path, phrase("job {job} needs it", job=job.id))
        if scope.model:
            self._add(scope.model, phrase("it belongs to the assistant's model"))

    def of(self, find: Finding) -> Text | None:
        """Return why a finding may be needed; None if it is not."""
        path = find.path
        where = (path, *path.parents)
        if why := self._above.get(path) or _first(self._named, where):
            return why
        return _first(self._work, where) if find.kind in _WHERE_THEY_WORK else None

    def _add(self, path: Path, why: Text) -> None:
        self._named[path] = why
        self._above |= dict.fromkeys(path.parents, why)


def _paths(job: Job, cwd: Path) -> Iterator[Path]:
    """Yield the job's folder and the paths that words of its command name, also after an equals
    sign.
    """
    yield _real(paths.job_folder(job.id))
    for word in job.spec.argv:
        for part in (word, word.partition("=")[2]):
            if "/" in part or Path(part).suffix:
                yield _real(cwd / part)


def _real(path: str | Path) -> Path:
    return Path(os.path.realpath(path))


def _first(found: dict[Path, Text], where: Iterable[Path]) -> Text | None:
    return next((found[path] for path in where if path in found), None)
