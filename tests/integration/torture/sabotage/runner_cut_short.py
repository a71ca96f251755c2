"""Kill the real runner at a step: python runner_cut_short.py RUNNER STEP TORTURE_FOLDER."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

RUNNER, STEP, TORTURE = sys.argv[1:4]
CALLS: dict[str, tuple[Any, str, int, bool]] = {
    "lock": (fcntl, "flock", 1, True),
    "before ticket": (Path, "rename", 1, False),
    "after ticket": (Path, "rename", 1, True),
    "before job": (subprocess, "Popen", 1, False),
    "after job": (subprocess, "Popen", 1, True),
    "before sync": (os, "fsync", 4, False),
    "before rename": (Path, "rename", 2, False),
    "after rename": (Path, "rename", 2, True),
}
"""For each step, the call at which the runner dies: which of its calls, and whether after it.

It takes its ticket and syncs that, the folder of the tickets and its own mark, before it runs the
job. Only then it writes the record.
"""


def die() -> None:
    fd = os.open(Path(TORTURE) / "struck", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(fd, f"runner {STEP}:{Path.cwd().name}\n".encode())  # it has gone into its job's folder
    os.close(fd)
    os.kill(os.getpid(), signal.SIGKILL)


def deadly(call: Callable[..., Any], which: int, after: bool) -> Callable[..., Any]:
    calls = itertools.count(1)

    def dies(*args: Any, **more: Any) -> Any:
        if next(calls) != which:
            return call(*args, **more)
        if after:
            call(*args, **more)
        die()

    return dies


if STEP == "gate":
    os.chdir(json.loads(sys.stdin.buffer.readline())["folder"])
    die()
owner, name, which, after = CALLS[STEP]
setattr(owner, name, deadly(getattr(owner, name), which, after))
sys.argv = [RUNNER]
runpy.run_path(RUNNER, run_name="__main__")
