"""Store jobs, groups and alerts. The daemon owns the file, with one connection.

The SQLite that comes with Python (3.40) is older than the fix (3.51.3) of a bug that can corrupt a
WAL which two connections write and reset at once. A single connection is safe, and all the daemon
needs: a commit takes a fraction of a millisecond.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from gpudeck.language.text import Text, phrase, read_text, stored_text
from gpudeck.scheduler.protocol.errors import MALFORMED, NotFound, UserError, no_job
from gpudeck.scheduler.protocol.jobs import Event, Group, Job, Lost, Spec, State, Usage, listed
from gpudeck.scheduler.protocol.search import (
    NEWEST,
    OUTCOMES,
    Search,
    devices,
    matches,
    outcome,
    searched,
)
from gpudeck.scheduler.protocol.snapshot import Alert
from gpudeck.scheduler.protocol.submissions import SubmissionRecord
from gpudeck.scheduler.protocol.units import list_job_ranges
from gpudeck.scheduler.protocol.wait_reasons import EnvironmentMissing
from gpudeck.scheduler.protocol.wait_texts import explain
from gpudeck.scheduler.store.checksums import Level, LevelMark, checksum
from gpudeck.scheduler.store.database import Database
from gpudeck.scheduler.store.environments import EnvironmentLost, digest, whole
from gpudeck.scheduler.store.hidden import Hidden
from gpudeck.scheduler.store.migrate import SCHEMA_VERSION, create, migrate

_SPEC = msgspec.json.Decoder(Spec).decode
_STATE = msgspec.json.Decoder(State).decode
_USAGE = msgspec.json.Decoder(Usage | None).decode
T = TypeVar("T")
KEPT_SUBMISSIONS = 100_000
"""The number of submissions that are recognised where they are sent again."""
KEPT_MISSING = 1000
"""The most jobs that are put in the places of jobs that are gone."""
KEPT_ALERTS = 1000
"""The number of alerts that the log keeps."""
_GONE = Spec((), "unknown", "")
"""Stands for what was submitted as a job of which the store lost everything."""
FIND_S = 0.005
"""The longest search: the daemon answers nobody meanwhile. The caller continues from its end."""
WINDOW = 2048
"""Jobs that a search compares between two checks of the clock."""
ROOM = 256 * 2**10
"""Bytes that must be free for a job to be stored."""
RECENT_S = 30.0
"""Seconds for which a change that the full disk refused counts, unless a later one succeeds."""
BUSY_S = 0.5
"""Seconds to wait while another program locks the file: the daemon answers nobody meanwhile."""


class Store(Database):
    """Store the jobs. Raises UserError, too, where a newer GPU Deck wrote the file."""

    def __init__(self, file: Path) -> None:
        self.loss: Text | None = None
        """What was lost since the store was open last, in a sentence; None where nothing was."""
        self._mark = LevelMark(file)
        super().__init__(file, "queries.sql", busy=BUSY_S, one_thread=True)
        self._hidden = Hidden()
        """Jobs of submissions that are not stored as a whole yet."""
        self._given_up: list[range] = []
        """Those of them that the full disk kept from being deleted."""
        self._find_loss()
        with self._translated():
            staged = self.connection.execute(self._q["staged"]).fetchall()
        self.drop_staged([range(*numbers) for numbers in staged])
        try:
            self._opened = tuple(self._identity())
        except OSError as e:
            self.close()
            raise UserError(
                phrase(
                    "the store {file} cannot be used: {error}. See: gpudeck doctor",
                    file=str(file),
                    error=str(e.strerror),
                )
            ) from e

    def _prepare(self) -> None:
        self.connection.execute("PRAGMA journal_mode = WAL")
        # a commit that was acknowledged survives a power cut
        self.connection.execute("PRAGMA synchronous = FULL")
        # an environment may hold secrets, and must not remain in free pages
        self.connection.execute("PRAGMA secure_delete = ON")
        (version,) = self.connection.execute("PRAGMA user_version").fetchone()
        if version > SCHEMA_VERSION:
            raise UserError(
                phrase(
                    "the store {file} was written by a newer GPU Deck (schema "
                    "{version}; this one knows {known}). Update GPU Deck, or set "
                    "GPUDECK_HOME to another folder.",
                    file=str(self._file),
                    version=version,
                    known=SCHEMA_VERSION,
                )
            )
        self._is_new = version == 0
        if self._is_new:
            create(self.connection)
            # the tables do not get lost with the log
            self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        elif version < SCHEMA_VERSION:
            self._migrate(version)
        self._expect("schema.sql")

    def _migrate(self, version: int) -> None:
        try:
            migrate(self.connection, self._file, version)
        except OSError as e:
            raise UserError(
                phrase(
                    "the store {file} was written by an older GPU Deck, and cannot "
                    "be copied before its migration: {error}",
                    file=str(self._file),
                    error=str(e.strerror),
                )
            ) from e

    def _find_loss(self) -> None:
        """Compare the store with its mark, and keep which of its jobs are gone."""
        with self._translated():
            level = Level(*self.connection.execute(self._q["level"]).fetchone())
        mark = self._mark.read()
        missing = range(level.jobs + 1, mark.jobs + 1)
        if mark.events > level.events or missing:
            self.loss = described_loss(self._file, level, mark, deleted=self._is_new)
            if not self._is_new:
                highest = max(level.jobs, mark.jobs)
                self._report_loss(missing[-KEPT_MISSING:], highest)
        self._note_level()

    def _report_loss(self, missing: Sequence[int], highest: int) -> None:
        """Put a lost job in the place of each that is gone, and tell those that wait or run."""
        now = time.time()
        text = phrase("its newest changes are gone, perhaps some of this job")
        gone = Event(now, "store damaged", text)
        with self._transaction():
            active = self.connection.execute(self._q["active_numbers"]).fetchall()
            self._add_events((number, gone) for (number,) in active)
            self._put_missing(missing, now)
            self.connection.execute(self._q["forget_number"])
            self.connection.execute(self._q["set_number"], (highest,))

    def _note_level(self) -> None:
        """Keep how far the store has come, to find out at the next start whether it went back."""
        try:
            with self._translated():
                level = Level(*self.connection.execute(self._q["level"]).fetchone())
        except UserError:
            return  # what was committed is on disk, and nobody may take it for refused
        self._mark.write(level)

    @property
    def may_have_lost(self) -> bool:
        """Return whether the store may lack something that was stored before it was opened."""
        return self._is_new or bool(self.loss)

    def _identity(self) -> Iterator[int]:
        """Return which files have the names of the store and its log now; 0 for one that is gone.

        Raises OSError.
        """
        for name in (self._file.name, f"{self._file.name}-wal"):
            try:
                yield self._file.with_name(name).stat().st_ino
            except FileNotFoundError:
                yield 0

    @property
    def replaced(self) -> bool:
        """Return whether somebody deleted or replaced the files that are open here.

        What is stored then is lost once this process ends.
        """
        try:
            both = zip(self._opened, self._identity(), strict=True)
            return any(was and was != now for was, now in both)
        except OSError:
            return False  # which does not tell

    def checkpoint(self) -> bool:
        """Move all that is committed from the write-ahead log into the main file, and sync that.

        Returns False where another program reads the store at this moment, or somebody deleted it.
        """
        with self._translated():
            (busy, _, _) = self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return not (busy or self.replaced)

    def close(self) -> None:
        """Close the store."""
        super().close()
        self._mark.close()

    def check_room(self) -> None:
        """Raise UserError where the disk was full a moment ago, or has no room for a job."""
        space = os.statvfs(self._file.parent)
        refused = self.refused_at is not None and time.monotonic() - self.refused_at < RECENT_S
        if refused or space.f_bavail * space.f_frsize < ROOM:
            raise UserError(
                phrase(
                    "the disk of {parent} is full: no job can be queued now. Free some space",
                    parent=str(self._file.parent),
                )
            )

    def insert(self, spec: Spec, submitted: float, state: State) -> Job:
        """Add a job; it is on disk when this returns."""
        return self.insert_all([spec], submitted, state)[0]

    def insert_all(
        self,
        specs: Sequence[Spec],
        submitted: float,
        state: State,
        token: str = "",
        contents: str = "",
    ) -> list[Job]:
        """Add jobs in one transaction: all of them are on disk when this returns, or none.

        Args:
            specs: The jobs.
            submitted: When they were submitted.
            state: The state of each.
            token: The token of the submission, which no other has; empty where it has none.
            contents: The digest of the submission.
        """
        self._check_kept()
        with self._transaction():
            (last,) = self.connection.execute(self._q["last_number"]).fetchone()
            jobs = [
                Job(number, spec, submitted, state) for number, spec in enumerate(specs, last + 1)
            ]
            self._insert(jobs)
            if token:
                row = (token, contents, last + 1, len(jobs))
                self.connection.execute(self._q["add_submission"], row)
                self.connection.execute(self._q["prune_submissions"], (KEPT_SUBMISSIONS,))
        self._note_level()
        return [msgspec.structs.replace(job, spec=_bare(job.spec)) for job in jobs]

    def _check_kept(self) -> None:
        """Raise UserError where what is stored now would be lost, or the disk is still full."""
        if self.replaced:
            raise UserError(
                phrase(
                    "the store {file} was deleted or replaced while the daemon used "
                    "it, so that the daemon ends. Submit again: the next one takes "
                    "over what is left",
                    file=str(self._file),
                )
            )
        self.drop_staged(self._given_up)

    # What `Staging` uses

    def begin_staging(self, count: int, token: str) -> range:
        """Keep numbers for the jobs of a submission, and hide these. Raises UserError."""
        self._check_kept()
        with self._transaction():
            (last,) = self.connection.execute(self._q["last_number"]).fetchone()
            numbers = range(last + 1, last + 1 + count)
            self.connection.execute(self._q["forget_number"])
            self.connection.execute(self._q["set_number"], (numbers.stop - 1,))
            self.connection.execute(self._q["add_submission"], (token, "", numbers.start, count))
        self._hidden.hide(numbers, numbers.start)
        self._note_level()
        return numbers

    def add_staged(self, jobs: Sequence[Job]) -> list[Job]:
        """Store hidden jobs. Raises UserError."""
        with self._transaction():
            self._insert(jobs)
        self._note_level()
        return [msgspec.structs.replace(job, spec=_bare(job.spec)) for job in jobs]

    def end_staging(self, token: str, contents: str) -> None:
        """Have a submission exist, and its jobs with it. Raises UserError."""
        self._check_kept()
        with self._transaction():
            self.connection.execute(self._q["end_staging"], (contents, token))
            self.connection.execute(self._q["prune_submissions"], (KEPT_SUBMISSIONS,))

    def show_staged(self, numbers: range, end: int) -> None:
        """Show those of these jobs with numbers below `end`."""
        self._hidden.hide(numbers, end)

    def drop_staged(self, staged: Sequence[range]) -> None:
        """Delete the jobs of submissions that were not stored as a whole.

        Raises UserError; then they are tried again before the next submission. Their events stay,
        as the number of the newest event must never go back.
        """
        self._given_up = [*self._given_up, *(n for n in staged if n not in self._given_up)]
        for numbers in tuple(self._given_up):
            bounds = (numbers.start, numbers.stop)
            with self._transaction():
                digests = self.connection.execute(self._q["staged_envs"], bounds).fetchall()
                self.connection.execute(self._q["drop_staged"], bounds)
                self.connection.execute(self._q["drop_staged_search"], bounds)
                self.connection.execute(self._q["drop_staged_submission"], bounds[:1])
                self.connection.executemany(self._q["drop_env"], digests)
            self._given_up.remove(numbers)
            self._hidden.hide(numbers, numbers.stop)

    def _insert(self, jobs: Sequence[Job]) -> None:
        """Add jobs that were submitted in this moment, each with its environment."""
        envs = _texts([job.spec.env for job in jobs])
        named = _named(envs)
        self._put_envs(named)
        rows = zip(jobs, (_encode(_bare(job.spec)) for job in jobs), envs, strict=True)
        self.connection.executemany(
            self._q["insert_job"],
            (
                (
                    *(job.id, job.submitted, job.status, spec, named[env], _encode(job.state)),
                    checksum(job.id, float(job.submitted), spec.encode()),
                )
                for job, spec, env in rows
            ),
        )
        self.connection.executemany(self._q["set_search"], map(_search_row, jobs))
        self.connection.executemany(
            self._q["add_event"], ((job.id, job.submitted, "submitted", "") for job in jobs)
        )

    def submission(self, token: str) -> SubmissionRecord | None:
        """Return a submission; None where none has this token."""
        with self._translated():
            found = self.connection.execute(self._q["get_submission"], (token,)).fetchone()
        return None if found is None or not found[1] else SubmissionRecord(*found)

    def between(self, first: int, end: int) -> list[Job]:
        """Return the jobs with numbers from `first` up to, and without, `end`, oldest first."""
        return list(self._rows("get_jobs", first, end))

    def submission_of(self, job_id: int) -> SubmissionRecord | None:
        """Return what a job was submitted with; None where that had no token, or is forgotten."""
        with self._translated():
            found = self.connection.execute(self._q["submission_of"], (job_id,)).fetchone()
        return None if found is None else SubmissionRecord(*found)

    def refill(self, jobs: Sequence[Job]) -> list[Job]:
        """Add jobs, with their environments, in the places of jobs that are gone, all or none."""
        again = phrase("submitted again, with the token of the submission that the store had lost")
        with self._transaction():
            self.connection.executemany(self._q["delete_job"], [(job.id,) for job in jobs])
            self._insert(jobs)
            self._add_events((job.id, Event(job.submitted, "recovered", again)) for job in jobs)
        self._note_level()
        return [msgspec.structs.replace(job, spec=_bare(job.spec)) for job in jobs]

    def _put_envs(self, named: Mapping[str, str]) -> None:
        """Store environments, each under its digest."""
        self.connection.executemany(
            self._q["put_env"], ((name, text) for text, name in named.items())
        )

    def _set_search(self, job: Job) -> None:
        self.connection.execute(self._q["set_search"], _search_row(job))

    def restore(
        self,
        jobs: Sequence[tuple[Job, dict[str, str] | None]],
        events: Sequence[tuple[int, Event]],
        groups: Sequence[Group],
        paused: bool,
        highest: int,
    ) -> None:
        """Fill an empty store in one transaction.

        Args:
            jobs: The jobs, each with its environment; None where that is lost.
            events: The timelines, each event with the number of its job.
            groups: The groups.
            paused: True if the queue is paused.
            highest: The last number that was given to a job; new ones get higher numbers.
        """
        with self._transaction():
            self._restore_jobs(jobs)
            self._add_events(events)
            for group in groups:
                self.connection.execute(
                    self._q["set_group"], (group.name, group.limit, group.paused)
                )
            self.connection.execute(self._q["set_paused"], (paused,))
            self.connection.execute(self._q["forget_number"])
            self.connection.execute(self._q["set_number"], (highest,))
        self._note_level()

    def restore_lost(
        self, jobs: Iterable[Job], submissions: Iterable[SubmissionRecord] = ()
    ) -> list[Job]:
        """Restore those of these jobs that the store lost, and return them.

        Their environments are lost. A job whose number has another one is left out.

        Args:
            jobs: The jobs.
            submissions: What they were submitted with. The numbers of other jobs that were
                submitted with them are kept for these.
        """
        lost = [job for job in jobs if self._is_lost(job.id)]
        if not lost:
            return []
        numbers, now = {job.id for job in lost}, time.time()
        records = [
            found
            for found in submissions
            if not numbers.isdisjoint(found.numbers)
            and all(n in numbers or self._is_lost(n) for n in found.numbers)
        ]
        others = {number for found in records for number in found.numbers} - numbers
        text = phrase("the store had lost it, and it is known from the evidence that it began")
        event = Event(now, "recovered", text)
        with self._transaction():
            self.connection.executemany(self._q["delete_job"], [(job.id,) for job in lost])
            self._restore_jobs([(job, None) for job in lost])
            self._add_events((job.id, event) for job in lost)
            self._put_missing(sorted(others - self.existing(others)), now)
            self._put_submissions(records)
        self._note_level()
        if self.loss:
            self.loss = phrase(
                "{loss}. Jobs recovered from what their attempts left: {n}",
                loss=self.loss,
                n=len(lost),
            )
        return lost

    def _is_lost(self, number: int) -> bool:
        try:
            return is_gone(self.get(number))
        except NotFound:
            return True

    def _put_missing(self, numbers: Iterable[int], now: float) -> None:
        """Put a lost job in each of these places."""
        why = phrase("the store lost all records of it: whether it ran is unknown")
        lost = Lost(now, now, why)
        jobs = [Job(number, _GONE, now, lost) for number in numbers]
        self._restore_jobs([(job, None) for job in jobs])
        self._add_events((job.id, Event(now, "lost", lost.reason)) for job in jobs)

    def _restore_jobs(self, jobs: Sequence[tuple[Job, dict[str, str] | None]]) -> None:
        """Add jobs as they were, each with its environment."""
        texts = [_encode(env) if env is not None and job.active else "" for job, env in jobs]
        named = _named(texts)
        self._put_envs(named)
        for (job, _), env in zip(jobs, texts, strict=True):
            spec, state, usage = map(_encode, (_bare(job.spec), job.state, job.usage))
            row = (
                *(job.id, job.submitted, job.status, spec, named.get(env, ""), state),
                *(job.place, job.tries, usage, _seal(job, spec)),
            )
            self.connection.execute(self._q["restore_job"], row)
            self._set_search(job)

    def restore_submissions(self, records: Iterable[SubmissionRecord]) -> None:
        """Store submissions as they were."""
        with self._transaction():
            self._put_submissions(records)

    def _put_submissions(self, records: Iterable[SubmissionRecord]) -> None:
        self.connection.executemany(
            self._q["restore_submission"], map(msgspec.structs.astuple, records)
        )

    def update(self, job: Job, *events: Event) -> Job:
        """Commit the new state of a job, and events for its timeline."""
        self.update_all([(job, events)])
        return job

    def update_all(self, changes: Sequence[tuple[Job, Sequence[Event]]]) -> None:
        """Commit the new states of jobs, all or none, and delete the environments of ended jobs."""
        jobs = [job for job, _ in changes]
        specs = [_encode(_bare(job.spec)) for job in jobs]
        rows = [_job_row(job, spec) for job, spec in zip(jobs, specs, strict=True)]
        ended = _encode([job.id for job in jobs if not job.active])
        with self._transaction():
            digests = self.connection.execute(self._q["envs_of"], (ended,)).fetchall()
            self.connection.executemany(self._q["update_job"], rows)
            self.connection.executemany(self._q["set_search"], map(_search_row, jobs))
            self._add_events((job.id, event) for job, events in changes for event in events)
            self.connection.executemany(self._q["drop_env"], digests)
        self._note_level()

    def envs(self, jobs: Iterable[int]) -> dict[int, dict[str, str]]:
        """Return the environments of those of these jobs whose environment is whole.

        Jobs that share an environment get the same dictionary.
        """
        with self._translated():
            named = self.connection.execute(
                self._q["envs_named"], (_encode(list(jobs)),)
            ).fetchall()
            rows = [
                row
                for name in {name for _, name in named}
                for row in self.connection.execute(self._q["env_named"], (name,))
            ]
        known = {name: env for name, text in rows if (env := whole(name, text)) is not None}
        return {number: known[name] for number, name in named if name in known}

    def revive(
        self, changes: Sequence[tuple[Job, Sequence[Event]]], envs: Sequence[dict[str, str]]
    ) -> None:
        """Commit that jobs which had ended wait again, all or none.

        Args:
            changes: Each job with its events.
            envs: The environment of each job, in the same order.
        """
        texts = _texts(envs)
        named = _named(texts)
        with self._transaction():
            self._put_envs(named)
            for (job, events), env in zip(changes, texts, strict=True):
                spec = _encode(_bare(job.spec))
                self.connection.execute(self._q["update_job"], _job_row(job, spec))
                self.connection.execute(self._q["set_env"], (named.get(env, ""), job.id))
                self._set_search(job)
                self._add_events((job.id, event) for event in events)
        self._note_level()

    def _add_events(self, events: Iterable[tuple[int, Event]]) -> None:
        """Store events, each with the number of its job."""
        self.connection.executemany(
            self._q["add_event"],
            ((job_id, e.time, e.what, stored_text(e.text)) for job_id, e in events),
        )

    def timeline(self, job_id: int) -> list[Event]:
        """Return the timeline of a job, oldest event first."""
        with self._translated():
            rows = self.connection.execute(self._q["timeline"], (job_id,))
            return [Event(at, what, read_text(text)) for at, what, text in rows]

    def get(self, job_id: int) -> Job:
        """Return a job. Raises NotFound."""
        rows = list(self._rows("get_job", job_id)) if 0 < job_id < 2**63 else []
        if not rows:
            raise NotFound(no_job(job_id))
        return rows[0]

    def existing(self, jobs: Iterable[int]) -> set[int]:
        """Return those of these numbers that belong to a job."""
        return {number for (number,) in self._of_jobs("existing", jobs)}

    def statuses(self, jobs: Iterable[int]) -> dict[int, str]:
        """Return the statuses of those of these jobs that exist."""
        return dict(self._of_jobs("statuses", jobs))

    def owners(self, jobs: Iterable[int]) -> dict[int, int | None]:
        """Return the users of those of these jobs that exist."""
        return dict(self._of_jobs("owners", jobs))

    def _of_jobs(self, query: str, jobs: Iterable[int]) -> list[tuple[Any, ...]]:
        """Return what a query finds of those of these numbers that can belong to a job."""
        possible = [n for n in jobs if 0 < n < 2**63 and n not in self._hidden]
        with self._translated():
            return self.connection.execute(self._q[query], (_encode(possible),)).fetchall()

    def env(self, job_id: int) -> dict[str, str]:
        """Return the environment that the job was submitted with.

        Raises:
            EnvironmentLost: It is missing or damaged, or was deleted as the job has ended.
        """
        with self._translated():
            found = self.connection.execute(self._q["get_env"], (job_id,)).fetchone()
        if found is None or (env := whole(*found)) is None:
            raise EnvironmentLost(
                phrase("job {job} {why}", job=job_id, why=explain(EnvironmentMissing(), 0.0))
            )
        return env

    def active(self) -> list[Job]:
        """Return all jobs that wait or run, oldest first."""
        return list(self._rows("active_jobs"))

    def recent(self, limit: int, before: int = NEWEST) -> list[Job]:
        """Return the newest jobs with numbers below `before`, as lists show them, newest first."""
        found: list[Job] = []
        for first, end in self._hidden.shown(before):
            rows = self._rows("recent_jobs", first, end, limit - len(found))
            found += [listed(job) for job in rows]
        return found

    def ended_since(self, since: float) -> Iterator[Job]:
        """Yield the jobs that ended since a time and had devices, oldest first."""
        return self._rows("ended_since", since)

    def find(
        self, search: Search, before: int, limit: int, viewer: int | None = None
    ) -> tuple[list[Job], int | None]:
        """Return one page of the jobs that match, newest first, and where the next page begins.

        A page may be short or empty where the search took too long.

        Args:
            search: The conditions.
            before: Only jobs with lower numbers are searched.
            limit: The most jobs on the page.
            viewer: As in `search.matches`: nothing that is hidden from them decides which jobs
                are on the page, and where the next one begins.

        Returns:
            The jobs, as lists show them, and `before` of the next page; None after the last page.
        """
        end, found = time.monotonic() + FIND_S, list[Job]()
        with self._translated():
            (newest,) = self.connection.execute(self._q["newest_job"]).fetchone()
        before = min(before, newest + 1)
        while before > 1:
            first = before - WINDOW
            for job_id in self._likely(search, first, before, viewer):
                job = self.get(job_id)
                found += [listed(job)] if matches(search, job, viewer) else []
                if len(found) >= limit or time.monotonic() > end:
                    return found, job_id
            before = first
            if time.monotonic() > end:
                break
        return found, before if before > 1 else None

    def _likely(self, search: Search, first: int, before: int, viewer: int | None) -> Iterator[int]:
        """Yield the jobs from `first` to `before` that may match, by the two longest words only."""
        one, other = (*sorted(search.words, key=len, reverse=True), "", "")[:2]
        wanted = {
            "first": first,
            "before": before,
            "outcomes": _encode(search.outcomes or OUTCOMES),
            "since": search.since,
            "until": search.until,
            "group": search.group,
            "device": f" {search.device} " if search.device else "",
            "one": one,
            "other": other,
            "viewer": viewer,
        }
        with self._translated():
            for (job_id,) in self.connection.execute(self._q["find_jobs"], wanted):
                if job_id not in self._hidden:
                    yield job_id

    def paused(self) -> bool:
        """Return True if the queue is paused."""
        with self._translated():
            (paused,) = self.connection.execute(self._q["get_paused"]).fetchone()
        return bool(paused)

    def pause(self, paused: bool) -> None:
        """Commit whether the queue is paused."""
        with self._transaction():
            self.connection.execute(self._q["set_paused"], (paused,))

    def groups(self) -> list[Group]:
        """Return the groups that were ever limited or paused, by name."""
        with self._translated():
            return [
                Group(name, limit, bool(paused))
                for name, limit, paused in self.connection.execute(self._q["groups"])
            ]

    def set_group(self, group: Group) -> None:
        """Commit a group's limit, and whether it is paused."""
        with self._transaction():
            self.connection.execute(self._q["set_group"], (group.name, group.limit, group.paused))

    def put_alerts(self, alerts: Sequence[Alert]) -> None:
        """Commit alerts that were raised, acknowledged or cleared, and delete the oldest cleared
        ones."""
        with self._transaction():
            self.connection.executemany(
                self._q["put_alert"],
                [(a.id, a.cleared is None, msgspec.json.encode(a).decode()) for a in alerts],
            )
            self.connection.execute(self._q["prune_alerts"], (KEPT_ALERTS,))

    def alerts(self, limit: int) -> list[Alert]:
        """Return alerts, newest first; damaged ones are left out."""
        return self._alerts("alerts", limit)

    def open_alerts(self) -> tuple[list[Alert], int]:
        """Return the alerts that were not cleared, oldest first, and the next alert's number."""
        with self._translated():
            (last,) = self.connection.execute(self._q["last_alert"]).fetchone()
        return self._alerts("open_alerts"), last + 1

    def _alerts(self, query: str, *values: object) -> list[Alert]:
        with self._translated():
            rows = self.connection.execute(self._q[query], values).fetchall()
        return [alert for (data,) in rows if (alert := _decoded(data, Alert)) is not None]

    def _rows(self, query: str, *values: object) -> Iterator[Job]:
        """Yield jobs one at a time: each may hold a large result."""
        with self._translated():
            for row in self.connection.execute(self._q[query], values):
                number, spec, submitted, state, place, tries, usage, seal = row
                if number in self._hidden:
                    continue
                try:
                    decoded = _SPEC(spec), submitted, _STATE(state), place, tries, _USAGE(usage)
                except (*MALFORMED, TypeError) as e:  # TypeError: NULL in place of text
                    raise UserError(
                        phrase(
                            "the store {file} is damaged (job {number}: {error}). "
                            "See: gpudeck doctor",
                            file=str(self._file),
                            number=number,
                            error=str(e),
                        )
                    ) from e
                text = spec if isinstance(spec, bytes) else spec.encode()
                changed = seal != checksum(number, submitted, text)
                yield Job(number, *decoded, damaged=changed)


