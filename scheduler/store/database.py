"""Open, change and close the SQLite files of the store, and translate their errors.

What the environment did to a file becomes one line for the user; our own mistakes in SQL stay loud.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.errors import Unsettled, UserError
from gpudeck.scheduler.store.migrate import named_queries, sql

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
    """Signal that the content of a file is not what GPU Deck wrote."""


class Database:
    """Own one connection to a file that only its user may read.

    Every method raises UserError where the file cannot be used or the disk is full; nothing is half
    written then.
    """

    def __init__(self, file: Path, queries: str, *, busy: float, one_thread: bool) -> None:
        """Open the file, or create it.

        Args:
            file: The file.
            queries: The name of the file with its SQL.
            busy: Seconds to wait while another program locks the file.
            one_thread: Refuse use by another thread than this one.
        """
        self._file = file
        self.refused_at: float | None = None
        """When the full disk refused the last change, in monotonic seconds; None if it did not."""
        self._q = named_queries(queries)
        paths.ensure(file.parent)
        try:
            file.touch(mode=paths.PRIVATE_FILE)
            # also a file that was copied here; SQLite gives the WAL the same mode
            file.chmod(paths.PRIVATE_FILE)
        except OSError as e:
            raise UserError(
                phrase(
                    "the store {file} cannot be used: {error}. See: gpudeck doctor",
                    file=str(file),
                    error=str(e.strerror),
                )
            ) from e
        with self._translated():
            self.connection = sqlite3.connect(
                file, isolation_level=None, timeout=busy, check_same_thread=one_thread
            )
            try:
                self._prepare()
            except BaseException:
                self.connection.close()
                raise

    def _prepare(self) -> None:
        """Do what is needed before the first use."""
        raise NotImplementedError

    def _expect(self, schema: str) -> None:
        """Raise Damaged where a table or column of that file of SQL is missing."""
        if missing := missing_column(self.connection, schema):
            raise Damaged(
                phrase(
                    "the store {file} is damaged ({error}). See: gpudeck doctor",
                    file=str(self._file),
                    error=missing,
                )
            )

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._translated():
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._commit()
                self.refused_at = None
            except BaseException as e:
                if getattr(e, "sqlite_errorcode", None) in _FULL:
                    self.refused_at = time.monotonic()
                if (
                    self.connection.in_transaction
                ):  # SQLite rolls back by itself when the disk is full
                    self.connection.execute("ROLLBACK")
                raise

    def _commit(self) -> None:
        """Commit. Raises Unsettled where the disk fails after it may have taken the change.

        Then the end of the write-ahead log holds it, which the next change replaces; but if the
        next thing is another opening of the file, that finds it.
        """
        try:
            self.connection.execute("COMMIT")
        except sqlite3.OperationalError as e:
            code = getattr(e, "sqlite_errorcode", None)
            if code in _FULL or code is None or code & 0xFF != sqlite3.SQLITE_IOERR:
                raise
            raise Unsettled(
                phrase(
                    "the store {file} cannot be used: {error}. See: gpudeck doctor",
                    file=str(self._file),
                    error=str(e),
                )
            ) from e

    def _translated(self) -> AbstractContextManager[None]:
        return translated_errors(self._file)


@contextmanager
def translated_errors(file: Path) -> Iterator[None]:
    """Raise Damaged, or UserError where the file cannot be used or the disk is full."""
    try:
        yield
    except UnicodeDecodeError as e:  # SQLite quotes what it found in place of a name
        raise Damaged(
            phrase(
                "the store {file} is damaged ({error}). See: gpudeck doctor",
                file=str(file),
                error=e.reason,
            )
        ) from e
    except sqlite3.DatabaseError as e:
        code = getattr(e, "sqlite_errorcode", None)
        primary = None if code is None else code & 0xFF
        if code in _FULL:
            raise UserError(
                phrase(
                    "the disk is full: nothing was changed in {file}. Free some "
                    "space and try again.",
                    file=str(file),
                )
            ) from e
        not_utf8 = code is None and isinstance(e, sqlite3.OperationalError)
        if primary in _DAMAGED or not_utf8:
            raise Damaged(
                phrase(
                    "the store {file} is damaged ({error}). See: gpudeck doctor",
                    file=str(file),
                    error=str(e),
                )
            ) from e
        if primary in _UNUSABLE:
            raise UserError(
                phrase(
                    "the store {file} cannot be used: {error}. See: gpudeck doctor",
                    file=str(file),
                    error=str(e),
                )
            ) from e
        raise


def missing_column(db: sqlite3.Connection, schema: str) -> str:
    """Return a table and column of that file of SQL that the database lacks, or an empty text."""
    with closing(sqlite3.connect(":memory:")) as new:
        new.executescript(sql(schema))
        missing = _columns(new) - _columns(db)
    return " has no ".join(min(missing)) if missing else ""


def _columns(db: sqlite3.Connection) -> set[tuple[str, str]]:
    """Return all columns, each with its table."""
    return set(
        db.execute(
            "SELECT t.name, c.name FROM sqlite_schema AS t, pragma_table_info(t.name) AS c "
            "WHERE t.type = 'table'"
        )
    )
