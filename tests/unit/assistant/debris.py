"""Make debris on the real file system, and record what it was."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from gpudeck.assistant.housekeeping import find_debris
from gpudeck.assistant.housekeeping.findings import Finding, ScanMonitor
from gpudeck.assistant.housekeeping.scope import Cache, Scope
from gpudeck.scheduler.protocol.errors import NotFound
from gpudeck.scheduler.protocol.jobs import Job

DAY = 86400.0
DAYS = {
    "cache": 30.0,
    "log": 30.0,
    "artefacts": 90.0,
    "core": 3.0,
    "duplicate": 7.0,
    "memory": 1.0,
    "process": 0.0,
}


class World(NamedTuple):
    """Hold a folder for a test, and the scope of its scans."""

    root: Path
    scope: Scope

    @property
    def cache(self) -> Path:
        return self.scope.caches[0].folder

    @property
    def models(self) -> Path:
        return self.scope.folders[0]


def world(root: Path, **others: object) -> World:
    for name in ("cache", "jobs", "models"):
        (root / name).mkdir(parents=True)
    scope = {
        "caches": (Cache("Triton", root / "cache", 1),),
        "jobs": root / "jobs",
        "folders": (root / "models",),
        "days": DAYS,
        **others,
    }
    return World(root, Scope(**scope))


def no_job(number: int) -> Job:
    raise NotFound(f"there is no job {number}")


def found(world: World, watch: ScanMonitor | None = None, job=no_job) -> tuple[Finding, ...]:
    return find_debris(world.scope, watch or ScanMonitor(), job)


def write(path: Path, content: bytes = b"x" * 5000, days: float = 400) -> Path:
    """Write a file whose last use was this many days ago."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return aged(path, days)


def kernel(
    world: World,
    name: str | bytes,
    days: float = 400,
    files: Iterable[str] = ("a.cubin", "b/c.ptx"),
) -> Path:
    """Write an entry of the kernel cache."""
    folder = world.cache / os.fsdecode(name)
    folder.mkdir()
    for file in files:
        write(folder / file, f"{file} {name!r}".encode() * 500, days)
    return aged(folder, days)


def aged(path: Path, days: float) -> Path:
    """Set the last use of everything to this many days ago."""
    then = time.time() - days * DAY
    for _, inner, names, fd in os.fwalk(path, topdown=False):
        for name in (*inner, *names):
            os.utime(name, (then, then), dir_fd=fd, follow_symlinks=False)
    os.utime(path, (then, then), follow_symlinks=False)
    return path


def contents(*folders: Path, but: tuple[str, ...] = ()) -> dict[str, object]:
    """Return everything below a folder, except `but`: type, content, inode, mode and
    time by name.
    """
    everything: dict[str, object] = {}
    for top in folders:
        for folder, inner, names, fd in os.fwalk(top):
            inner[:] = [name for name in inner if name not in but]
            for name in (*inner, *names):
                info = os.stat(name, dir_fd=fd, follow_symlinks=False)
                where = Path(folder) / name
                plain, link = stat.S_ISREG(info.st_mode), stat.S_ISLNK(info.st_mode)
                what = _read(where) if plain else os.readlink(name, dir_fd=fd) if link else "folder"
                changed = info.st_mtime_ns if stat.S_ISREG(info.st_mode) else 0
                everything[str(where)] = (what, info.st_ino, info.st_mode, changed)
    return everything


def _read(path: Path) -> bytes:
    """Read a file without using it: a file that was read is no debris any more."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOATIME), "rb") as f:
        return f.read()