def is_gone(job: Job) -> bool:
    """Return whether this stands for a job of which the store lost everything."""
    return job.spec == _GONE


def _decoded(data: bytes | str, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(data, type=kind)
    except MALFORMED:
        return None


def _search_row(job: Job) -> tuple[object, ...]:
    held = "".join(f" {device}" for device in devices(job.state)) + " "
    return (
        job.id,
        outcome(job.state),
        job.submitted,
        job.ended,
        job.spec.group,
        held,
        searched(job.spec),
        job.spec.user,
    )


def _job_row(job: Job, spec: str) -> tuple[object, ...]:
    """Return what a change of a job stores; `spec` is its JSON."""
    return (
        spec,
        _seal(job, spec),
        job.status,
        _encode(job.state),
        job.place,
        job.tries,
        _encode(job.usage),
        not job.active,
        job.id,
    )


def _texts(values: Sequence[object]) -> list[str]:
    """Encode each value; an object that occurs often, like the environment of a batch, only
    once."""
    known = {id(value): _encode(value) for value in {id(value): value for value in values}.values()}
    return [known[id(value)] for value in values]


def _named(envs: Iterable[str]) -> dict[str, str]:
    """Return the digest of each of these environments."""
    return {text: digest(text.encode()) for text in set(envs) - {""}}


def _seal(job: Job, spec: str) -> str:
    """Return the checksum of a job with this JSON of its spec; none where that was damaged."""
    return "" if job.damaged else checksum(job.id, float(job.submitted), spec.encode())


def described_loss(file: Path, level: Level, mark: Level, deleted: bool = False) -> Text:
    """Return what a store has lost that has this level, and had that of its mark."""
    gone = range(level.jobs + 1, mark.jobs + 1)
    text = phrase("the newest changes of the store {file} are gone", file=str(file))
    if deleted:
        text = phrase("the store {file} was deleted", file=str(file))
    if gone:
        text = phrase(
            "{loss}, and all that it held of {jobs}", loss=text, jobs=list_job_ranges(gone)
        )
    return phrase(
        "{loss}. Their folders are kept in {folder}", loss=text, folder=str(file.parent / "jobs")
    )


def _bare(spec: Spec) -> Spec:
    """Return the spec without its environment, which may hold secrets."""
    return msgspec.structs.replace(spec, env={})


def _encode(value: object) -> str:
    return msgspec.json.encode(value).decode()
