"""What the files of the store have in common: opened for their user alone, closed, changed in transactions, in words where that fails."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

from scheduler.protocol import paths
from scheduler.protocol.errors import UserError
from scheduler.store.migrate import named_queries, sql
from scheduler.store.words import Damaged, in_words


class Database:
    """One connection. Raises UserError where the file cannot be used or the disk is full; nothing is half written then."""

    def __init__(
        self, file: Path, what: str, queries: str, *, busy: float, one_thread: bool
    ) -> None:
        """`what` the file is, in words; `queries`: the file of its SQL; `busy`: seconds for which another program that holds it is
        waited for."""
        self._file = file
        self._q = named_queries(queries)
        paths.ensure(file.parent)
        try:
            file.touch(mode=paths.PRIVATE_FILE)
            file.chmod(
                paths.PRIVATE_FILE
            )  # also one that was copied here; SQLite gives the WAL the same mode
        except OSError as e:
            raise UserError(
                f"the {what} {file} cannot be used: {e.strerror}. See: gpudeck doctor"
            ) from e
        with self._words():
            self._db = sqlite3.connect(
                file, isolation_level=None, timeout=busy, check_same_thread=one_thread
            )
            try:
                self._prepare()
            except BaseException:
                self._db.close()
                raise

    def _prepare(self) -> None:
        """Whatever has to be done before the first use."""
        raise NotImplementedError

    def _expect(self, schema: str) -> None:
        """Raises Damaged where a table or a column of that file of SQL is not there."""
        if lacks := missing(self._db, schema):
            raise Damaged(f"the store {self._file} is damaged ({lacks}). See: gpudeck doctor")

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._words():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # SQLite rolls back by itself when the disk is full
                    self._db.execute("ROLLBACK")
                raise

    def _words(self) -> AbstractContextManager[None]:
        return in_words(self._file)


def missing(db: sqlite3.Connection, schema: str) -> str:
    """Which of the tables and columns of that file of SQL is not there, empty where all are: their names are bytes like any other."""
    with closing(sqlite3.connect(":memory:")) as new:
        new.executescript(sql(schema))
        lacks = _columns(new) - _columns(db)
    return " has no ".join(min(lacks)) if lacks else ""


def _columns(db: sqlite3.Connection) -> set[tuple[str, str]]:
    """All columns, each with its table."""
    return set(
        db.execute(
            "SELECT t.name, c.name FROM sqlite_schema AS t, pragma_table_info(t.name) AS c WHERE t.type = 'table'"
        )
    )
