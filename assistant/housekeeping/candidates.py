"""One walk through the folders that the user named, for all that look for single files there."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from assistant.housekeeping.bins import is_bin
from assistant.housekeeping.find import Kept
from assistant.housekeeping.tree import DEEPEST, folder_in, opened
from assistant.housekeeping.watch import Watch


class Candidate(NamedTuple):
    path: Path
    root: Path
    info: os.stat_result


def look_through(root: Path, spared: Path | None, watch: Watch) -> Iterator[Candidate]:
    """All files and links in a folder, however deep, but for other file systems, trash folders and what is spared."""
    try:
        with opened(root) as fd:
            yield from _Search(root, os.fstat(fd).st_dev, spared, watch).below(
                fd, ".", root, DEEPEST
            )
    except OSError as e:
        watch.cannot(root, e)


@dataclass(frozen=True)
class _Search:
    root: Path
    device: int
    spared: Path | None
    watch: Watch

    def below(self, above: int, name: str, folder: Path, depth: int) -> Iterator[Candidate]:
        if folder == self.spared or self.watch.over(folder):
            return
        try:
            if not depth:
                raise Kept(f"more than {DEEPEST} folders one in another")
            with folder_in(above, name) as fd:
                for inner, info in _entries(fd):
                    if stat.S_ISREG(info.st_mode) or stat.S_ISLNK(info.st_mode):
                        yield Candidate(folder / inner, self.root, info)
                    elif (
                        stat.S_ISDIR(info.st_mode)
                        and info.st_dev == self.device
                        and not is_bin(Path(inner))
                    ):
                        yield from self.below(fd, inner, folder / inner, depth - 1)
        except (Kept, OSError) as e:
            self.watch.cannot(folder, e)


def directly_in(root: Path, watch: Watch) -> Iterator[Candidate]:
    """The files of a folder, without those in its folders."""
    try:
        with opened(root) as above, folder_in(above, ".") as fd:
            for name, info in _entries(fd):
                if watch.over(root):
                    return
                if stat.S_ISREG(info.st_mode):
                    yield Candidate(root / name, root, info)
    except OSError as e:
        watch.cannot(root, e)


def _entries(fd: int) -> Iterator[tuple[str, os.stat_result]]:
    """By name; without those that go meanwhile."""
    with os.scandir(fd) as entries:
        names = sorted(entry.name for entry in entries)
    for name in names:
        try:
            yield name, os.stat(name, dir_fd=fd, follow_symlinks=False)
        except FileNotFoundError:
            continue
