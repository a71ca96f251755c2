"""Find folders on network file systems, where locks and commits are not what they are on a disk."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

MOUNTS = Path("/proc/self/mountinfo")
NETWORK = frozenset(
    [
        "9p",
        "afs",
        "afs3",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "davfs",
        "gfs",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "orangefs",
        "panfs",
        "pvfs2",
        "smb",
        "smb2",
        "smb3",
        "smbfs",
        "wekafs",
        "fuse.beegfs",
        "fuse.ceph",
        "fuse.davfs2",
        "fuse.gcsfuse",
        "fuse.glusterfs",
        "fuse.juicefs",
        "fuse.moosefs",
        "fuse.rclone",
        "fuse.s3fs",
        "fuse.sshfs",
    ]
)
"""The types of network file systems, as the kernel names them."""


class Mount(NamedTuple):
    """Describe a mounted file system."""

    point: str
    kind: str
    """Its type, as the kernel names it."""


def mounts() -> list[Mount]:
    """Return what is mounted, in that order; nothing where /proc is missing.

    Source:
        proc_pid_mountinfo(5)
    """
    try:
        lines = MOUNTS.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return []
    halves = (line.partition(" - ") for line in lines)
    return [
        Mount(_unescaped(mount.split(" ")[4]), source.split(" ")[0]) for mount, _, source in halves
    ]


def network_type(folder: Path) -> str | None:
    """Return the type of the network file system that holds a folder; None for a local one.

    A folder that does not exist is where its nearest parent is.
    """
    path = os.path.realpath(folder)
    longest, found = "", ""
    for point, kind in mounts():
        inside = path == point or path.startswith(f"{point.rstrip('/')}/")
        if inside and len(point) >= len(longest):  # the last of those at one place is on top
            longest, found = point, kind
    return found if found in NETWORK else None


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), text)
