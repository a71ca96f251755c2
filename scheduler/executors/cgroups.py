"""Give each attempt a cgroup of its own, where systemd delegated a part of cgroup v2 to the daemon.

Whatever an attempt leaves behind ends with its group: processes that cleared their environment and
left the session, and those of other users, too. The group also limits the memory of the machine and
the CPU time that the attempt may use.

A group that hands controllers on, as limits need it, may have no processes of its own. So limits
can be kept where systemd starts the daemon in a group below the delegated one (DelegateSubgroup, of
systemd 254); an older one could not start the daemon again beside jobs that run.

Source: cgroups(7), the kernel's cgroup-v2.rst, and https://systemd.io/CGROUP_DELEGATION.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from gpudeck.language.text import Listed, Message, phrase
from gpudeck.scheduler.protocol.jobs import Spec
from gpudeck.scheduler.protocol.mounts import mounts

PREFIX = "gpudeck-"
SUBGROUP = "daemon"
"""The group of the daemon, below the one that is delegated (DelegateSubgroup of its unit)."""
MARKS = ("user.delegate", "trusted.delegate")
"""Attributes by which systemd marks a group that it delegated."""
OWN = Path("/proc/self/cgroup")
PERIOD_US = 100_000
"""The period in which the CPU time of a group is limited."""
_CONTROLLERS = ("memory", "cpu")
_HOW = "gpudeck daemon install"


class Delegation(NamedTuple):
    """Describe the part of the cgroups that the daemon may use."""

    base: Path | None
    """The group in which each attempt gets its own; None where none was delegated."""
    problem: Message = ""
    """Why an attempt cannot be limited, in a sentence; empty where it can."""


def find() -> Delegation:
    """Return what was delegated to this process, and enable the controllers that limits need."""
    own = _own_group()
    if own is not None and _is_delegated(own):
        why = phrase(
            "the daemon has no group apart from its jobs. To have systemd 254 or newer start the "
            "daemon so that it can: {command}, and start it again",
            command=_HOW,
        )
        return Delegation(own, why)
    if own is None or own.name != SUBGROUP or not _is_delegated(own.parent):
        why = phrase(
            "the daemon does not run in a delegated cgroup. To have systemd 254 or newer start the "
            "daemon so that it can: {command}",
            command=_HOW,
        )
        return Delegation(None, why)
    missing = [name for name in _CONTROLLERS if not _enable(own.parent, name)]
    why = phrase(
        "systemd did not delegate the cgroup controller {name} to you", name=Listed(tuple(missing))
    )
    return Delegation(own.parent, why if missing else "")


def limits(spec: Spec) -> dict[str, str]:
    """Return what is written into the files of a job's group, by their names."""
    found: dict[str, str] = {}
    if spec.host_memory:
        # without swap, which would only make it slow; and ended as a whole, not one process of it
        found |= {"memory.max": str(spec.host_memory), "memory.swap.max": "0"}
        found["memory.oom.group"] = "1"
    if spec.cpus:
        found["cpu.max"] = f"{max(round(spec.cpus * PERIOD_US), 1000)} {PERIOD_US}"
    return found


def make(base: Path | None, attempt: str, limited: Mapping[str, str]) -> Path | None:
    """Return a new group for the attempt; None where there can be none.

    Raises OSError where it cannot be limited.
    """
    if base is None:
        return None
    group = base / f"{PREFIX}{attempt}"
    try:
        group.mkdir()
    except OSError:
        if limited:
            raise
        return None  # a limit of groups was reached: the job runs without one
    if not (group / "cgroup.kill").exists():
        return None
    for name, value in limited.items():
        if name != "memory.swap.max" or (group / name).exists():  # a kernel without swap
            (group / name).write_text(value)
    return group


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


def _own_group() -> Path | None:
    try:
        lines = OWN.read_text().splitlines()
    except OSError:
        return None
    path = next((line[3:] for line in lines if line.startswith("0::")), "/")
    mount = next((mount.point for mount in mounts() if mount.kind == "cgroup2"), None)
    return None if mount is None or path == "/" else Path(mount) / path.lstrip("/")


def _is_delegated(group: Path) -> bool:
    return os.access(group, os.W_OK) and any(_has_mark(group, name) for name in MARKS)


def _has_mark(group: Path, name: str) -> bool:
    try:
        return os.getxattr(group, name) == b"1"
    except OSError:
        return False


def _enable(group: Path, controller: str) -> bool:
    """Hand a controller on to the groups below, and return whether that worked."""
    file = group / "cgroup.subtree_control"
    try:
        if controller not in file.read_text().split():
            file.write_text(f"+{controller}")
        return controller in file.read_text().split()
    except OSError:
        return False
