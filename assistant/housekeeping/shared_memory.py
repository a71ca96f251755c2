"""Shared memory that nobody has open any more: what a program that was killed left in /dev/shm."""

from __future__ import annotations

import stat
import time
from collections.abc import Iterator

from assistant.housekeeping.candidates import directly_in
from assistant.housekeeping.find import Find, Kept, encoded
from assistant.housekeeping.grounds import Grounds
from assistant.housekeeping.in_use import Holders, check_unused
from assistant.housekeeping.tree import parent
from assistant.housekeeping.watch import Watch

REASON = "shared memory that no process has open; it is memory until the trash is emptied"


def find(grounds: Grounds, watch: Watch) -> Iterator[Find]:
    """Only single files: a folder was made there by somebody who means to come back."""
    oldest, now = grounds.age_of("memory"), time.time()
    if oldest is None or grounds.memory is None:
        return
    holders = Holders()
    for path, root, info in directly_in(grounds.memory, watch):
        if not stat.S_ISREG(info.st_mode) or now - max(info.st_mtime, info.st_atime) < oldest:
            continue
        try:
            with parent(path) as (folder, name):
                found = check_unused(folder, name, holders=holders)
        except Kept:
            continue  # in use, or of somebody else: nothing worth telling
        except OSError as e:
            watch.cannot(path, e)
            continue
        yield Find(
            "memory",
            encoded(path),
            encoded(root),
            found.bytes,
            REASON,
            now - found.used,
            found.seal,
        )
