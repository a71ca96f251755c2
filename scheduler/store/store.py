"""Jobs and alerts on disk. Owned by one process and one connection: the daemon, under its instance lock.

The SQLite that Python brings (3.40) is older than the fix of a bug that can corrupt a WAL which two connections write and reset
at once (3.51.3). One connection cannot meet it, and is all the daemon needs: a commit takes a fraction of a millisecond.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from scheduler.protocol.errors import MALFORMED, NotFound, UserError
from scheduler.protocol.jobs import Event, Group, Job, Spec, State, Usage, listed, status_of
from scheduler.protocol.search import OUTCOMES, Search, devices, ended, matches, outcome, searched
from scheduler.protocol.snapshot import Alert
from scheduler.store.database import Database
from scheduler.store.environments import LOST, EnvironmentLost, digest, whole
from scheduler.store.migrate import SCHEMA_VERSION, create, migrate

_SPEC = msgspec.json.Decoder(Spec).decode
_STATE = msgspec.json.Decoder(State).decode
_USAGE = msgspec.json.Decoder(Usage | None).decode
T = TypeVar("T")
KEPT_ALERTS = 1000
"""How many alerts the log goes back."""
FIND_S = 0.005
"""After this long a search is broken off: the daemon answers nobody meanwhile. Who asked goes on from where it was."""
WINDOW = 2048
"""Jobs that are looked at between two looks at the clock."""
BUSY_S = 0.5
"""Another program that holds the file is waited for this long: the daemon answers nobody meanwhile."""


class Store(Database):
    """Raises UserError also where a newer GPU Deck wrote the file."""

    def __init__(self, file: Path) -> None:
        super().__init__(file, "store", "queries.sql", busy=BUSY_S, one_thread=True)

    def _prepare(self) -> None:
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute(
            "PRAGMA synchronous = FULL"
        )  # a commit that was acknowledged survives a power cut
        self._db.execute(
            "PRAGMA secure_delete = ON"
        )  # an environment that was forgotten is not to be read from free pages
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version > SCHEMA_VERSION:
            raise UserError(
                f"the store {self._file} was written by a newer GPU Deck (schema {version}; this one knows {SCHEMA_VERSION}). "  # noqa: S608 - no SQL
                "Update GPU Deck, or set GPUDECK_HOME to another folder."
            )
        if version == 0:
            create(self._db)
        elif version < SCHEMA_VERSION:
            self._migrate(version)
        self._expect("schema.sql")

    def _migrate(self, version: int) -> None:
        try:
            migrate(self._db, self._file, version)
        except OSError as e:
            raise UserError(
                f"the store {self._file} is of an older GPU Deck, and cannot be copied before it is changed: {e.strerror}"
            ) from e

    def insert(self, spec: Spec, submitted: float, state: State) -> Job:
        """Add a job; it is on disk when this returns."""
        return self.insert_all([spec], submitted, state)[0]

    def insert_all(self, specs: Sequence[Spec], submitted: float, state: State) -> list[Job]:
        """Add jobs in one transaction: all of them are on disk when this returns, or none."""
        bare, envs = [_bare(spec) for spec in specs], _texts([spec.env for spec in specs])
        named = _named(envs)
        texts, status = [_encode(spec) for spec in bare], status_of(state)
        with self._transaction():
            self._put_envs(named)
            (last,) = self._db.execute(self._q["last_number"]).fetchone()
            jobs = [
                Job(number, spec, submitted, state) for number, spec in enumerate(bare, last + 1)
            ]
            rows = zip(jobs, texts, envs, strict=True)
            self._db.executemany(
                self._q["insert_job"],
                (
                    (job.id, submitted, status, spec, named[env], _encode(state))
                    for job, spec, env in rows
                ),
            )
            self._db.executemany(self._q["set_search"], map(_search_row, jobs))
            self._db.executemany(
                self._q["add_event"], ((job.id, submitted, "submitted", "") for job in jobs)
            )
        return jobs

    def _put_envs(self, named: Mapping[str, str]) -> None:
        """Environments, each under its digest."""
        self._db.executemany(self._q["put_env"], ((name, text) for text, name in named.items()))

    def _set_search(self, job: Job) -> None:
        self._db.execute(self._q["set_search"], _search_row(job))

    def restore(
        self,
        jobs: Sequence[tuple[Job, dict[str, str] | None]],
        events: Sequence[tuple[int, Event]],
        groups: Sequence[Group],
        paused: bool,
        highest: int,
    ) -> None:
        """Fill an empty store with jobs, their environments (None: it is lost) and timelines, in one transaction. No new job gets a number
        up to `highest`.
        """
        texts = [_encode(env) if env is not None and job.active else "" for job, env in jobs]
        named = _named(texts)
        with self._transaction():
            self._put_envs(named)
            for (job, _), env in zip(jobs, texts, strict=True):
                spec, state, usage = map(_encode, (_bare(job.spec), job.state, job.usage))
                row = (
                    job.id,
                    job.submitted,
                    job.status,
                    spec,
                    named.get(env, ""),
                    state,
                    job.place,
                    job.tries,
                    usage,
                )
                self._db.execute(self._q["restore_job"], row)
                self._set_search(job)
            self._add_events(events)
            for group in groups:
                self._db.execute(self._q["set_group"], (group.name, group.limit, group.paused))
            self._db.execute(self._q["set_paused"], (paused,))
            self._db.execute(self._q["forget_number"])
            self._db.execute(self._q["set_number"], (highest,))

    def update(self, job: Job, *events: Event) -> Job:
        """Commit what became of the job, and what its timeline says of it."""
        self.update_all([(job, events)])
        return job

    def update_all(self, changes: Sequence[tuple[Job, Sequence[Event]]]) -> None:
        """Commit what became of several jobs: of all or of none. Those that ended need their environments no more: they are forgotten."""
        jobs = [job for job, _ in changes]
        rows = [
            (
                _encode(_bare(j.spec)),
                j.status,
                _encode(j.state),
                j.place,
                j.tries,
                _encode(j.usage),
                not j.active,
                j.id,
            )
            for j in jobs
        ]
        ended = _encode([job.id for job in jobs if not job.active])
        with self._transaction():
            digests = self._db.execute(self._q["envs_of"], (ended,)).fetchall()
            self._db.executemany(self._q["update_job"], rows)
            self._db.executemany(self._q["set_search"], map(_search_row, jobs))
            self._add_events((job.id, event) for job, events in changes for event in events)
            self._db.executemany(self._q["drop_env"], digests)

    def _add_events(self, events: Iterable[tuple[int, Event]]) -> None:
        """Each with the number of its job."""
        self._db.executemany(
            self._q["add_event"], ((job_id, e.time, e.what, e.text) for job_id, e in events)
        )

    def timeline(self, job_id: int) -> list[Event]:
        """What the job went through, oldest first."""
        with self._words():
            return [Event(*row) for row in self._db.execute(self._q["timeline"], (job_id,))]

    def get(self, job_id: int) -> Job:
        """Raises NotFound."""
        rows = list(self._rows("get_job", job_id)) if 0 < job_id < 2**63 else []
        if not rows:
            raise NotFound(f"there is no job {job_id}. See: gpudeck jobs")
        return rows[0]

    def which_are(self, jobs: Iterable[int]) -> set[int]:
        """Those of these numbers that are of a job."""
        possible = [number for number in jobs if 0 < number < 2**63]
        with self._words():
            return {
                number for (number,) in self._db.execute(self._q["which_are"], (_encode(possible),))
            }

    def env(self, job_id: int) -> dict[str, str]:
        """The environment the job was submitted with. Raises EnvironmentLost where it is not there as it was put there, or not any more,
        as the job has ended.
        """
        with self._words():
            found = self._db.execute(self._q["get_env"], (job_id,)).fetchone()
        if found is None or (env := whole(*found)) is None:
            raise EnvironmentLost(f"job {job_id} {LOST}")
        return env

    def active(self) -> list[Job]:
        """All jobs that wait or run, oldest first."""
        return list(self._rows("active_jobs"))

    def recent(self, limit: int) -> list[Job]:
        """The newest jobs first, as they are listed."""
        return [listed(job) for job in self._rows("recent_jobs", limit)]

    def find(self, search: Search, before: int, limit: int) -> tuple[list[Job], int | None]:
        """The newest jobs with numbers below `before` that are looked for, as they are listed; and where to go on.

        That is None where there are no more. The page may be short of `limit`, or empty, where the search took too long.
        """
        end, found = time.monotonic() + FIND_S, list[Job]()
        with self._words():
            (newest,) = self._db.execute(self._q["newest_job"]).fetchone()
        before = min(before, newest + 1)
        while before > 1:
            first = before - WINDOW
            for job_id in self._likely(search, first, before):
                job = self.get(job_id)
                found += [listed(job)] if matches(search, job) else []
                if len(found) >= limit or time.monotonic() > end:
                    return found, job_id
            before = first
            if time.monotonic() > end:
                break
        return found, before if before > 1 else None

    def _likely(self, search: Search, first: int, before: int) -> Iterator[int]:
        """Ids of the jobs from `first` to `before`, the newest first, that may be looked for: of its words only two are looked at."""
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
        }
        with self._words():
            for (job_id,) in self._db.execute(self._q["find_jobs"], wanted):
                yield job_id

    def paused(self) -> bool:
        """Whether the queue is to start nothing new."""
        with self._words():
            (paused,) = self._db.execute(self._q["get_paused"]).fetchone()
        return bool(paused)

    def pause(self, paused: bool) -> None:
        """Commit whether the queue is to start nothing new."""
        with self._transaction():
            self._db.execute(self._q["set_paused"], (paused,))

    def groups(self) -> list[Group]:
        """Those that were ever limited or paused, by name."""
        with self._words():
            return [
                Group(name, limit, bool(paused))
                for name, limit, paused in self._db.execute(self._q["groups"])
            ]

    def set_group(self, group: Group) -> None:
        """Commit a group's limit, and whether it is paused."""
        with self._transaction():
            self._db.execute(self._q["set_group"], (group.name, group.limit, group.paused))

    def put_alerts(self, alerts: Sequence[Alert]) -> None:
        """Commit alerts that were raised, acknowledged or cleared, and forget the oldest of those that are over."""
        with self._transaction():
            self._db.executemany(
                self._q["put_alert"],
                [(a.id, a.cleared is None, msgspec.json.encode(a).decode()) for a in alerts],
            )
            self._db.execute(self._q["prune_alerts"], (KEPT_ALERTS,))

    def alerts(self, limit: int) -> list[Alert]:
        """The newest first; one that cannot be decoded is left out."""
        return self._alerts("alerts", limit)

    def open_alerts(self) -> tuple[list[Alert], int]:
        """Those that were not cleared, oldest first, and the number of the next one."""
        with self._words():
            (last,) = self._db.execute(self._q["last_alert"]).fetchone()
        return self._alerts("open_alerts"), last + 1

    def _alerts(self, query: str, *values: object) -> list[Alert]:
        with self._words():
            rows = self._db.execute(self._q[query], values).fetchall()
        return [alert for (data,) in rows if (alert := _decoded(data, Alert)) is not None]

    def _rows(self, query: str, *values: object) -> Iterator[Job]:
        """One at a time: each may hold a large result."""
        with self._words():
            for number, spec, submitted, state, place, tries, usage in self._db.execute(
                self._q[query], values
            ):
                try:
                    decoded = _SPEC(spec), submitted, _STATE(state), place, tries, _USAGE(usage)
                except (*MALFORMED, TypeError) as e:  # TypeError: NULL where a text was
                    raise UserError(
                        f"the store {self._file} is damaged (job {number}: {e}). See: gpudeck doctor"
                    ) from e
                yield Job(number, *decoded)


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
        ended(job.state),
        job.spec.group,
        held,
        searched(job.spec),
    )


def _texts(values: Sequence[object]) -> list[str]:
    """Each encoded; the same object, as it is with the environment of a batch, once."""
    known = {id(value): _encode(value) for value in {id(value): value for value in values}.values()}
    return [known[id(value)] for value in values]


def _named(envs: Iterable[str]) -> dict[str, str]:
    """Each of these environments with its digest."""
    return {text: digest(text.encode()) for text in set(envs) - {""}}


def _bare(spec: Spec) -> Spec:
    """Without its environment, which may hold secrets."""
    return msgspec.structs.replace(spec, env={})


def _encode(value: object) -> str:
    return msgspec.json.encode(value).decode()
