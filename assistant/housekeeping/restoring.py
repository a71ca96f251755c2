"""Put items from the trash back to where they were, without overwriting anything."""

from __future__ import annotations

import errno
import os
import stat

import msgspec

from gpudeck.assistant.housekeeping.findings import Finding, StaysError, decoded, explain_error
from gpudeck.assistant.housekeeping.journal import (
    Receipt,
    Skipped,
    TrashItem,
    forget,
    load,
    locked,
    recorded_items,
)
from gpudeck.assistant.housekeeping.trash import ENDING, FILES, INFO, inside
from gpudeck.assistant.housekeeping.walk import parent
from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol.renames import UNABLE, rename_to_free_name

TAKEN = phrase("something else is in its place now; move that away and undo again")
_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK)
"""The errors of file systems that have no hard links, such as exFAT, or that allow no more."""
_FULL = (FileExistsError, NotADirectoryError, IsADirectoryError)


class UndoResult(msgspec.Struct, frozen=True):
    """Report what an undo did."""

    id: str
    """The name of the move that was undone."""
    restored: tuple[Finding, ...] = ()
    left: tuple[Skipped, ...] = ()
    """The items that are still in the trash, and why."""


def undo(receipt: Receipt | str) -> UndoResult:
    """Put back everything that a move took and that is still in the trash.

    It may be repeated after something was in the way.

    Raises:
        NotFound: There is no record of the move.
        UserError: Another clean-up is running.
    """
    name = receipt if isinstance(receipt, str) else receipt.id
    restored, left = [], []
    with locked():
        for item in reversed(load(name).items):
            try:
                put_back(item)
            except (StaysError, OSError) as e:
                left.append(Skipped(item.find, explain_error(e)))
            else:
                restored.append(item.find)
        if not left:
            for item in recorded_items(name):
                drop_note(item)
            forget(name)
    return UndoResult(name, tuple(restored), tuple(left))


def put_back(item: TrashItem) -> None:
    """Put one item back. Raises StaysError or OSError if it must stay in the trash."""
    name = str(decoded(item.name))
    try:
        with (
            inside(decoded(item.trash), FILES) as files,
            parent(item.find.path) as (folder, old),
        ):
            if stat.S_ISDIR(os.stat(name, dir_fd=files, follow_symlinks=False).st_mode):
                os.rename(
                    name, old, src_dir_fd=files, dst_dir_fd=folder
                )  # This fails unless there is nothing, or an empty folder, at the old place.
            else:
                _link_back(files, name, folder, old)
    except FileNotFoundError as e:
        raise StaysError(
            phrase("its folder no longer exists; create the folder and undo again")
        ) from e
    except _FULL as e:
        raise StaysError(TAKEN) from e
    except OSError as e:
        if e.errno == errno.ENOTEMPTY:
            raise StaysError(TAKEN) from e
        raise
    drop_note(item)


def _link_back(files: int, name: str, folder: int, old: str) -> None:
    """Move a file back without overwriting anything, which rename(2) would do.

    Where the file system cannot rename so, it gets a second link and loses the first one; a process
    killed in between can go on from there. Where it has no links either, an empty file of ours
    takes the old name first.
    """
    try:
        try:
            rename_to_free_name(name, files, old, folder)
        except OSError as e:
            if e.errno not in UNABLE:
                raise
            _link_or_claim(files, name, folder, old)
    except FileExistsError:
        if not os.path.samestat(_stat(files, name), _stat(folder, old)):
            raise
        os.unlink(name, dir_fd=files)


def _link_or_claim(files: int, name: str, folder: int, old: str) -> None:
    try:
        os.link(name, old, src_dir_fd=files, dst_dir_fd=folder, follow_symlinks=False)
    except OSError as e:
        if e.errno not in _NO_LINKS:
            raise
        _claim(files, name, folder, old)
    else:
        os.unlink(name, dir_fd=files)


def _claim(files: int, name: str, folder: int, old: str) -> None:
    """Rename a file over an empty one of ours, which nobody else can have made."""
    os.close(os.open(old, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600, dir_fd=folder))
    try:
        os.rename(name, old, src_dir_fd=files, dst_dir_fd=folder)
    except OSError:
        os.unlink(old, dir_fd=folder)
        raise


def _stat(folder: int, name: str) -> os.stat_result:
    return os.stat(name, dir_fd=folder, follow_symlinks=False)


def drop_note(item: TrashItem) -> None:
    """Delete the trash's note on an item that is no longer in the trash."""
    try:
        with inside(decoded(item.trash), INFO) as info:
            os.unlink(f"{decoded(item.name)}{ENDING}", dir_fd=info)
    except FileNotFoundError:
        pass
