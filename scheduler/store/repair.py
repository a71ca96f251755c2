"""Examine a store, and rebuild a damaged one from its intact rows, while no daemon uses it."""

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

from gpudeck.language.text import Message, phrase, read_text
from gpudeck.scheduler.protocol.durable import sync
from gpudeck.scheduler.protocol.errors import MALFORMED, UserError
from gpudeck.scheduler.protocol.jobs import Event, Group, Job, Queued, Spec, State, Usage, status_of
from gpudeck.scheduler.protocol.submissions import SubmissionRecord
from gpudeck.scheduler.protocol.units import list_job_ranges
from gpudeck.scheduler.store import carve, environments
from gpudeck.scheduler.store.checksums import Level, checksum, mark_of, read_level
from gpudeck.scheduler.store.database import missing_column, translated_errors
from gpudeck.scheduler.store.migrate import SCHEMA_VERSION, named_queries
from gpudeck.scheduler.store.store import Store, described_loss

_OLDEST, _NEWEST = 6, 10
"""Columns of a job in the first schema and in the current one; columns were added at the end."""


class RepairSummary(NamedTuple):
    """Summarise a repair."""

    jobs: int
    """The number of jobs that were recovered."""
    lost: list[int]
    """The numbers of jobs of which nothing is left."""
    held: list[int]
    """The numbers of jobs whose environment is lost: they wait until they are cancelled."""
    changed: list[int]
    """The numbers of jobs that do not match their checksums; of these, none starts."""
    kept: Path
    """The damaged file."""


def examine(file: Path, known: Collection[int]) -> Message:
    """Return what is wrong with the store, empty where nothing is. Only a copy is opened.

    Args:
        file: The file of the store.
        known: The numbers of jobs that have a folder.

    Raises:
        UserError: The file cannot be read, or there is no room for the copy.
    """
    try:
        return _examined(file, known)
    except OSError as e:
        raise UserError(
            phrase(
                "the store {file} cannot be copied to be examined: {error}",
                file=str(file),
                error=str(e.strerror),
            )
        ) from e


def _examined(file: Path, known: Collection[int]) -> Message:
    with tempfile.TemporaryDirectory(dir=file.parent, prefix="examined-") as folder:
        copy = Path(folder) / file.name
        for source in _parts(file):
            shutil.copyfile(source, source.parent / folder / source.name)
        try:
            with translated_errors(file), closing(sqlite3.connect(copy)) as db:
                (found,) = db.execute("PRAGMA integrity_check(1)").fetchone()
                if found != "ok":
                    return str(found).splitlines()[-1]
                if not db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'jobs'").fetchone():
                    return phrase("{file} holds nothing", file=str(file))
                (version,) = db.execute("PRAGMA user_version").fetchone()
                if version == SCHEMA_VERSION and (lacks := missing_column(db, "schema.sql")):
                    return lacks
                (newest,) = db.execute("SELECT coalesce(max(id), 0) FROM jobs").fetchone()
                level = Level(*db.execute(named_queries("queries.sql")["level"]).fetchone())
                intact, bereft, changed = _intact_jobs(carve.rows(*_bytes(file)))
                garbled = [job for (job,) in db.execute("SELECT id FROM jobs") if job not in intact]
        except UserError as e:
            return e.message
    if garbled:
        return phrase("{jobs} cannot be read", jobs=list_job_ranges(garbled))
    if bereft:
        return phrase("the environment of {jobs} is lost or damaged", jobs=list_job_ranges(bereft))
    if changed:
        return phrase(
            "the command or options of {jobs} were changed or damaged",
            jobs=list_job_ranges(changed),
        )
    mark = read_level(mark_of(file))
    if mark.events > level.events or mark.jobs > level.jobs:
        return described_loss(file, level, mark)
    unknown = [number for number in known if number > newest]
    if unknown:
        return phrase(
            "{jobs} ran but the store does not know: its newest changes are gone",
            jobs=list_job_ranges(unknown),
        )
    return ""


def rebuild(file: Path, known: Iterable[int]) -> RepairSummary:
    """Replace a damaged store by a new one, and keep the damaged file.

    Args:
        file: The file of the store.
        known: The numbers that were given to jobs.

    Raises:
        UserError: The file cannot be read or replaced.
    """
    try:
        return _rebuilt(file, known)
    except OSError as e:
        raise UserError(
            phrase(
                "the store {file} cannot be replaced: {error}",
                file=str(file),
                error=str(e.strerror),
            )
        ) from e


def _rebuilt(file: Path, known: Iterable[int]) -> RepairSummary:
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
    known = (*known, read_level(mark_of(file)).jobs)
    highest = max((*jobs, *known, *(job for job, _ in events)), default=0)
    changed = [number for number, (job, _) in jobs.items() if job.damaged]
    text = phrase("its command or options were changed or damaged")
    told = Event(time.time(), "store damaged", text)
    new = file.with_name(f"{file.name}.new")
    for left in (*_parts(new), mark_of(new)):
        left.unlink(missing_ok=True)
    store = Store(new)
    try:
        store.restore(
            [
                (held[number][0] if number in held else job, env)
                for number, (job, env) in sorted(jobs.items())
            ],
            [(job, event) for job, event in events if job in jobs]
            + [(number, event) for number, (_, event) in held.items()]
            + [(number, told) for number in changed],
            [group for row in rows for group in _groups(row)],
            paused=any(row.values == (1,) for row in rows),
            highest=highest,
        )
        store.restore_submissions(found for row in rows for found in _submissions(row))
    finally:
        store.close()
    kept = _put_aside(file)
    mark_of(file).unlink(missing_ok=True)
    new.replace(file)
    mark_of(new).replace(mark_of(file))
    sync(file.parent)
    return RepairSummary(
        len(jobs),
        [number for number in range(1, highest + 1) if number not in jobs],
        sorted(held),
        sorted(changed),
        kept,
    )


