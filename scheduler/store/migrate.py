"""An older store becomes one of this schema: all steps in one transaction, after a copy of it was put aside, whole and synced."""

from __future__ import annotations

import sqlite3
from importlib import resources
from pathlib import Path

from scheduler.protocol import paths
from scheduler.store.environments import digest

SCHEMA_VERSION = 6


def sql(name: str) -> str:
    """A file of SQL that comes with the store."""
    return resources.files("scheduler.store").joinpath(name).read_text()


def named_queries(name: str) -> dict[str, str]:
    """The queries of a file of SQL, by their names."""
    parts = sql(name).split("-- name: ")[1:]
    return {name.strip(): body.strip() for name, _, body in (p.partition("\n") for p in parts)}


def backup_of(file: Path, version: int) -> Path:
    """Where the copy of a store of that schema is kept."""
    return file.with_name(f"{file.name}.schema-{version}")


def create(db: sqlite3.Connection) -> None:
    """The tables of a new store. Raises sqlite3.Error; nothing is half made then."""
    db.executescript(
        f"BEGIN IMMEDIATE; {sql('schema.sql')} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
    )


def migrate(db: sqlite3.Connection, file: Path, version: int) -> None:
    """Take the store from schema `version` to ours. Raises OSError or sqlite3.Error; it is as before then."""
    _copy(db, backup_of(file, version))
    db.create_function("digest", 1, digest, deterministic=True)
    steps = "".join(sql(f"from_{step}.sql") for step in range(version, SCHEMA_VERSION))
    try:
        db.executescript(
            f"BEGIN IMMEDIATE; {steps} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
        )
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _copy(db: sqlite3.Connection, to: Path) -> None:
    """The whole store as one file, readable by its owner only; it appears under its name once it is safe on disk."""
    new = to.with_name(to.name + ".new")
    new.unlink(missing_ok=True)
    new.touch(mode=paths.PRIVATE_FILE)
    copy = sqlite3.connect(new)
    try:
        db.backup(copy)
    finally:
        copy.close()
    for path, rename in ((new, True), (to.parent, False)):
        paths.sync(path)
        if rename:
            new.replace(to)
