"""Check the folders of jobs, and restore permissions that keep the daemon from reading them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from gpudeck.scheduler.protocol import paths

NAMED = 5
"""Folders that a message names."""


class FolderProblem(NamedTuple):
    """Describe a folder that cannot be read."""

    folder: Path
    problem: str
    permissions: bool
    """True where its owner may read it after a change of its permissions."""


def problems() -> list[FolderProblem]:
    """Return the folders that cannot be read: that of all jobs, or those of single jobs."""
    jobs = paths.home() / "jobs"
    try:
        with os.scandir(jobs) as entries:
            folders = sorted(Path(entry.path) for entry in entries if entry.name.isdigit())
    except FileNotFoundError:
        return []
    except OSError as e:
        return [_problem(jobs, e)]
    return list(_unreadable(folders))


def restore(found: list[FolderProblem]) -> list[FolderProblem]:
    """Give the owner back the permissions of these folders, and return those that stay unreadable.

    Folders behind one that could not be read are checked and restored, too.
    """
    left = []
    for problem in found:
        try:
            if problem.permissions:
                problem.folder.chmod(paths.PRIVATE_DIR)
        except OSError:
            left.append(problem)
    again = problems()
    if not again or again == found:
        return again
    return left or restore(again)


def described(found: list[FolderProblem]) -> str:
    """Return the problems as one text."""
    text = "; ".join(f"{p.folder} cannot be read: {p.problem}" for p in found[:NAMED])
    return text + (f"; and {len(found) - NAMED} more" if len(found) > NAMED else "")


def _unreadable(folders: list[Path]) -> Iterator[FolderProblem]:
    for folder in folders:
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue  # it was removed meanwhile
        except OSError as e:
            yield _problem(folder, e)


def _problem(folder: Path, error: OSError) -> FolderProblem:
    permissions = False
    if isinstance(error, PermissionError):
        try:
            found = folder.lstat()
            permissions = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
        except OSError:
            pass  # the folder above it is closed
    return FolderProblem(folder, error.strerror or str(error), permissions)
