"""Kernels that were compiled and have not been used for long: they are compiled again where somebody needs them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from assistant.housekeeping.bins import is_bin
from assistant.housekeeping.find import Find, Kept, encoded
from assistant.housekeeping.grounds import Cache, Grounds
from assistant.housekeeping.tree import measured
from assistant.housekeeping.watch import Watch


def find(grounds: Grounds, watch: Watch) -> Iterator[Find]:
    """One find for each piece of a cache, such as one kernel of Triton's."""
    oldest, now = grounds.age_of("cache"), time.time()
    if oldest is None:
        return
    for cache in grounds.caches:
        for path in _pieces(cache, watch):
            if watch.over(path):
                return
            try:
                found = measured(path)
            except FileNotFoundError:
                continue
            except (Kept, OSError) as e:
                watch.cannot(path, e)
                continue
            if now - found.used >= oldest:
                reason = f"compiled for {cache.program}; it is compiled again where it is needed"
                yield Find(
                    "cache",
                    encoded(path),
                    encoded(cache.root),
                    found.bytes,
                    reason,
                    now - found.used,
                    found.seal,
                )


def _pieces(cache: Cache, watch: Watch) -> list[Path]:
    found = [cache.folder]
    for _ in range(cache.depth):
        found = [path for folder in found for path in _inside(folder, watch)]
    return found


def _inside(folder: Path, watch: Watch) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return sorted(
                folder / entry.name
                for entry in entries
                if entry.is_dir(follow_symlinks=False) and not is_bin(Path(entry.name))
            )
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as e:
        watch.cannot(folder, e)
        return []
