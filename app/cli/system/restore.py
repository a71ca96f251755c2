"""Put the queue and the settings of a backup back."""

from __future__ import annotations

import os
import shutil
import tarfile
import zlib
from argparse import ArgumentParser, Namespace
from pathlib import Path

from gpudeck.app.cli.output import confirm, print_result, require_terminal
from gpudeck.app.cli.system.backup import STORE, settings_files
from gpudeck.language.text import Bytes, Message, phrase
from gpudeck.scheduler.background.instance import hold_lock
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.errors import UserError

_IN_USE = phrase("the daemon is running and uses the store. Stop it first: gpudeck daemon stop")

MOST_SETTINGS = 2**24
"""Bytes of a file of settings."""
SPARED = 2**28
"""Bytes of the disk that stay free."""
_PATIENCE_S = 5.0
"""Seconds that a daemon which was just stopped gets to end."""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the file to read."""
    parser.add_argument("file", metavar="FILE", help="a file that gpudeck backup wrote")
    parser.add_argument("--yes", action="store_true", help="do not ask")


def run(args: Namespace) -> int:
    """Replace the store and the settings; the present ones are kept beside them."""
    from gpudeck.scheduler.store.backup import put_back

    if not args.yes:
        require_terminal(phrase("Nothing was restored."))
        if not confirm("Replace the queue and the settings by those of the backup?"):
            return 1
    with hold_lock(paths.daemon_lock(), _IN_USE, _PATIENCE_S):
        copy = paths.ensure(paths.home()) / f"{STORE}.unpacked"
        try:
            members, left_out = _unpack(Path(args.file), copy)
            kept = put_back(copy, paths.store_file())
            for file in settings_files():
                if file.name in members:
                    _replace(file, members[file.name])
        except OSError as e:
            raise UserError(
                phrase("the backup cannot be restored: {error}", error=str(e.strerror))
            ) from e
        finally:
            copy.unlink(missing_ok=True)
    lines: list[Message] = []
    if kept is not None:
        lines.append(phrase("The store of before is kept: {file}", file=str(kept)))
    lines += [
        phrase(
            "The file {name} was not restored and stays as it is here: in the backup it is larger "
            "than {size}, or no regular file",
            name=name,
            size=Bytes(MOST_SETTINGS),
        )
        for name in left_out
    ]
    lines.append(
        phrase(
            "The queue is paused, as jobs that waited in the backup may have run since. Cancel "
            "these ({list}), then: {resume}",
            list="gpudeck jobs --active",
            resume="gpudeck resume",
        )
    )
    value = {"kept": None if kept is None else str(kept), "left_out": left_out}
    print_result(args, value, *map(str, lines))
    return 0


def _unpack(file: Path, copy: Path) -> tuple[dict[str, bytes], list[str]]:
    """Write the store of a backup to `copy`, and return its settings by the names of their files.

    Others than our files are not read, and none is larger than it may be: the names of settings
    that are left out for that come second.
    """
    names = {kept.name for kept in settings_files()}
    settings: dict[str, bytes] = {}
    left_out: list[str] = []
    has_store = False
    try:
        with tarfile.open(file, "r:gz") as archive:
            for member in archive:
                source = archive.extractfile(member) if member.isfile() else None
                if member.name in names and (source is None or member.size > MOST_SETTINGS):
                    left_out.append(member.name)
                elif source is None:
                    continue
                elif member.name == STORE:
                    _check_room(member.size)
                    has_store = True
                    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
                    with os.fdopen(os.open(copy, flags, paths.PRIVATE_FILE), "wb") as out:
                        shutil.copyfileobj(source, out)
                elif member.name in names:
                    settings[member.name] = source.read()
    except (OSError, tarfile.TarError, EOFError, zlib.error) as e:
        raise UserError(phrase("cannot read {file}: {error}", file=str(file), error=str(e))) from e
    if not has_store:
        raise UserError(phrase("{file} is no file that gpudeck backup wrote", file=str(file)))
    return settings, left_out


def _check_room(size: int) -> None:
    """Raise UserError where a store of so many bytes would fill the disk."""
    if size > shutil.disk_usage(paths.home()).free - SPARED:
        raise UserError(
            phrase("the backup needs {size} of disk, and not so much is free", size=Bytes(size))
        )


def _replace(file: Path, data: bytes) -> None:
    """Replace a file and keep the present one beside it. Raises OSError."""
    if file.exists():
        paths.replace_file(file.with_suffix(".before-restore"), file.read_bytes())
    paths.replace_file(file, data)
