"""The folder of a job: what an attempt leaves there wherever it ran, and room for the next one."""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec

from scheduler.attempts import LOG_FILE, MAX_RESULT, RESULT_FILE, Exit, FolderError
from scheduler.protocol import paths
from scheduler.protocol.errors import MALFORMED
from scheduler.protocol.jobs import Job

EXIT_FILE = "exit.json"
ATTEMPT_FILE = "attempt"
"""Names the attempt that a cluster was given."""
ARTEFACTS = "artefacts"


def next_folder(job: Job) -> Path:
    """Return the folder of the job, ready for its next attempt. Raises FolderError."""
    folder = paths.job_folder(job.id)
    (_move_records if job.tries else _move_folder)(job, folder)
    paths.ensure(paths.ensure(folder) / ARTEFACTS)
    return folder


def _move_folder(job: Job, folder: Path) -> None:
    """Move aside what lies in the job's folder before its first attempt.

    An attempt that is prepared has never run: what lies there belongs to another job of this
    number, from a store that was deleted.
    """
    for left in (folder / ARTEFACTS, folder):
        try:
            left.rmdir()  # of an attempt that got no further than this
        except OSError:
            pass  # there is none, or it holds something
    try:
        if os.path.lexists(folder):
            folder.rename(folder.with_name(f"{job.id}.old-{time.time_ns()}"))
    except OSError as e:
        raise FolderError(
            f"the folder {folder} holds an older job of this number, and cannot be moved: "
            f"{e.strerror}"
        ) from e


def _move_records(job: Job, folder: Path) -> None:
    """Rename the records of the last attempt after its number; its artefacts stay."""
    try:
        for name in (LOG_FILE, EXIT_FILE, RESULT_FILE):
            if os.path.lexists(folder / name):
                (folder / name).rename(folder / f"{name}.{job.tries}")
    except OSError as e:
        raise FolderError(
            f"the files of the last attempt in {folder} cannot be renamed: {e.strerror}"
        ) from e


def exit_record(job_id: int, attempt: str, name: str = EXIT_FILE) -> Exit | None:
    """Return the record of how this attempt ended; None where its runner has written none.

    Args:
        name: the file's name, where an earlier attempt's record was renamed.
    """
    try:
        with paths.open_plain(paths.job_folder(job_id) / name) as f:
            found = msgspec.json.decode(f.read(MAX_RESULT), type=Exit)
    except (OSError, *MALFORMED):
        return None
    return found if found.attempt == attempt else None


def write_records(folder: Path, record: Exit, result: str) -> None:
    """Write the exit record after the result it goes with, each synced. Raises OSError."""
    if result:
        paths.replace_file(folder / RESULT_FILE, result.encode())
    paths.replace_file(folder / EXIT_FILE, msgspec.json.encode(record))
    paths.sync(folder)
