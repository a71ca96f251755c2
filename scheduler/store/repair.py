"""What is amiss with a store, and a new one from what is whole of a damaged one. Only while no daemon has it."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Collection, Iterable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import msgspec

from scheduler.errors import MALFORMED, UserError
from scheduler.jobs import Event, Group, Job, Spec, State, Usage, status_of
from scheduler.store import carve
from scheduler.store.store import Store
from scheduler.store.words import in_words

_OLDEST, _NEWEST = 6, 9
"""Columns of a job in the first schema, and in ours: later ones were added at the end."""


class Rescue(NamedTuple):
    """What a repair found."""

    jobs: int
    lost: list[int]
    """Numbers of jobs of which nothing is left."""
    kept: Path
    """The damaged file."""


def examine(file: Path, known: Collection[int]) -> str:
    """What is amiss with the store, empty where nothing is. `known`: numbers of jobs of which there is a folder.

    A copy is looked at: the file itself is left alone. Raises UserError where it cannot be read.
    """
    with tempfile.TemporaryDirectory(dir=file.parent, prefix="examined-") as folder:
        copy = Path(folder) / file.name
        for source in _parts(file):
            shutil.copyfile(source, source.parent / folder / source.name)
        try:
            with in_words(file), closing(sqlite3.connect(copy)) as db:
                (found,) = db.execute("PRAGMA integrity_check(1)").fetchone()
                if found != "ok":
                    return str(found).splitlines()[-1]
                if not db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'jobs'").fetchone():
                    return f"{file} holds nothing"
                (newest,) = db.execute("SELECT coalesce(max(id), 0) FROM jobs").fetchone()
                whole = {row.id for row in carve.rows(*_bytes(file)) if _job(row) is not None}
                garbled = [job for (job,) in db.execute("SELECT id FROM jobs") if job not in whole]
        except UserError as e:
            return str(e)
    if garbled:
        return f"{numbers(garbled)} cannot be read"
    missing = [number for number in known if number > newest]
    return f"{numbers(missing)} ran, and the store does not know: its newest changes are gone" if missing else ""


def rebuild(file: Path, known: Iterable[int]) -> Rescue:
    """Put a new store in the place of the damaged one, which is kept. `known`: numbers that were given to jobs. Raises UserError."""
    rows = list(carve.rows(*_bytes(file)))
    jobs = {found[0].id: found for row in rows if (found := _job(row)) is not None}
    events = [found for row in sorted(rows, key=lambda row: row.id) for found in _events(row)]
    highest = max((*jobs, *known, *(job for job, _ in events)), default=0)
    new = file.with_name(f"{file.name}.new")
    for left in _parts(new):
        left.unlink()
    store = Store(new)
    try:
        store.restore(
            [jobs[number] for number in sorted(jobs)],
            [(job, event) for job, event in events if job in jobs],
            [group for row in rows for group in _groups(row)],
            paused=any(row.values == (1,) for row in rows),
            highest=highest,
        )
    finally:
        store.close()
    kept = _put_aside(file)
    new.replace(file)
    _sync(file.parent)
    return Rescue(len(jobs), [number for number in range(1, highest + 1) if number not in jobs], kept)


def numbers(jobs: Iterable[int]) -> str:
    """As jobs 3, 5 to 9 and 12."""
    spans: list[list[int]] = []
    for job in sorted(jobs):
        if spans and spans[-1][1] == job - 1:
            spans[-1][1] = job
        else:
            spans.append([job, job])
    said = [f"{first}" if first == last else f"{first} to {last}" for first, last in spans]
    return f"job{'s' if len(spans) > 1 or spans[0][0] != spans[0][1] else ''} {', '.join(said)}"


def _parts(file: Path) -> list[Path]:
    """The file, and its write-ahead log where it has one; what else SQLite puts beside it can be made anew."""
    return [part for part in (file, file.with_name(f"{file.name}-wal")) if part.exists()]


def _bytes(file: Path) -> tuple[bytes, bytes]:
    log = file.with_name(f"{file.name}-wal")
    try:
        return file.read_bytes(), log.read_bytes() if log.exists() else b""
    except OSError as e:
        raise UserError(f"the store {file} cannot be read: {e.strerror}") from e


def _put_aside(file: Path) -> Path:
    kept = file.with_name(f"{file.name}.damaged-{time.strftime('%Y%m%d-%H%M%S')}")
    for part in _parts(file):
        os.link(part, kept.with_name(part.name.replace(file.name, kept.name)))
    _sync(file.parent)
    for name in (f"{file.name}-wal", f"{file.name}-shm"):  # of the damaged file: SQLite would apply them to the new one
        file.with_name(name).unlink(missing_ok=True)
    return kept


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _job(row: carve.Row) -> tuple[Job, dict[str, str]] | None:
    """The job and its environment that a row is, None where it is none."""
    if not _OLDEST <= len(row.values) <= _NEWEST:
        return None
    values = [*row.values, *(None, 0, "null")[len(row.values) - _OLDEST :]]
    _, submitted, status, spec, env, state, place, tries, usage = values
    try:
        job = Job(
            row.id,
            msgspec.json.decode(_text(spec), type=Spec),
            msgspec.convert(submitted, float),
            msgspec.json.decode(_text(state), type=State),
            msgspec.convert(place, float | None),
            msgspec.convert(tries, int),
            msgspec.json.decode(_text(usage), type=Usage | None),
        )
        return (job, msgspec.json.decode(_text(env), type=dict[str, str])) if status == status_of(job.state) else None
    except (*MALFORMED, TypeError):
        return None


def _text(value: carve.Value) -> str:
    if not isinstance(value, str):
        raise TypeError("no text")
    return value


def _events(row: carve.Row) -> list[tuple[int, Event]]:
    """The job and what happened to it, where the row tells that."""
    match row.values:
        case (None, int() as job, float() | int() as at, str() as what, str() as text):
            return [(job, Event(float(at), what, text))]
        case _:
            return []


def _groups(row: carve.Row) -> list[Group]:
    """The group that the row is, where it is one."""
    match row.values:
        case (str() as name, int() as limit, int() as paused):
            return [Group(name, limit, bool(paused))]
        case _:
            return []
