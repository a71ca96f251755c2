"""Give each attempt a cgroup of its own, where systemd delegated a part of cgroup v2 to the daemon.

Whatever an attempt leaves behind ends with its group: processes that cleared their environment and
left the session, and those of other users, too. No controller is enabled: a group that hands
controllers on may have no processes of its own, and systemd before 254 could not start the daemon
in it again.

Source: cgroups(7) and https://systemd.io/CGROUP_DELEGATION.
"""

from __future__ import annotations

import os
from pathlib import Path

PREFIX = "gpudeck-"
MARKS = ("user.delegate", "trusted.delegate")
"""Attributes by which systemd marks a group that it delegated."""


def delegated() -> Path | None:
    """Return the cgroup of this process, where it was delegated; None otherwise."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        path = next((line[3:] for line in lines if line.startswith("0::")), "/")
        mount = _mount()
    except OSError:
        return None
    if mount is None or path == "/":
        return None
    group = mount / path.lstrip("/")
    return group if _is_marked(group) and os.access(group, os.W_OK) else None


def make(base: Path | None, attempt: str) -> Path | None:
    """Return a new group for the attempt; None where there can be none."""
    if base is None:
        return None
    group = base / f"{PREFIX}{attempt}"
    try:
        group.mkdir()
    except OSError:
        return None  # a limit of groups was reached: the job runs without one
    return group if (group / "cgroup.kill").exists() else None


def kill(base: Path | None, attempt: str) -> None:
    """Kill whatever is left of the attempt."""
    if base is not None:
        try:
            (base / f"{PREFIX}{attempt}" / "cgroup.kill").write_text("1")
        except OSError:
            pass  # there is none


def remove(base: Path | None, attempt: str) -> None:
    """Remove the group of an attempt that is over."""
    if base is not None:
        try:
            (base / f"{PREFIX}{attempt}").rmdir()
        except OSError:
            pass  # there is none, or its last process is just ending


def _is_marked(group: Path) -> bool:
    for name in MARKS:
        try:
            if os.getxattr(group, name) == b"1":
                return True
        except OSError:
            continue
    return False


def _mount() -> Path | None:
    """Return where cgroup v2 is mounted. Raises OSError."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, rest = line.partition(" - ")
        if rest.split()[0] == "cgroup2":
            return Path(fields.split()[4])
    return None
