"""Migrate an older store to this schema: in one transaction, after a synced copy was made."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.durable import sync
from gpudeck.scheduler.store.checksums import checksum
from gpudeck.scheduler.store.environments import digest

SCHEMA_VERSION = 12


def sql(name: str) -> str:
    """Return a file of SQL that comes with the store."""
    return resources.files("gpudeck.scheduler.store").joinpath(name).read_text()


def named_queries(name: str) -> dict[str, str]:
    """Return the queries of a file of SQL by their names."""
    parts = sql(name).split("-- name: ")[1:]
    return {name.strip(): body.strip() for name, _, body in (p.partition("\n") for p in parts)}


def backup_of(file: Path, version: int) -> Path:
    """Return where the copy of a store of that schema is kept."""
    return file.with_name(f"{file.name}.schema-{version}")


def create(db: sqlite3.Connection) -> None:
    """Create the tables of a new store. Raises sqlite3.Error; nothing is half created then."""
    db.executescript(
        f"BEGIN IMMEDIATE; {sql('schema.sql')} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
    )


def migrate(db: sqlite3.Connection, file: Path, version: int) -> None:
    """Migrate the store from schema `version` to the current one.

    Raises:
        OSError, sqlite3.Error: The store is unchanged then.
    """
    copy_store(db, backup_of(file, version))
    db.create_function("digest", 1, digest, deterministic=True)
    db.create_function("checksum", 3, checksum, deterministic=True)
    db.create_function("renamed", 1, renamed, deterministic=True)
    steps = "".join(sql(f"from_{step}.sql") for step in range(version, SCHEMA_VERSION))
    try:
        db.executescript(
            f"BEGIN IMMEDIATE; {steps} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
        )
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def copy_store(db: sqlite3.Connection, to: Path) -> None:
    """Copy the store to one private file, which gets its name once it is safe on disk."""
    new = to.with_name(to.name + ".new")
    new.unlink(missing_ok=True)
    new.touch(mode=paths.PRIVATE_FILE)
    try:
        with closing(sqlite3.connect(new)) as copy:
            db.backup(copy)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    for path, rename in ((new, True), (to.parent, False)):
        sync(path)
        if rename:
            new.replace(to)


_WORKLOADS = ("accel.workloads.", "assistant.workloads.")
_LINKED_SCRIPT = "accel.inject.script"


def renamed(spec: bytes) -> bytes:
    """Return the JSON of a Spec whose command names our modules as they are called now.

    A job of a user whose own package is called `app` or `accel` is left as it is: only what we
    wrote ourselves is rewritten, which is `python -P -m app serve ...`, our workloads, and the
    module that runs a script with its attention linked. JSON that cannot be read is returned as
    it is.
    """
    try:
        found: dict[str, Any] = msgspec.json.decode(spec, type=dict[str, Any])
        argv = [str(word) for word in found["argv"]]
    except (msgspec.DecodeError, KeyError, TypeError):
        return spec
    new = [_new_name(argv, place) for place in range(len(argv))]
    return spec if new == argv else msgspec.json.encode(found | {"argv": new})


def _new_name(argv: list[str], place: int) -> str:
    word, before = argv[place], argv[max(0, place - 2) : place]
    if before[-1:] == ["-m"]:
        if word == "app" and before == ["-P", "-m"] and argv[place + 1 : place + 2] == ["serve"]:
            return "gpudeck"
        if word.startswith(_WORKLOADS) or word == _LINKED_SCRIPT:
            return f"gpudeck.{word}"
    return word
