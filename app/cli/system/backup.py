"""Copy the queue and the settings to one file."""

from __future__ import annotations

import os
import tarfile
import tempfile
from argparse import ArgumentParser, Namespace
from pathlib import Path

from gpudeck.app.cli.output import print_result
from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.errors import UserError

STORE = "gpudeck.sqlite"
"""The name of the store in the file."""


def settings_files() -> tuple[Path, ...]:
    """Return the files that are kept besides the store, by their own names."""
    return (paths.settings_file(), paths.destinations_file())


def add_arguments(parser: ArgumentParser) -> None:
    """Add the file to write."""
    parser.add_argument("file", metavar="FILE", help="the file to write, e.g. gpudeck.tar.gz")


def run(args: Namespace) -> None:
    """Write the backup, which only its user can read: it holds commands and addresses."""
    from gpudeck.scheduler.store.backup import back_up

    file = Path(args.file)
    if file.exists():
        raise UserError(
            phrase("{file} exists already: name another file, or delete it", file=str(file))
        )
    try:
        with tempfile.TemporaryDirectory(dir=file.parent, prefix="gpudeck-backup-") as folder:
            jobs = back_up(paths.store_file(), Path(folder) / STORE)
            new = Path(folder) / "new"
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT, paths.PRIVATE_FILE), "wb") as f:
                with tarfile.open(fileobj=f, mode="w:gz") as out:
                    out.add(Path(folder) / STORE, STORE)
                    for kept in settings_files():
                        if kept.exists():
                            out.add(kept, kept.name)
                f.flush()
                os.fsync(f.fileno())
            new.replace(file)
    except OSError as e:
        raise UserError(
            phrase(
                "the backup cannot be written: {error} ({file})",
                error=str(e.strerror),
                file=str(e.filename),
            )
        ) from e
    text = (
        f"{file} holds {jobs} jobs and the settings. Logs, files of jobs, the history and models "
        "are not in it."
    )
    print_result(args, {"file": str(file), "jobs": jobs}, text)
