"""A model's folder is replaced as a whole: another revision is gathered beside it, and takes its place at once when all of it is there.

What is gathered stays where the process ends, so that the next one goes on with it. At every moment the folder holds one revision, or
none was ever whole.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from collections.abc import Collection
from pathlib import Path

from scheduler.protocol import paths

_EXCHANGE = 2
"""RENAME_EXCHANGE of renameat2(2)."""
_AT_CWD = -100
_UNABLE = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
"""What file systems answer that cannot exchange two names, such as NFS."""


def beside(folder: Path) -> Path:
    """Where another revision of the folder is gathered."""
    return folder.with_name(f".{folder.name}.new")


def begin(folder: Path, keep: Collection[str]) -> Path:
    """That place, with what it has of the files to `keep`. Puts right what a process left that ended in the middle of `replace`."""
    new, old = beside(folder), _aside(folder)
    if old.exists() and not folder.exists():
        old.rename(folder)
    shutil.rmtree(old, ignore_errors=True)
    paths.ensure(new)
    for entry in new.iterdir():
        if entry.name not in keep:
            remove(entry)
    return new


def remove(entry: Path) -> None:
    """A file, a link or a whole folder. Raises OSError."""
    if entry.is_dir() and not entry.is_symlink():
        shutil.rmtree(entry)
    else:
        entry.unlink(missing_ok=True)


def take_over(entry: Path, folder: Path) -> None:
    """Have the file, link or folder `entry` in `folder`, too, without a second copy where the file system allows that."""
    to = folder / entry.name
    if entry.is_dir() and not entry.is_symlink():
        shutil.copytree(entry, to, symlinks=True, copy_function=_link)
    else:
        _link(entry, to)


def replace(folder: Path) -> None:
    """What was gathered is the folder now; what the folder was is deleted. It is on disk when this returns. Raises OSError."""
    new, old = beside(folder), _aside(folder)
    paths.sync(new)
    if not folder.exists():
        new.rename(folder)
    else:
        try:
            exchange(new, folder)
            new.rename(old)
        except OSError as e:
            if e.errno not in _UNABLE:
                raise
            folder.rename(
                old
            )  # one who looks between these two finds none, and `begin` puts it back
            new.rename(folder)
    paths.sync(folder.parent)
    shutil.rmtree(old, ignore_errors=True)


def exchange(one: Path, other: Path) -> None:
    """Let two folders change their names at once. Raises OSError, ENOSYS where the C library cannot."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if rename(_AT_CWD, os.fsencode(one), _AT_CWD, os.fsencode(other), _EXCHANGE):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(one))


def _aside(folder: Path) -> Path:
    """Where the folder is while another takes its place."""
    return folder.with_name(f".{folder.name}.old")


def _link(entry: str | Path, to: str | Path) -> None:
    try:
        os.link(entry, to, follow_symlinks=False)
    except OSError:
        shutil.copy2(entry, to, follow_symlinks=False)
