"""Use the trash folders that desktops share.

Source: https://specifications.freedesktop.org/trash-spec/1.0/.

The file manager shows what goes there and can put it back. Files get there by renaming, so each
file system needs a trash of its own: that of the home folder, else that of the mount, else one in
the allowed folder itself, which file managers do not show.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote_from_bytes

from gpudeck.assistant.housekeeping.findings import shown
from gpudeck.assistant.housekeeping.walk import folder_in, opened, parent

FILES, INFO, ENDING = "files", "info", ".trashinfo"
_PRIVATE = 0o700
_LONGEST = 150
"""Bytes of a name that are kept in the trash, so that a suffix fits (most file systems allow 255).
"""


class TrashFolder(NamedTuple):
    """Describe a trash folder and the paths in its notes."""

    path: Path
    top: Path | None
    """The folder that the paths in its notes are relative to; None for the root."""

    def note(self, path: Path) -> bytes:
        """Return the trash's note on something that was at `path`."""
        recorded = quote_from_bytes(os.fsencode(path.relative_to(self.top) if self.top else path))
        when = time.strftime("%Y-%m-%dT%H:%M:%S")
        return f"[Trash Info]\nPath={recorded}\nDeletionDate={when}\n".encode("ascii")


def name_for(path: Path, token: str) -> str:
    """Return a name that nothing else in the trash has."""
    return f"{os.fsdecode(os.fsencode(path.name)[:_LONGEST])}.{token}"


def trash_for(path: Path, root: Path, mounts: Mounts) -> TrashFolder:
    """Return the trash that `path`, below the allowed folder `root`, can be renamed to; create it
    if needed.

    Raises:
        OSError: No trash is possible on that file system.
    """
    trouble: OSError | None = None
    for found in _candidates(path, root, mounts):
        try:
            _make(found.path)
        except OSError as e:
            trouble = e
        else:
            return found
    raise trouble or OSError(f"no trash can be created on the file system of {shown(path)}")


@contextmanager
def inside(path: Path, part: str) -> Iterator[int]:
    """Open a trash's FILES or INFO folder. Raises OSError, also if others may write there."""
    with opened(path) as fd:
        _check(os.fstat(fd), path)
        with folder_in(fd, part) as inner:
            _check(os.fstat(inner), path)
            yield inner


def _candidates(path: Path, root: Path, mounts: Mounts) -> Iterator[TrashFolder]:
    with opened(path.parent) as fd:
        mount, device = mount_number(fd), os.fstat(fd).st_dev
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    home = Path(os.path.realpath(Path(data).expanduser())) / "Trash"
    if _same(home, mount, device):
        yield TrashFolder(home, None)
    top, user = mounts.points.get(mount), os.geteuid()
    if top is not None and _same(top, mount, device):
        shared = top / ".Trash"
        if _is_shared(shared):
            yield TrashFolder(shared / str(user), top)
        yield TrashFolder(top / f".Trash-{user}", top)
    yield TrashFolder(root / f".Trash-{user}", root)


def _same(path: Path, mount: int, device: int) -> bool:
    """Return True if something created at `path` would be on this mount and device."""
    while not path.is_dir():
        path = path.parent
    with opened(Path(os.path.realpath(path))) as fd:
        return mount_number(fd) == mount and os.fstat(fd).st_dev == device


def _is_shared(path: Path) -> bool:
    """Return True if an administrator made a shared trash in which nobody can take what is
    another's.
    """
    try:
        mode = path.lstat().st_mode
    except OSError:
        return False
    return stat.S_ISDIR(mode) and bool(mode & stat.S_ISVTX)


def _make(path: Path) -> None:
    path.parent.mkdir(_PRIVATE, parents=True, exist_ok=True)
    with parent(path) as (above, name):
        _make_one(above, name)
    with opened(path) as fd:
        _check(os.fstat(fd), path)
        for part in (FILES, INFO):
            _make_one(fd, part)
    for part in (FILES, INFO):
        with inside(path, part):
            pass


def _make_one(folder: int, name: str) -> None:
    try:
        os.mkdir(name, _PRIVATE, dir_fd=folder)
    except FileExistsError:
        pass  # Its owner and mode are checked before it is used.


def _check(info: os.stat_result, path: Path) -> None:
    if info.st_uid != os.geteuid() or info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(f"the trash {shown(path)} is open to others")


_OCTAL = re.compile(rb"\\([0-7]{3})")


class Mounts:
    """Record which file systems are mounted, from /proc/self/mountinfo (proc_pid_mountinfo(5))."""

    def __init__(self) -> None:
        self.points: dict[int, Path] = {}
        """The mount points by mount number."""
        for line in Path("/proc/self/mountinfo").read_bytes().splitlines():
            fields = line.split(b" ")
            self.points[int(fields[0])] = Path(
                os.fsdecode(_OCTAL.sub(lambda code: bytes([int(code[1], 8)]), fields[4]))
            )
        self._above = {
            folder for point in self.points.values() for folder in (point, *point.parents)
        }

    def covers(self, path: Path) -> bool:
        """Return True if something is mounted at this path or below it."""
        return path in self._above


def mount_number(fd: int) -> int:
    """Return the number of the mount through which a file was opened.

    A bind mount shares its device with another mount, yet files cannot be renamed between them.
    """
    for line in Path(f"/proc/self/fdinfo/{fd}").read_text().splitlines():
        if line.startswith("mnt_id:"):
            return int(line.split()[1])
    raise OSError(f"the kernel does not report the mount of file {fd}")
