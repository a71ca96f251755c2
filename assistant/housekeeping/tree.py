"""Looking at files so that no link leads anywhere: every folder is opened by its handle, one after the other.

What is walked stays on one file system and within DEEPEST folders, and belongs to this user as a whole.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from assistant.housekeeping.find import Kept

DEEPEST = 100
"""Folders in folders that are gone into; each holds one file open."""
BLOCK = 512
"""st_blocks counts these, whatever the file system's own (stat(2))."""
_FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Entry(NamedTuple):
    folder: int
    """Handle of the folder it is in; open until the next entry is asked for."""
    name: str
    below: str
    """Its path within what is walked."""
    info: os.stat_result

    @property
    def plain(self) -> bool:
        return stat.S_ISREG(self.info.st_mode)


class Measure(NamedTuple):
    """What was found of a file, or of a folder and all below it."""

    bytes: int
    """Allocated bytes of all that has no name elsewhere, each file counted once."""
    used: float
    """When any of its files was read or written last, seconds since the epoch."""
    seal: str
    """Digest of names, types, inode numbers, sizes and times of change: moving it as a whole leaves it the same."""
    inodes: frozenset[tuple[int, int]]
    """Device and number of everything."""


@contextmanager
def opened(path: Path) -> Iterator[int]:
    """A handle of a folder, reached without following any link. Raises OSError, also where a part of the path is a link."""
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
    """A handle of a folder in another, to read or to change what is in it. Raises OSError, also where it is a link."""
    fd = os.open(name, os.O_RDONLY | _FOLDER, dir_fd=above)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def parent(path: Path) -> Iterator[tuple[int, str]]:
    """A handle of the folder that `path` is in, and its name there."""
    with opened(path.parent) as fd:
        yield fd, path.name


def walk(folder: int, name: str) -> Iterator[Entry]:
    """The entry of that name and all below it, folders before what is in them, by name.

    Raises Kept where something is another user's, on another file system, or too deep; OSError where it cannot be read.
    """
    info = os.stat(name, dir_fd=folder, follow_symlinks=False)
    yield from _walk(Entry(folder, name, "", info), info.st_dev, DEEPEST)


def _walk(entry: Entry, device: int, depth: int) -> Iterator[Entry]:
    if entry.info.st_uid != os.geteuid():
        raise Kept(
            "something in it belongs to another user"
            if entry.below
            else "it belongs to another user"
        )
    if entry.info.st_dev != device:
        raise Kept("another file system is mounted in it")
    yield entry
    if not stat.S_ISDIR(entry.info.st_mode):
        return
    if not depth:
        raise Kept(f"it holds more than {DEEPEST} folders one in another")
    with folder_in(entry.folder, entry.name) as fd:
        if not os.path.samestat(os.fstat(fd), entry.info):
            raise Kept("it changes while it is looked at")
        with os.scandir(fd) as inside:
            names = sorted(found.name for found in inside)
        for name in names:
            info = os.stat(name, dir_fd=fd, follow_symlinks=False)
            yield from _walk(Entry(fd, name, f"{entry.below}/{name}", info), device, depth - 1)


def measure(folder: int, name: str, look: Callable[[Entry], None] = lambda entry: None) -> Measure:
    """`look` is called with each entry. Raises what `walk` raises."""
    digest, links, used = hashlib.blake2b(digest_size=16), dict[tuple[int, int], list[int]](), 0.0
    for entry in walk(folder, name):
        look(entry)
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
    """As `measure`, of a path. Raises what `walk` raises."""
    with parent(path) as (fd, name):
        return measure(fd, name)
