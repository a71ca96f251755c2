"""Put the queue and the settings of a backup back."""

from __future__ import annotations

import tarfile
from argparse import ArgumentParser, Namespace
from pathlib import Path

from gpudeck.app.cli.output import confirm, print_result, require_terminal
from gpudeck.app.cli.system.backup import STORE, settings_files
from gpudeck.scheduler.background.instance import hold_lock
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.errors import UserError

_IN_USE = "the daemon is running and uses the store. Stop it first: gpudeck daemon stop"

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
        require_terminal("Nothing was restored.")
        if not confirm("Replace the queue and the settings by those of the backup?"):
            return 1
    with hold_lock(paths.daemon_lock(), _IN_USE, _PATIENCE_S):
        members = _members(Path(args.file))
        copy = paths.ensure(paths.home()) / f"{STORE}.unpacked"
        try:
            paths.replace_file(copy, members[STORE])
            kept = put_back(copy, paths.store_file())
            for file in settings_files():
                if file.name in members:
                    _replace(file, members[file.name])
        except OSError as e:
            raise UserError(f"the backup cannot be restored: {e.strerror}") from e
        finally:
            copy.unlink(missing_ok=True)
    lines = [] if kept is None else [f"The store of before is kept: {kept}"]
    lines.append(
        "The queue is paused, as jobs that waited in the backup may have run since. Cancel these "
        "(gpudeck jobs --active), then: gpudeck resume"
    )
    print_result(args, {"kept": None if kept is None else str(kept)}, *lines)
    return 0


def _members(file: Path) -> dict[str, bytes]:
    """Return the files of a backup by their names; others than ours are not read."""
    wanted = {STORE, *(kept.name for kept in settings_files())}
    try:
        with tarfile.open(file, "r:gz") as archive:
            found = {m.name: archive.extractfile(m) for m in archive if m.isfile()}
            members = {name: f.read() for name, f in found.items() if f and name in wanted}
    except (OSError, tarfile.TarError, EOFError) as e:
        raise UserError(f"cannot read {file}: {e}") from e
    if STORE not in members:
        raise UserError(f"{file} is no file that gpudeck backup wrote")
    return members


def _replace(file: Path, data: bytes) -> None:
    """Replace a file and keep the present one beside it. Raises OSError."""
    if file.exists():
        paths.replace_file(file.with_suffix(".before-restore"), file.read_bytes())
    paths.replace_file(file, data)
