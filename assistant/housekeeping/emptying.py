"""Empty the trash: the only code here that deletes, and it deletes only what its own journal names.

Everything else in the desktop's trash belongs to the user.
"""

from __future__ import annotations

import os
import stat
import time

import msgspec

from gpudeck.assistant.housekeeping.findings import StaysError, decoded, explain_error
from gpudeck.assistant.housekeeping.journal import (
    Skipped,
    TrashItem,
    all_receipts,
    forget,
    locked,
    recorded_items,
)
from gpudeck.assistant.housekeeping.restoring import drop_note
from gpudeck.assistant.housekeeping.trash import FILES, Mounts, inside
from gpudeck.assistant.housekeeping.walk import DEEPEST, folder_in
from gpudeck.language.text import phrase

_DOOMED = ".deleting"
"""A suffix for what is being deleted: a half-deleted folder must not be put back."""


class EmptyResult(msgspec.Struct, frozen=True):
    """Report what emptying the trash did."""

    items: int = 0
    bytes: int = 0
    """Bytes that are free now, as counted when they went to the trash."""
    left: tuple[Skipped, ...] = ()


def empty(older_than: float = 0.0, now: float | None = None) -> EmptyResult:
    """Delete for good what went to the trash more than `older_than` seconds ago.

    Raises:
        UserError: Another clean-up is running.
    """
    until = (time.time() if now is None else now) - older_than
    count, freed, left, mounts = 0, 0, list[Skipped](), Mounts()
    with locked():
        for receipt in all_receipts():
            items = recorded_items(receipt)
            if any(item.time > until for item in items):
                continue
            failed = len(left)
            for item in items:
                try:
                    deleted = _delete(item, mounts)
                except (StaysError, OSError) as e:
                    left.append(Skipped(item.find, explain_error(e)))
                else:
                    count, freed = count + deleted, freed + item.find.bytes * deleted
            if len(left) == failed:
                forget(receipt)
    return EmptyResult(count, freed, tuple(left))


def _delete(item: TrashItem, mounts: Mounts) -> bool:
    """Delete an item, and return False if it was no longer in the trash."""
    trash, name = decoded(item.trash), str(decoded(item.name))
    try:
        with inside(trash, FILES) as files:
            try:
                os.rename(name, name + _DOOMED, src_dir_fd=files, dst_dir_fd=files)
            except FileNotFoundError:
                # Somebody restored or deleted it, or an emptying that was killed had renamed it.
                pass
            drop_note(item)
            if mounts.covers(trash / FILES / (name + _DOOMED)):
                raise StaysError(phrase("something is mounted there"))
            return _remove(files, name + _DOOMED, os.fstat(files).st_dev, DEEPEST)
    except FileNotFoundError:
        return False  # The trash folder itself is gone.


def _remove(folder: int, name: str, device: int, depth: int) -> bool:
    try:
        info = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    if info.st_dev != device:
        raise StaysError(phrase("something is mounted in it"))
    if not stat.S_ISDIR(info.st_mode):
        os.unlink(name, dir_fd=folder)
        return True
    if not depth:
        raise StaysError(phrase("it holds more than {n} nested folders", n=DEEPEST))
    with folder_in(folder, name) as fd:
        with os.scandir(fd) as entries:
            names = [entry.name for entry in entries]
        for inner in names:
            _remove(fd, inner, device, depth - 1)
    os.rmdir(name, dir_fd=folder)
    return True
