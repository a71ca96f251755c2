"""Copy the store while the daemon uses it, and put a copy back while none does."""

from __future__ import annotations

import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path

from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.durable import sync
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.store.database import Damaged, translated_errors
from gpudeck.scheduler.store.migrate import SCHEMA_VERSION, copy_store, named_queries

_BESIDE = ("-wal", "-shm")
"""Files of SQLite that belong to one state of the store."""


def back_up(file: Path, to: Path) -> int:
    """Copy the store as it is now, as one private file that is safe on disk.

    The daemon may change the store meanwhile: the copy is from one moment.

    Returns:
        The number of jobs in it.

    Raises:
        UserError: There is no store, it is damaged, or the copy cannot be written.
    """
    if not file.exists():
        raise UserError(
            phrase("there is no store {file}: nothing was queued here yet", file=str(file))
        )
    try:
        with translated_errors(file):
            with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as db:
                copy_store(db, to)
            return _check(to)
    except OSError as e:
        raise UserError(
            phrase("the copy {to} cannot be written: {error}", to=str(to), error=str(e.strerror))
        ) from e


def put_back(copy: Path, file: Path) -> Path | None:
    """Replace the store by a copy of an earlier one, whose queue is paused then.

    The mark beside the store stays: it says which jobs came later, so that their numbers are not
    given again. No daemon may run.

    Returns:
        Where the present store is kept; None where there was none.

    Raises:
        UserError: The copy is no store of this version or an older one, or is damaged, or the
            store cannot be replaced. Nothing was changed then.
    """
    new = file.with_name(f"{file.name}.restored")
    try:
        with translated_errors(copy):
            with closing(sqlite3.connect(copy)) as db:
                _check_version(db, copy)
                copy_store(db, new)
            _check(new)
            with closing(sqlite3.connect(new, isolation_level=None)) as db:
                db.execute(named_queries("queries.sql")["set_paused"], (True,))
                db.execute("PRAGMA journal_mode = DELETE")
        sync(new)
        return _replace(file, new)
    except OSError as e:
        raise UserError(
            phrase(
                "the store {file} cannot be replaced: {error}",
                file=str(file),
                error=str(e.strerror),
            )
        ) from e


def _replace(file: Path, new: Path) -> Path | None:
    """Put a new store in place of the present one, which is kept whole. Raises OSError."""
    kept = None
    if file.exists():
        kept = file.with_name(f"{file.name}.before-restore-{int(time.time())}")
        try:
            # read-only, as closing would move the log of a damaged store into it
            address = f"{file.absolute().as_uri()}?mode=ro"
            with translated_errors(file), closing(sqlite3.connect(address, uri=True)) as db:
                copy_store(db, kept)
        except Damaged:  # which is when a backup is needed most
            _copy_as_it_is(file, kept)
    for suffix in _BESIDE:  # they belong to the store that is replaced
        file.with_name(f"{file.name}{suffix}").unlink(missing_ok=True)
    new.replace(file)
    sync(file.parent)
    return kept


def _copy_as_it_is(file: Path, to: Path) -> None:
    """Copy a damaged store and its log byte by byte, for those who repair it. Raises OSError."""
    for suffix in ("", "-wal"):
        part = file.with_name(f"{file.name}{suffix}")
        if part.exists():
            sync(Path(shutil.copy2(part, to.with_name(f"{to.name}{suffix}"))))


def _check_version(db: sqlite3.Connection, file: Path) -> None:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    known = db.execute("SELECT 1 FROM sqlite_schema WHERE name IN ('jobs', 'queue')").fetchall()
    if len(known) < 2 or not 0 < version <= SCHEMA_VERSION:
        raise UserError(
            phrase("{file} is no store that this version of GPU Deck can read", file=str(file))
        )


def _check(file: Path) -> int:
    """Return the number of jobs in a store. Raises UserError where it is damaged."""
    file.chmod(paths.PRIVATE_FILE)
    with closing(sqlite3.connect(file)) as db:
        (found,) = db.execute("PRAGMA integrity_check(1)").fetchone()
        if found != "ok":
            raise UserError(
                phrase("the store {file} is damaged. See: gpudeck doctor", file=str(file))
            )
        (count,) = db.execute("SELECT count(*) FROM jobs").fetchone()
    return int(count)
