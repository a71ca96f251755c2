"""The folder of a job: what an attempt leaves there wherever it ran, and room for the next one."""

from __future__ import annotations

import errno
import os
import stat
import time
from pathlib import Path

import msgspec

from gpudeck.language.text import phrase
from gpudeck.scheduler.attempts import (
    ARTEFACTS,
    LOG_FILE,
    MAX_RESULT,
    RESULT_FILE,
    Exit,
    FolderError,
    FolderUnusable,
    Unreadable,
    artefacts_folder,
    read_file,
    result_name,
)
from gpudeck.scheduler.executors.exit_writer import EXIT_FILE, LOCK_FILE
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.durable import sync
from gpudeck.scheduler.protocol.errors import MALFORMED
from gpudeck.scheduler.protocol.jobs import Job

PASSABLE = 0o711
"""Others go through a folder, and do not see what is in it."""
ATTEMPT_FILE = "attempt"
"""Names the attempt that a cluster was given."""
_TEMPORARY = frozenset(
    (
        *(errno.EIO, errno.ESTALE, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENOMEM),
        *(errno.EMFILE, errno.ENFILE, errno.ETIMEDOUT, errno.ENODEV, errno.ENOTCONN),
    )
)
"""Errors of a disk or of this machine, which are no property of the job's folder."""


def next_folder(job: Job) -> Path:
    """Return the folder of the job, ready for its next attempt.

    Raises:
        FolderError: The job's own folder is in the way, and will be.
        FolderUnusable: The folder cannot be used now, as on a disk that is full or gone.
    """
    folder = paths.job_folder(job.id)
    try:
        paths.ensure(folder.parent.parent)
        folder.parent.mkdir(mode=paths.PRIVATE_DIR, exist_ok=True)
    except OSError as e:
        raise _unusable(folder.parent, e) from e
    problem = (
        phrase("the files of the last attempt in {folder} cannot be renamed", folder=str(folder))
        if job.tries
        else phrase(
            "the folder {folder} holds an older job of this number, and cannot be moved",
            folder=str(folder),
        )
    )
    try:
        (_move_records if job.tries else _move_folder)(job, folder)
        problem = phrase("the folder {folder} cannot be used", folder=str(folder))
        for place in (folder, folder / ARTEFACTS):
            place.mkdir(mode=paths.PRIVATE_DIR, exist_ok=True)
        if job.spec.user is not None:
            _share(folder, job.spec.user)
        _check_private(folder, os.getuid())
        for place in {folder / ARTEFACTS, artefacts_folder(job)}:
            _check_private(place, os.getuid() if (u := job.spec.user) is None else u)
    except OSError as e:
        if e.errno in _TEMPORARY or not os.access(folder.parent, os.R_OK | os.W_OK | os.X_OK):
            raise _unusable(folder, e) from e
        raise FolderError(
            phrase("{problem}: {error}", problem=problem, error=str(e.strerror))
        ) from e
    return folder


def _unusable(folder: Path, error: OSError) -> FolderUnusable:
    return FolderUnusable(
        phrase("{error} ({file})", error=str(error.strerror), file=str(error.filename or folder))
    )


def _share(folder: Path, user: int) -> None:
    """Let a user through the folder of a shared daemon's job, to the artefacts, which are theirs.

    The folder itself stays ours: nothing that the user could replace is opened by us. Raises
    OSError.
    """
    for place in (folder.parent, folder):
        place.chmod(PASSABLE)
    artefacts = os.open(folder / ARTEFACTS, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        os.fchown(artefacts, user, -1)
    finally:
        os.close(artefacts)


def _check_private(folder: Path, owner: int) -> None:
    """Raise FolderError where others may write to a folder of the job, or it is no folder."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != owner:
        raise FolderError(
            phrase(
                "{folder} is not a folder of yours any more, so the job cannot start",
                folder=str(folder),
            )
        )
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise FolderError(
            phrase(
                "other users may write to {folder}, so no further attempt is "
                "started. Submit the job again without changing the permissions of "
                "that folder",
                folder=str(folder),
            )
        )


def _move_folder(job: Job, folder: Path) -> None:
    """Move aside what lies in the job's folder before its first attempt. Raises OSError.

    An attempt that is prepared has never run: what lies there belongs to another job of this
    number, from a store that was deleted.
    """
    for left in (folder / ARTEFACTS, folder):
        try:
            left.rmdir()  # of an attempt that got no further than this
        except OSError:
            pass  # there is none, or it holds something
    if _exists(folder):
        folder.rename(folder.with_name(f"{job.id}.old-{time.time_ns()}"))


def _move_records(job: Job, folder: Path) -> None:
    """Rename the records of the last attempt after its number. Raises OSError.

    Its artefacts stay.
    """
    for name in (LOG_FILE, EXIT_FILE, result_name(job), LOCK_FILE):
        if _exists(folder / name):
            (folder / name).rename(folder / f"{name}.{job.tries}")


def _exists(path: Path) -> bool:
    """Return whether there is anything at the path. Raises OSError where that is unknown."""
    try:
        path.lstat()
    except FileNotFoundError:
        return False
    return True


def exit_record(job_id: int, attempt: str, name: str = EXIT_FILE) -> Exit | Unreadable | None:
    """Return the record of how this attempt ended; None where its runner has written none.

    Args:
        name: the file's name, where an earlier attempt's record was renamed.
    """
    data = read_file(job_id, name, MAX_RESULT)
    if not isinstance(data, bytes):
        return data
    try:
        found = msgspec.json.decode(data, type=Exit)
    except MALFORMED:
        return None
    return found if found.attempt == attempt else None


def write_records(folder: Path, record: Exit, result: str) -> None:
    """Write the exit record after the result it goes with, each synced. Raises OSError."""
    if result:
        paths.replace_file(folder / RESULT_FILE, result.encode())
    paths.replace_file(folder / EXIT_FILE, msgspec.json.encode(record))
    sync(folder)
