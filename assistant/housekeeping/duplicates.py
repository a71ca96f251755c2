"""Find model files that exist twice.

Files of one size are compared by content. Hard links to one file count as one file.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from gpudeck.assistant.housekeeping.findings import (
    Finding,
    ScanMonitor,
    StaysError,
    encoded,
    shown,
    within,
)
from gpudeck.assistant.housekeeping.scope import Scope
from gpudeck.assistant.housekeeping.walk import Candidate, measured
from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol import paths

LEAST = 32 * 2**20
"""Smaller files, in bytes, are ignored."""
_ENDINGS = (".safetensors", ".pth", ".pt", ".ckpt", ".bin", ".gguf", ".onnx")
_BLOCK = 2**20


def find_duplicates(
    scope: Scope, files: Iterable[Candidate], monitor: ScanMonitor
) -> Iterator[Finding]:
    """Yield all copies of a file but one.

    A copy stays if a link points to it or if it is not ours to propose; otherwise the oldest one
    stays.
    """
    oldest, now = scope.age_of("duplicate"), time.time()
    if oldest is None:
        return
    groups, linked = _by_size(scope, files)
    for group in groups:
        staying = {c.path for c in group if _stays(scope, c, linked)}
        if len(staying) == len(group):
            continue
        for same in _alike(group, monitor):
            keeper = min(same, key=lambda c: (c.path not in staying, c.info.st_mtime, c.path))
            for path, root, info in same:
                if path == keeper.path or path in staying or now - info.st_mtime < oldest:
                    continue
                try:
                    found, twin = measured(path), measured(keeper.path)
                except (StaysError, OSError) as e:
                    monitor.note_unreadable(path, e)
                    continue
                reason = phrase("the same as {path}, which stays", path=shown(keeper.path))
                yield Finding(
                    "duplicate",
                    encoded(path),
                    encoded(root),
                    found.bytes,
                    reason,
                    now - found.used,
                    found.seal,
                    encoded(keeper.path),
                    twin.seal,
                )


def _by_size(
    scope: Scope, files: Iterable[Candidate]
) -> tuple[list[list[Candidate]], frozenset[Path]]:
    """Return groups of files of one size, each inode once, and the targets of all links."""
    sizes: dict[int, dict[tuple[int, int], Candidate]] = defaultdict(dict)
    linked = set[Path]()
    for found in files:
        if stat.S_ISLNK(found.info.st_mode):
            linked.add(Path(os.path.realpath(found.path)))
        elif found.info.st_size >= LEAST and (
            found.path.suffix in _ENDINGS or _in_library(scope, found.path)
        ):
            sizes[found.info.st_size].setdefault((found.info.st_dev, found.info.st_ino), found)
    return [list(group.values()) for group in sizes.values() if len(group) > 1], frozenset(linked)


def _stays(scope: Scope, found: Candidate, linked: frozenset[Path]) -> bool:
    """Return True if a file must not be proposed, whatever other copies exist.

    Another hard link would keep its bytes, and a symbolic link to it would break.
    """
    return (
        found.info.st_nlink > 1
        or found.path in linked
        or found.info.st_uid != os.geteuid()
        or _in_library(scope, found.path)
        or (scope.model is not None and scope.model in (found.path, *found.path.parents))
    )


def _in_library(scope: Scope, path: Path) -> bool:
    return scope.library is not None and within(path, scope.library)


def _alike(group: Sequence[Candidate], monitor: ScanMonitor) -> list[list[Candidate]]:
    """Group files of equal content: by the first block, then by all of it."""
    for whole in (False, True):
        found: dict[bytes, list[Candidate]] = defaultdict(list)
        for candidate in group:
            try:
                digest = _digest(candidate.path, whole, monitor)
            except OSError as e:
                monitor.note_unreadable(candidate.path, e)
                continue
            if digest is None:
                return []
            found[digest].append(candidate)
        group = [c for same in found.values() if len(same) > 1 for c in same]
    return [same for same in found.values() if len(same) > 1]


def _digest(path: Path, whole: bool, monitor: ScanMonitor) -> bytes | None:
    """Return the digest of a file, or None if no time is left."""
    digest = hashlib.blake2b(digest_size=32)
    with paths.open_plain(path) as f:
        while block := f.read(_BLOCK):
            digest.update(block)
            if not whole:
                break
            if monitor.must_stop(path):
                return None
    return digest.digest()
