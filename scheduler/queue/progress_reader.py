"""Follow the logs of running jobs for the progress they report.

Output is foreign data: any bytes, any length.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from gpudeck.scheduler.attempts import Unreadable, folder_problem, log_file, running
from gpudeck.scheduler.protocol import log_file as logs
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.jobs import Job, Progress, Running
from gpudeck.scheduler.protocol.progress import MAX_LINE, parse, parse_bar, printable, unescaped
from gpudeck.scheduler.protocol.wait_reasons import FolderUnreadable
from gpudeck.scheduler.queue.job_index import JobIndex
from gpudeck.scheduler.queue.transitions import with_folder, with_progress

_LINE_ENDS = re.compile(rb"[\r\n]")
"""A bar that is redrawn ends its line with a carriage return."""
CHUNK = 2**18
"""Bytes read at a time. Of a job that prints more between two reads, older lines are skipped."""


class ProgressReader:
    """Read what was added to a log since the last read."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._offset = 0
        self._rest = b""
        self._uses_protocol = False
        """True once the job used the protocol, so that its bars are for people alone."""
        self.unreadable: Unreadable | None = None
        """Why the last read failed; None where it did not, or there is no output yet."""

    def read(self, now: float) -> list[Progress]:
        """Return what the job reported since the last read, oldest first."""
        try:
            with paths.open_plain(self._file) as f:
                size = f.seek(0, 2)
                if size < self._offset:  # somebody emptied it
                    self._offset, self._rest = 0, b""
                if size - self._offset > CHUNK:
                    self._offset, self._rest = size - CHUNK, b""
                _, data, self._offset = logs.read(f, self._offset, CHUNK)
                self.unreadable = None
        except OSError as e:
            self.unreadable = folder_problem(e)
            return []
        *lines, self._rest = _LINE_ENDS.split(self._rest + data)
        self._rest = self._rest[-MAX_LINE - 1 :]
        reports = [p for line in lines if (p := parse(line, now)) is not None]
        self._uses_protocol = self._uses_protocol or bool(reports)
        if self._uses_protocol:
            return reports
        return [p for line in lines if (p := parse_bar(line, now)) is not None]


class ProgressFollower:
    """Follow the logs of all running jobs."""

    def __init__(self, index: JobIndex) -> None:
        self._index = index
        self._readers: dict[int, ProgressReader] = {}

    def follow(self, jobs: Iterable[Job]) -> None:
        """Follow the logs of these jobs until they end."""
        self._readers.update((job.id, ProgressReader(log_file(job))) for job in jobs)

    def read(self, now: float) -> dict[int, list[Progress]]:
        """Return what the running jobs reported since the last read, by job."""
        found: dict[int, list[Progress]] = {}
        for job_id in tuple(self._readers):
            job = self._index.running.get(job_id)
            if job is None or not isinstance(job.state, Running):
                del self._readers[job_id]
                continue
            reader = self._readers[job_id]
            if reports := reader.read(now):
                found[job_id] = reports
                # for display: read again from the log after a crash, so it need not be stored
                job = with_progress(job, job.state, reports[-1])
                self._index.update(job)
            self._show_folder(job, reader.unreadable, now)
        return found

    def _show_folder(self, job: Job, unreadable: Unreadable | None, now: float) -> None:
        """Show that the job's folder cannot be read, or that it can be again."""
        state = running(job)
        if unreadable is None and state.unreadable is not None:
            self._index.update(with_folder(job, state, None))
        elif unreadable is not None and state.unreadable is None:
            self._index.update(with_folder(job, state, FolderUnreadable(now, unreadable.why)))


def last_text(file: Path, size: int) -> str:
    """Return the last `size` bytes of a log; an empty text where there is none."""
    return _tail(file, size).decode(errors="replace")


def last_line(file: Path) -> str:
    """Return the last line that is neither blank nor progress, cleaned for display.

    An empty text where there is none.
    """
    for line in reversed(_LINE_ENDS.split(_tail(file, 2 * MAX_LINE))):
        text = printable(unescaped(line.decode(errors="replace")).strip())
        if text.strip() and parse(line, 0.0) is None and parse_bar(line, 0.0) is None:
            return text[:200]
    return ""


def _tail(file: Path, size: int) -> bytes:
    try:
        with paths.open_plain(file) as f:
            return logs.read(f, -size, size).data
    except OSError:
        return b""
