"""Walk through files so that no link leads anywhere: every folder is opened by its handle.

A walk stays on one file system and within DEEPEST folders, and refuses what belongs to other users.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from gpudeck.assistant.housekeeping.findings import ScanMonitor, StaysError, is_in_trash
from gpudeck.language.text import phrase

DEEPEST = 100
"""The depth of folders that a walk enters; each level holds one file open."""
BLOCK = 512
"""The unit of st_blocks, whatever the file system's own block size (stat(2))."""
_FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Entry(NamedTuple):
    """Describe an entry of a folder during a walk."""

    folder: int
    """A handle of its folder, open until the next entry is requested."""
    name: str
    below: str
    """Its path below the start of the walk."""
    info: os.stat_result

    @property
    def plain(self) -> bool:
        """Return True for a regular file."""
        return stat.S_ISREG(self.info.st_mode)


class Measure(NamedTuple):
    """Describe a file, or a folder with everything below it."""

    bytes: int
    """Allocated bytes of everything without a name elsewhere, each file counted once."""
    used: float
    """When any of its files was last read or written, seconds since the epoch."""
    seal: str
    """A digest of names, types, inode numbers, sizes and change times; a move of the whole keeps
    it.
    """
    inodes: frozenset[tuple[int, int]]
    """The device and inode number of every entry."""


@contextmanager
def opened(path: Path) -> Iterator[int]:
    """Open a folder without following any link. Raises OSError, also if part of the
    path is a link.
    """
    fd = os.open("/", os.O_PATH | _FOLDER)
    try:
        for part in path.parts[1:]:
            inner = os.open(part, os.O_PATH | _FOLDER, dir_fd=fd)
            os.close(fd)
            fd = inner
        yield fd
    finally:
        os.close(fd)


@contextmanager
def folder_in(above: int, name: str) -> Iterator[int]:
    """Open a folder inside another, to read or change its content. Raises OSError, also
    for a link.
    """
    fd = os.open(name, os.O_RDONLY | _FOLDER, dir_fd=above)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def parent(path: Path) -> Iterator[tuple[int, str]]:
    """Open the folder that holds `path`; yield its handle and the name in it."""
    with opened(path.parent) as fd:
        yield fd, path.name


def walk(folder: int, name: str) -> Iterator[Entry]:
    """Yield the entry of that name and everything below it, folders before their content, by name.

    Raises:
        StaysError: Something belongs to another user or file system, or is too deep.
        OSError: Something cannot be read.
    """
    info = os.stat(name, dir_fd=folder, follow_symlinks=False)
    yield from _walk(Entry(folder, name, "", info), info.st_dev, DEEPEST)


def _walk(entry: Entry, device: int, depth: int) -> Iterator[Entry]:
    if entry.info.st_uid != os.geteuid():
        raise StaysError(
            phrase("something in it belongs to another user")
            if entry.below
            else phrase("it belongs to another user")
        )
    if entry.info.st_dev != device:
        raise StaysError(phrase("another file system is mounted in it"))
    yield entry
    if not stat.S_ISDIR(entry.info.st_mode):
        return
    if not depth:
        raise StaysError(phrase("it holds more than {n} nested folders", n=DEEPEST))
    with folder_in(entry.folder, entry.name) as fd:
        if not os.path.samestat(os.fstat(fd), entry.info):
            raise StaysError(phrase("it changed during the scan"))
        with os.scandir(fd) as inside:
            names = sorted(found.name for found in inside)
        for name in names:
            info = os.stat(name, dir_fd=fd, follow_symlinks=False)
            yield from _walk(Entry(fd, name, f"{entry.below}/{name}", info), device, depth - 1)


def measure(
    folder: int, name: str, on_entry: Callable[[Entry], None] = lambda entry: None
) -> Measure:
    """Return the measure of an entry; `on_entry` is called with each entry. Raises what `walk`
    raises.
    """
    digest, links, used = hashlib.blake2b(digest_size=16), dict[tuple[int, int], list[int]](), 0.0
    for entry in walk(folder, name):
        on_entry(entry)
        below, info = entry.below, entry.info
        is_folder = stat.S_ISDIR(info.st_mode)
        state = (
            (info.st_ino, stat.S_IFMT(info.st_mode))
            if is_folder
            else (info.st_ino, info.st_mode, info.st_size, info.st_mtime_ns)
        )
        digest.update(os.fsencode(below) + b"\0" + repr(state).encode() + b"\0")
        if not is_folder or not used:
            used = max(used, info.st_mtime, 0.0 if is_folder else info.st_atime)
        seen = links.setdefault(
            (info.st_dev, info.st_ino),
            [0, 1 if is_folder else info.st_nlink, info.st_blocks * BLOCK],
        )
        seen[0] += 1
    freed = sum(size for seen, names, size in links.values() if seen >= names)
    return Measure(freed, used, digest.hexdigest(), frozenset(links))


def measured(path: Path) -> Measure:
    """Return the measure of a path. Raises what `walk` raises."""
    with parent(path) as (fd, name):
        return measure(fd, name)


class Candidate(NamedTuple):
    """Describe a file that finders look at."""

    path: Path
    root: Path
    info: os.stat_result


def walk_files(root: Path, spared: Path | None, monitor: ScanMonitor) -> Iterator[Candidate]:
    """Yield all files and links in a folder, without other file systems, trash folders and
    `spared`.
    """
    try:
        with opened(root) as fd:
            yield from _Search(root, os.fstat(fd).st_dev, spared, monitor).below(
                fd, ".", root, DEEPEST
            )
    except OSError as e:
        monitor.note_unreadable(root, e)


@dataclass(frozen=True)
class _Search:
    root: Path
    device: int
    spared: Path | None
    monitor: ScanMonitor

    def below(self, above: int, name: str, folder: Path, depth: int) -> Iterator[Candidate]:
        """Yield all files and links in a folder and below it."""
        if folder == self.spared or self.monitor.must_stop(folder):
            return
        try:
            if not depth:
                raise StaysError(phrase("it holds more than {n} nested folders", n=DEEPEST))
            with folder_in(above, name) as fd:
                for inner, info in _entries(fd):
                    if stat.S_ISREG(info.st_mode) or stat.S_ISLNK(info.st_mode):
                        yield Candidate(folder / inner, self.root, info)
                    elif (
                        stat.S_ISDIR(info.st_mode)
                        and info.st_dev == self.device
                        and not is_in_trash(Path(inner))
                    ):
                        yield from self.below(fd, inner, folder / inner, depth - 1)
        except (StaysError, OSError) as e:
            self.monitor.note_unreadable(folder, e)


def directly_in(root: Path, monitor: ScanMonitor) -> Iterator[Candidate]:
    """Yield the regular files of a folder, without those in its subfolders."""
    try:
        with opened(root) as above, folder_in(above, ".") as fd:
            for name, info in _entries(fd):
                if monitor.must_stop(root):
                    return
                if stat.S_ISREG(info.st_mode):
                    yield Candidate(root / name, root, info)
    except OSError as e:
        monitor.note_unreadable(root, e)


def _entries(fd: int) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the entries of a folder by name, without those that vanish meanwhile."""
    with os.scandir(fd) as entries:
        names = sorted(entry.name for entry in entries)
    for name in names:
        try:
            yield name, os.stat(name, dir_fd=fd, follow_symlinks=False)
        except FileNotFoundError:
            continue
