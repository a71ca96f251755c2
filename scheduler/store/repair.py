"""What is amiss with a store, and a new one from what is whole of a damaged one. Only while no daemon has it."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import msgspec

from scheduler.protocol import paths
from scheduler.protocol.errors import MALFORMED, UserError
from scheduler.protocol.jobs import Event, Group, Job, Queued, Spec, State, Usage, status_of
from scheduler.store import carve, environments
from scheduler.store.database import missing
from scheduler.store.migrate import SCHEMA_VERSION
from scheduler.store.store import Store
from scheduler.store.words import in_words

_OLDEST, _NEWEST = 6, 9
"""Columns of a job in the first schema, and in ours: later ones were added at the end."""


class Rescue(NamedTuple):
    """What a repair found."""

    jobs: int
    lost: list[int]
    """Numbers of jobs of which nothing is left."""
    held: list[int]
    """Numbers of jobs whose environment is lost: they wait until they are cancelled."""
    kept: Path
    """The damaged file."""


def examine(file: Path, known: Collection[int]) -> str:
    """What is amiss with the store, empty where nothing is. `known`: numbers of jobs of which there is a folder.

    A copy is looked at: the file itself is left alone. Raises UserError where it cannot be read, or there is no room for the copy.
    """
    try:
        return _examined(file, known)
    except OSError as e:
        raise UserError(f"the store {file} cannot be copied to be looked at: {e.strerror}") from e


def _examined(file: Path, known: Collection[int]) -> str:
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
                (version,) = db.execute("PRAGMA user_version").fetchone()
                if version == SCHEMA_VERSION and (lacks := missing(db, "schema.sql")):
                    return lacks
                (newest,) = db.execute("SELECT coalesce(max(id), 0) FROM jobs").fetchone()
                whole, bereft = _look(carve.rows(*_bytes(file)))
                garbled = [job for (job,) in db.execute("SELECT id FROM jobs") if job not in whole]
        except UserError as e:
            return str(e)
    if garbled:
        return f"{numbers(garbled)} cannot be read"
    if bereft:
        return f"the environment of {numbers(bereft)} is lost or damaged"
    unknown = [number for number in known if number > newest]
    return (
        f"{numbers(unknown)} ran, and the store does not know: its newest changes are gone"
        if unknown
        else ""
    )


def rebuild(file: Path, known: Iterable[int]) -> Rescue:
    """Put a new store in the place of the damaged one, which is kept. `known`: numbers that were given to jobs. Raises UserError."""
    try:
        return _rebuilt(file, known)
    except OSError as e:
        raise UserError(f"no other store can be put in the place of {file}: {e.strerror}") from e


def _rebuilt(file: Path, known: Iterable[int]) -> Rescue:
    rows = list(carve.rows(*_bytes(file)))
    stored = {name: env for row in rows for name, env in _environment(row).items()}
    jobs = {
        row.id: (found[0], _env(found[1], stored))
        for row in rows
        if (found := _job(row)) is not None
    }
    events = [found for row in sorted(rows, key=lambda row: row.id) for found in _events(row)]
    held = {
        number: environments.held(job, time.time())
        for number, (job, env) in jobs.items()
        if env is None and _waits(job)
    }
    highest = max((*jobs, *known, *(job for job, _ in events)), default=0)
    new = file.with_name(f"{file.name}.new")
    for left in _parts(new):
        left.unlink()
    store = Store(new)
    try:
        store.restore(
            [
                (held[number][0] if number in held else job, env)
                for number, (job, env) in sorted(jobs.items())
            ],
            [(job, event) for job, event in events if job in jobs]
            + [(number, event) for number, (_, event) in held.items()],
            [group for row in rows for group in _groups(row)],
            paused=any(row.values == (1,) for row in rows),
            highest=highest,
        )
    finally:
        store.close()
    kept = _put_aside(file)
    new.replace(file)
    paths.sync(file.parent)
    return Rescue(
        len(jobs),
        [number for number in range(1, highest + 1) if number not in jobs],
        sorted(held),
        kept,
    )


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
    paths.sync(file.parent)
    for name in (
        f"{file.name}-wal",
        f"{file.name}-shm",
    ):  # of the damaged file: SQLite would apply them to the new one
        file.with_name(name).unlink(missing_ok=True)
    return kept


def _look(rows: Iterable[carve.Row]) -> tuple[set[int], list[int]]:
    """Jobs that are whole, and those among them that wait for a start without their environment. Holds no row: there may be many."""
    whole, stored, waiting = set[int](), set[str](), dict[int, str]()
    for row in rows:
        stored |= _environment(row).keys()
        if (found := _job(row)) is not None:
            whole.add(row.id)
            if _waits(found[0]):
                waiting[row.id] = found[1]
    return whole, [
        job for job, env in waiting.items() if env not in stored and _env(env, {}) is None
    ]


def _waits(job: Job) -> bool:
    """Whether the job is to be started with its environment: one that is held for want of it is not."""
    return isinstance(job.state, Queued) and not environments.is_held(job)


def _env(text: str, stored: Mapping[str, dict[str, str]]) -> dict[str, str] | None:
    """The environment that a job's row names: by its digest or, before schema 6, as it is. None where it is lost."""
    return stored[text] if text in stored else environments.decoded(text.encode())


def _environment(row: carve.Row) -> dict[str, dict[str, str]]:
    """The environment that the row is, by its digest; empty where it is none."""
    match row.values:
        case (str() as name, str() as text) if (
            env := environments.whole(name, text.encode())
        ) is not None:
            return {name: env}
        case _:
            return {}


def _job(row: carve.Row) -> tuple[Job, str] | None:
    """The job that a row is, and what tells its environment; None where it is none."""
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
        return (job, _text(env)) if status == status_of(job.state) else None
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