def _parts(file: Path) -> list[Path]:
    """Return the file and its write-ahead log, if any; SQLite recreates its other files."""
    return [part for part in (file, file.with_name(f"{file.name}-wal")) if part.exists()]


def _bytes(file: Path) -> tuple[bytes, bytes]:
    log = file.with_name(f"{file.name}-wal")
    try:
        return file.read_bytes(), log.read_bytes() if log.exists() else b""
    except OSError as e:
        raise UserError(
            phrase(
                "the store {file} cannot be read: {error}", file=str(file), error=str(e.strerror)
            )
        ) from e


def _put_aside(file: Path) -> Path:
    kept = file.with_name(f"{file.name}.damaged-{time.strftime('%Y%m%d-%H%M%S')}")
    for part in _parts(file):
        os.link(part, kept.with_name(part.name.replace(file.name, kept.name)))
    sync(file.parent)
    for suffix in ("-wal", "-shm"):  # SQLite would apply those of the damaged file to the new one
        file.with_name(f"{file.name}{suffix}").unlink(missing_ok=True)
    return kept


def _intact_jobs(rows: Iterable[carve.StoredRow]) -> tuple[set[int], list[int], list[int]]:
    """Return the jobs that can be read.

    And those of them that wait to start but have no environment, and those that were changed and
    are not known for that yet.
    """
    # no row is kept: there may be many
    intact, stored, waiting = set[int](), set[str](), dict[int, str]()
    changed: list[int] = []
    for row in rows:
        stored |= _environment(row).keys()
        if (found := _job(row)) is not None:
            intact.add(row.id)
            if found[0].damaged and row.values[-1] != "":
                changed.append(row.id)
            if _waits(found[0]):
                waiting[row.id] = found[1]
    return (
        intact,
        [job for job, env in waiting.items() if env not in stored and _env(env, {}) is None],
        changed,
    )


def _waits(job: Job) -> bool:
    """Return True if the job is to start with its environment, and not on hold for want of it."""
    return isinstance(job.state, Queued) and not environments.is_held(job)


def _env(text: str, stored: Mapping[str, dict[str, str]]) -> dict[str, str] | None:
    """Return the environment that a job names by digest or, before schema 6, holds itself."""
    return stored[text] if text in stored else environments.decoded(text.encode())


def _environment(row: carve.StoredRow) -> dict[str, dict[str, str]]:
    """Return the environment that the row holds, by its digest; empty for other rows."""
    match row.values:
        case (str() as name, str() as text) if (
            env := environments.whole(name, text.encode())
        ) is not None:
            return {name: env}
        case _:
            return {}


def _job(row: carve.StoredRow) -> tuple[Job, str] | None:
    """Return the job that a row holds, and its reference to an environment; None for other rows."""
    if not _OLDEST <= len(row.values) <= _NEWEST:
        return None
    values = [*row.values, *(None, 0, "null", None)[len(row.values) - _OLDEST :]]
    _, submitted, status, spec, env, state, place, tries, usage, seal = values
    try:
        at = msgspec.convert(submitted, float)
        intact = seal is None or seal == checksum(row.id, at, _text(spec).encode())
        job = Job(
            row.id,
            msgspec.json.decode(_text(spec), type=Spec),
            at,
            msgspec.json.decode(_text(state), type=State),
            msgspec.convert(place, float | None),
            msgspec.convert(tries, int),
            msgspec.json.decode(_text(usage), type=Usage | None),
            damaged=not intact,
        )
        return (job, _text(env)) if status == status_of(job.state) else None
    except (*MALFORMED, TypeError):
        return None


def _text(value: carve.Value) -> str:
    if not isinstance(value, str):
        raise TypeError("no text")
    return value


def _events(row: carve.StoredRow) -> list[tuple[int, Event]]:
    """Return the event that the row holds, with its job; empty for other rows."""
    match row.values:
        case (None, int() as job, float() | int() as at, str() as what, str() as text):
            return [(job, Event(float(at), what, read_text(text)))]
        case _:
            return []


def _groups(row: carve.StoredRow) -> list[Group]:
    """Return the group that the row holds; empty for other rows."""
    match row.values:
        case (str() as name, int() as limit, int() as paused):
            return [Group(name, limit, bool(paused))]
        case _:
            return []


def _submissions(row: carve.StoredRow) -> list[SubmissionRecord]:
    """Return the submission that the row holds; empty for other rows."""
    match row.values:
        case (None, str() as token, str() as contents, int() as first, int() as count):
            return [SubmissionRecord(token, contents, first, count)]
        case _:
            return []
