"""From the trash to where it was, over nothing that has come there since."""

from __future__ import annotations

import errno
import os
import stat

import msgspec

from assistant.housekeeping.findings import Finding, StaysError, decoded
from assistant.housekeeping.journal import Item, Receipt, Skipped, forget, load, locked, written
from assistant.housekeeping.trash import ENDING, FILES, INFO, inside
from assistant.housekeeping.walk import parent

TAKEN = "something else is at its place now; move that away, and undo again"
_FULL = (FileExistsError, NotADirectoryError, IsADirectoryError)


class UndoResult(msgspec.Struct, frozen=True):
    """What an undo did."""

    id: str
    """Of the move that was undone."""
    restored: tuple[Finding, ...] = ()
    left: tuple[Skipped, ...] = ()
    """What is still in the trash, and why."""


def undo(receipt: Receipt | str) -> UndoResult:
    """Put back all that this move took and that is still in the trash; may be done again where something was in the way.

    Raises NotFound where nothing is known of it, UserError where another clean-up is under way.
    """
    name = receipt if isinstance(receipt, str) else receipt.id
    restored, left = [], []
    with locked():
        for item in reversed(load(name).items):
            try:
                put_back(item)
            except (StaysError, OSError) as e:
                left.append(
                    Skipped(item.find, (e.strerror if isinstance(e, OSError) else None) or str(e))
                )
            else:
                restored.append(item.find)
        if not left:
            for item in written(name):
                drop_note(item)
            forget(name)
    return UndoResult(name, tuple(restored), tuple(left))


def put_back(item: Item) -> None:
    """Raises StaysError or OSError where that is impossible: it stays in the trash then."""
    name = str(decoded(item.name))
    try:
        with (
            inside(decoded(item.trash), FILES) as files,
            parent(item.find.path) as (folder, old),
        ):
            if stat.S_ISDIR(os.stat(name, dir_fd=files, follow_symlinks=False).st_mode):
                os.rename(
                    name, old, src_dir_fd=files, dst_dir_fd=folder
                )  # fails on all but nothing and an empty folder
            else:
                _link_back(files, name, folder, old)
    except FileNotFoundError as e:
        raise StaysError("the folder it was in is gone; make it, and undo again") from e
    except _FULL as e:
        raise StaysError(TAKEN) from e
    except OSError as e:
        if e.errno == errno.ENOTEMPTY:
            raise StaysError(TAKEN) from e
        raise
    drop_note(item)


def _link_back(files: int, name: str, folder: int, old: str) -> None:
    """rename(2) would replace what is there, so: a second name, then one less. Killed in between, it goes on from there."""
    try:
        os.link(name, old, src_dir_fd=files, dst_dir_fd=folder, follow_symlinks=False)
    except FileExistsError:
        if not os.path.samestat(_stat(files, name), _stat(folder, old)):
            raise
    os.unlink(name, dir_fd=files)


def _stat(folder: int, name: str) -> os.stat_result:
    return os.stat(name, dir_fd=folder, follow_symlinks=False)


def drop_note(item: Item) -> None:
    """Of something that is not in the trash (any more)."""
    try:
        with inside(decoded(item.trash), INFO) as info:
            os.unlink(f"{decoded(item.name)}{ENDING}", dir_fd=info)
    except FileNotFoundError:
        pass
