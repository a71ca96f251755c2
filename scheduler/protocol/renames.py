"""Rename files and folders in two ways that Python lacks, by renameat2(2)."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

UNABLE = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
"""The errors of file systems that rename in no such way, such as NFS and many that use FUSE."""
_NOREPLACE, _EXCHANGE = 1, 2
_AT_CWD = -100


def exchange(one: Path, other: Path) -> None:
    """Exchange two names at once. Raises OSError, one of UNABLE if that cannot be done."""
    _rename(one, _AT_CWD, other, _AT_CWD, _EXCHANGE)


def rename_to_free_name(old: str, old_folder: int, new: str, new_folder: int) -> None:
    """Rename a file, and overwrite nothing; the folders are descriptors.

    Raises FileExistsError if the name is taken, and OSError, one of UNABLE if that cannot be done.
    """
    _rename(old, old_folder, new, new_folder, _NOREPLACE)


def _rename(old: str | Path, old_folder: int, new: str | Path, new_folder: int, how: int) -> None:
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if rename(old_folder, os.fsencode(old), new_folder, os.fsencode(new), how):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(old))
