"""What the files of the store have in common: opened for their user alone, closed, changed in transactions, in words where that fails."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from scheduler import paths
from scheduler.errors import UserError
from scheduler.store.migrate import named_queries
from scheduler.store.words import in_words


class Database:
    """One connection. Raises UserError where the file cannot be used or the disk is full; nothing is half written then."""

    def __init__(self, file: Path, what: str, queries: str, *, busy: float, one_thread: bool) -> None:
        """`what` the file is, in words; `queries`: the file of its SQL; `busy`: seconds for which another program that holds it is
        waited for."""
        self._file = file
        self._q = named_queries(queries)
        paths.ensure(file.parent)
        try:
            file.touch(mode=paths.PRIVATE_FILE)
            file.chmod(paths.PRIVATE_FILE)  # also one that was copied here; SQLite gives the WAL the same mode
        except OSError as e:
            raise UserError(f"the {what} {file} cannot be used: {e.strerror}. See: gpudeck doctor") from e
        with self._words():
            self._db = sqlite3.connect(file, isolation_level=None, timeout=busy, check_same_thread=one_thread)
            try:
                self._prepare()
            except BaseException:
                self._db.close()
                raise

    def _prepare(self) -> None:
        """Whatever has to be done before the first use."""
        raise NotImplementedError

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
