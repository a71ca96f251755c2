"""Core dumps: what is named as one and is one by its content."""

from __future__ import annotations

import re
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from assistant.housekeeping.candidates import Candidate
from assistant.housekeeping.find import Find, Kept, encoded
from assistant.housekeeping.grounds import Grounds
from assistant.housekeeping.tree import measured
from assistant.housekeeping.watch import Watch
from scheduler.protocol import paths

_NAME = re.compile(r"(?:vg)?core(?:[._-].*)?|.*\.core(?:\.\d+)?|.*\.nvcudmp", re.DOTALL)
"""core(5), systemd's and others' patterns, Valgrind's; CUDA's end with .nvcudmp."""
_ELF = b"\x7fELF"
_BIG = b"\x02"
_CORE, _AT = 4, 16
"""e_type of a core dump, and where it stands (elf(5))."""


def find(grounds: Grounds, files: Iterable[Candidate], watch: Watch) -> Iterator[Find]:
    oldest, now = grounds.age_of("core"), time.time()
    if oldest is None:
        return
    for path, root, info in files:
        if (
            not stat.S_ISREG(info.st_mode)
            or now - info.st_mtime < oldest
            or not _NAME.fullmatch(path.name)
        ):
            continue
        try:
            if not _is_core(path):
                continue
            found = measured(path)
        except (Kept, OSError) as e:
            watch.cannot(path, e)
            continue
        yield Find(
            "core",
            encoded(path),
            encoded(root),
            found.bytes,
            "left by a program that crashed",
            now - info.st_mtime,
            found.seal,
        )


def _is_core(path: Path) -> bool:
    with paths.open_plain(path) as f:
        head = f.read(_AT + 2)
    kind = int.from_bytes(head[_AT : _AT + 2], "big" if head[5:6] == _BIG else "little")
    return head.startswith(_ELF) and (path.suffix == ".nvcudmp" or kind == _CORE)
