"""What is known of attempts apart from the store: their tickets, and marks in the jobs' folders.

The store may lose its newest changes, as where its write-ahead log is deleted. A ticket holds the
job as it was when the attempt began, with the token it was submitted with, until the store cannot
lose that any more. A mark only names
the attempt that ran last in a folder, and stays.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from gpudeck.language.text import phrase
from gpudeck.scheduler.attempts import Begun, Unreadable, folder_problem, read_file
from gpudeck.scheduler.executors import tickets
from gpudeck.scheduler.executors.attempt_folder import exit_record
from gpudeck.scheduler.executors.exit_writer import EXIT_FILE, LOCK_FILE
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.errors import MALFORMED, UserError
from gpudeck.scheduler.protocol.jobs import Job, Queued, Running, Starting
from gpudeck.scheduler.protocol.submissions import SubmissionRecord

_KEY = "submission"
"""The name, in a ticket, of what the job was submitted with."""
_MAX_MARK = 100
"""Bytes of a mark that are read; one of ours is shorter."""


def ticket_of(attempt: str) -> Path:
    """Return the file of the ticket of an attempt."""
    return paths.attempts() / attempt


def issue_ticket(job: Job, state: Running, submission: SubmissionRecord | None) -> None:
    """Write the ticket by which the attempt may begin. Raises UserError."""
    ticket = paths.ensure(paths.attempts()) / state.attempt
    try:
        tickets.issue(ticket, _encoded(msgspec.structs.replace(job, state=state), submission))
    except OSError as e:
        raise UserError(
            phrase(
                "the ticket {ticket} cannot be written: {error}",
                ticket=str(ticket),
                error=str(e.strerror),
            )
        ) from e


def note_end(attempt: str, job: Job) -> None:
    """Note beside its ticket what became of the job after the attempt, as the store has it."""
    tickets.note_end(ticket_of(attempt), _encoded(job))


def _encoded(job: Job, submission: SubmissionRecord | None = None) -> bytes:
    spec = msgspec.structs.replace(job.spec, env={})  # which may hold secrets
    fields = msgspec.structs.asdict(msgspec.structs.replace(job, spec=spec))
    return msgspec.json.encode(fields if submission is None else {**fields, _KEY: submission})


class _Ticket(NamedTuple):
    """What one ticket tells."""

    job: Job
    """The job after the attempt, or where it did not end, when it began."""
    submission: SubmissionRecord | None


class _Submitted(msgspec.Struct):
    """Read what a ticket tells besides the job."""

    submission: SubmissionRecord | None = None


class Evidence:
    """Compare jobs as the store knows them with what their attempts left outside of it."""

    def __init__(self) -> None:
        self._begun: dict[tuple[int, float], _Ticket] | None = None
        """The newest tickets of jobs from before this daemon, by number and time of submission;
        None before they were read."""

    def begun(self) -> Begun:
        """Return the jobs that have tickets, as they were when the newest of these ended or began.

        Raises OSError where the tickets cannot be read.
        """
        found = self._read().values()
        submissions = {t.submission.token: t.submission for t in found if t.submission is not None}
        return Begun([ticket.job for ticket in found], list(submissions.values()))

    def unrecorded(self, job: Job) -> Job | Unreadable | None:
        """Return the job as it was at or after an attempt that the store does not know.

        None where there is none. Its state is Starting where nothing but the attempt's name is
        known.
        """
        try:
            ticket = self._read().get((job.id, job.submitted))
            if ticket is not None and _is_newer(ticket.job, job):
                return ticket.job
            attempt = _marked_attempt(job)
        except OSError as e:
            return folder_problem(e)
        if attempt is None or isinstance(job.state, Running):
            return None
        if ended := _ended(job, attempt):
            return ended if isinstance(ended, Unreadable) else None
        state = Starting(attempt, (), job.submitted)
        return msgspec.structs.replace(job, state=state, tries=_tries(job))

    def _read(self) -> dict[tuple[int, float], _Ticket]:
        if self._begun is None:
            found = _decoded(tickets.began(paths.attempts()))
            newest = sorted(found, key=lambda ticket: _progress(ticket.job))
            self._begun = {(t.job.id, t.job.submitted): t for t in newest}
        return self._begun


def _decoded(found: Iterable[tickets.Began]) -> Iterable[_Ticket]:
    for attempt, content, end in found:
        try:
            job = msgspec.json.decode(content, type=Job)
            submission = msgspec.json.decode(content, type=_Submitted).submission
            ended = job if end is None else msgspec.json.decode(end, type=Job)
        except MALFORMED:
            continue  # it is not one of ours, or the disk was full
        if isinstance(job.state, Running) and job.state.attempt == attempt:
            yield _Ticket(ended, submission)


def _is_newer(found: Job, job: Job) -> bool:
    """Return whether the evidence tells more of the job than the store knows."""
    ours, stores = found.state, job.state
    if isinstance(ours, Running) and isinstance(stores, Running) and found.tries == job.tries:
        return ours.attempt != stores.attempt  # the store's never began
    return _progress(found) > _progress(job)


def _progress(job: Job) -> tuple[int, int]:
    """Return how far a job came, for comparison."""
    steps = (Queued, Starting, Running)
    return job.tries, next((i for i, kind in enumerate(steps) if isinstance(job.state, kind)), 3)


def _marked_attempt(job: Job) -> str | None:
    """Return the attempt that ran last in the job's folder, if it is one of this job.

    Raises OSError where that cannot be found out.
    """
    try:
        with paths.open_plain(paths.job_folder(job.id) / LOCK_FILE) as f:
            words = f.read(_MAX_MARK).strip(b"\0").decode().split()
            written = os.fstat(f.fileno()).st_mtime
    except UnicodeDecodeError:
        return None
    match words:
        case [attempt, submitted]:
            return attempt if submitted == repr(job.submitted) else None
        case [attempt] if job.tries or written > job.submitted:
            return attempt  # of GPU Deck before 0.1.0, which did not write whose it is
        case _:
            return None


def _ended(job: Job, attempt: str) -> bool | Unreadable:
    """Return whether a job that waits for a further attempt has the record of this last one.

    That was renamed where the further attempt was prepared.
    """
    if not job.tries:
        return False
    renamed = f"{EXIT_FILE}.{job.tries}"
    name = EXIT_FILE if read_file(job.id, renamed, 1) is None else renamed
    record = exit_record(job.id, attempt, name)
    return record if isinstance(record, Unreadable) else record is not None


def _tries(job: Job) -> int:
    """Return how many attempts ended before the marked one, by the marks that were renamed."""
    folder, tries = paths.job_folder(job.id), job.tries
    while os.path.lexists(folder / f"{LOCK_FILE}.{tries + 1}"):
        tries += 1
    return tries
