"""What the environment did to a database, in one line for the user; our own mistakes in SQL stay loud."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scheduler.protocol.errors import UserError

_DAMAGED = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)
_FULL = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE)
"""The latter: no room for the 32 KiB of shared memory beside a file that is opened."""
_UNUSABLE = (
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_PERM,
)


class Damaged(UserError):
    """The file holds what no program of ours wrote."""


@contextmanager
def in_words(file: Path) -> Iterator[None]:
    """Raises Damaged, or UserError where the file cannot be used or the disk is full."""
    try:
        yield
    except UnicodeDecodeError as e:  # SQLite quotes what it found in place of a name
        raise Damaged(f"the store {file} is damaged ({e.reason}). See: gpudeck doctor") from e
    except sqlite3.DatabaseError as e:
        code = getattr(e, "sqlite_errorcode", None)
        primary = None if code is None else code & 0xFF
        if code in _FULL:
            raise UserError(
                f"the disk is full: nothing was changed in {file}. Free some space and try again."
            ) from e
        if primary in _DAMAGED or (
            code is None and isinstance(e, sqlite3.OperationalError)
        ):  # the latter: a text that is no UTF-8
            raise Damaged(f"the store {file} is damaged ({e}). See: gpudeck doctor") from e
        if primary in _UNUSABLE:
            raise UserError(f"the store {file} cannot be used: {e}. See: gpudeck doctor") from e
        raise
