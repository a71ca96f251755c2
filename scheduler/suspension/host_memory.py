"""The host memory that a suspension needs: the GPU memory of a program moves there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil

_GROUPS = Path("/sys/fs/cgroup")


def find_free_memory(pid: int) -> int:
    """Return the bytes that a process may take: of the machine, without swapping, and within the
    limits of its control groups."""
    return min((psutil.virtual_memory().available, *_find_group_rooms(pid)))


def _find_group_rooms(pid: int) -> Iterator[int]:
    """Yield what each control group of a process leaves, from the innermost outwards."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except OSError:
        return
    name = next((line[3:] for line in lines if line.startswith("0::")), "/")
    folder = _GROUPS / name.strip("/")
    while folder != _GROUPS and folder.is_relative_to(_GROUPS):
        try:
            limit = (folder / "memory.max").read_text().strip()
            used = int((folder / "memory.current").read_text())
        except (OSError, ValueError):
            limit, used = "max", 0
        if limit != "max":
            yield max(int(limit) - used, 0)
        folder = folder.parent
