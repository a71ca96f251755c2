"""Write the new content of a file under a name of its own, and put it in the place of the file."""

from __future__ import annotations

import contextlib
import os
import pwd
import tempfile
from pathlib import Path

from gpudeck.accel.inject.refused import Refused
from gpudeck.accel.runtime.state_files import sync
from gpudeck.language.text import phrase


def stage(path: Path, prefix: str, data: bytes, mode: int, like: os.stat_result | None) -> Path:
    """Write a new file beside another one, and return its path when it is safely on disk.

    Args:
        like: whose owner and group it gets, with the extended attributes of `path`; None for a
            file of one's own.

    Raises:
        Refused: if it cannot get that owner or group.
    """
    handle, name = tempfile.mkstemp(prefix=prefix, dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as f:
            f.write(data)
            f.flush()
            if like is not None:
                _keep_owner(f.fileno(), like)
                _copy_attributes(path, f.fileno())
            os.fchmod(f.fileno(), mode)  # last, as a new owner resets bits of it
            os.fsync(f.fileno())
        sync(path.parent)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return Path(name)


def replace(path: Path, prefix: str, data: bytes) -> None:
    """Write a file of one's own completely or not at all."""
    staged = stage(path, prefix, data, 0o600, None)
    try:
        rename(staged, path)
    finally:
        staged.unlink(missing_ok=True)


def rename(old: Path, new: Path) -> None:
    """Rename a file within its folder, and return when that is on disk."""
    os.replace(old, new)  # noqa: PTH105 - one home for the call that tests let fail
    sync(new.parent)


def remove_staged(folder: Path, prefix: str) -> None:
    """Remove what a kill in the middle of writing left behind."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for file in folder.iterdir():
            if file.name.startswith(prefix):
                file.unlink(missing_ok=True)


def _keep_owner(handle: int, like: os.stat_result) -> None:
    now = os.fstat(handle)
    if (now.st_uid, now.st_gid) != (like.st_uid, like.st_gid):
        try:
            os.fchown(handle, like.st_uid, like.st_gid)
        except PermissionError as e:
            raise Refused(
                phrase(
                    "the changed file could not keep its owner {user} and its group; run this as"
                    " that user",
                    user=_name(like.st_uid),
                )
            ) from e


def _name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)


def _copy_attributes(path: Path, handle: int) -> None:
    """Copy access lists and other extended attributes, as far as the file system has them."""
    with contextlib.suppress(OSError):
        for name in os.listxattr(path):
            with contextlib.suppress(OSError):  # such as one that only root may set
                os.setxattr(handle, name, os.getxattr(path, name))
