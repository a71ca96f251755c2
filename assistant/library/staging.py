"""Replace a model's folder as a whole: a new revision is collected beside it, and then swapped in.

What was collected stays if the process ends, so that the next one continues. The folder holds one
whole revision at every moment.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection
from pathlib import Path

from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.durable import sync
from gpudeck.scheduler.protocol.renames import UNABLE, exchange


def beside(folder: Path) -> Path:
    """Return the folder in which another revision is collected."""
    return folder.with_name(f".{folder.name}.new")


def begin(folder: Path, keep: Collection[str]) -> Path:
    """Prepare that folder with the files to `keep`, and repair an interrupted `replace`."""
    new, old = beside(folder), _aside(folder)
    if old.exists() and not folder.exists():
        old.rename(folder)
    shutil.rmtree(old, ignore_errors=True)
    paths.ensure(new)
    for entry in new.iterdir():
        if entry.name not in keep:
            remove(entry)
    return new


def remove(entry: Path) -> None:
    """Delete a file, a link or a whole folder. Raises OSError."""
    if entry.is_dir() and not entry.is_symlink():
        shutil.rmtree(entry)
    else:
        entry.unlink(missing_ok=True)


def take_over(entry: Path, folder: Path) -> None:
    """Put `entry` into `folder` as well, without a second copy if the file system allows it."""
    to = folder / entry.name
    if entry.is_dir() and not entry.is_symlink():
        shutil.copytree(entry, to, symlinks=True, copy_function=_link)
    else:
        _link(entry, to)


def replace(folder: Path) -> None:
    """Replace the folder by what was collected, and delete the old one.

    The change is on disk when this returns. Raises OSError.
    """
    new, old = beside(folder), _aside(folder)
    sync(new)
    if not folder.exists():
        new.rename(folder)
    else:
        try:
            exchange(new, folder)
            new.rename(old)
        except OSError as e:
            if e.errno not in UNABLE:
                raise
            folder.rename(
                old
            )  # Between these two renames there is no folder; `begin` would put it back.
            new.rename(folder)
    sync(folder.parent)
    shutil.rmtree(old, ignore_errors=True)


def _aside(folder: Path) -> Path:
    """Return where the folder is while another takes its place."""
    return folder.with_name(f".{folder.name}.old")


def _link(entry: str | Path, to: str | Path) -> None:
    try:
        os.link(entry, to, follow_symlinks=False)
    except OSError:
        shutil.copy2(entry, to, follow_symlinks=False)
