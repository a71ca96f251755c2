"""Which file systems are mounted where, as /proc/self/mountinfo tells (proc_pid_mountinfo(5))."""

from __future__ import annotations

import os
import re
from pathlib import Path

_OCTAL = re.compile(rb"\\([0-7]{3})")


class Mounts:
    """As they were when this was made."""

    def __init__(self) -> None:
        self.points: dict[int, Path] = {}
        """Where each is, by its number."""
        for line in Path("/proc/self/mountinfo").read_bytes().splitlines():
            fields = line.split(b" ")
            self.points[int(fields[0])] = Path(
                os.fsdecode(_OCTAL.sub(lambda code: bytes([int(code[1], 8)]), fields[4]))
            )
        self._above = {
            folder for point in self.points.values() for folder in (point, *point.parents)
        }

    def hit(self, path: Path) -> bool:
        """Whether something is mounted at this path, or below it."""
        return path in self._above


def number(fd: int) -> int:
    """The mount that an open file was reached through: a bind mount has the device of another, and files cannot be moved between them."""
    for line in Path(f"/proc/self/fdinfo/{fd}").read_text().splitlines():
        if line.startswith("mnt_id:"):
            return int(line.split()[1])
    raise OSError(f"the kernel does not tell the mount of file {fd}")
