"""Kill the real runner at a step: python runner_cut_short.py RUNNER STEP TORTURE_FOLDER."""

from __future__ import annotations

import fcntl
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
CALLS: dict[str, tuple[Any, str, bool]] = {
    "lock": (fcntl, "flock", True),
    "before job": (subprocess, "Popen", False),
    "after job": (subprocess, "Popen", True),
    "before sync": (os, "fsync", False),
    "before rename": (Path, "rename", False),
    "after rename": (Path, "rename", True),
}
"""For each step, the call at which the runner dies, and whether it dies after it."""


def die() -> None:
    fd = os.open(Path(TORTURE) / "struck", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(fd, f"runner {STEP}:{Path.cwd().name}\n".encode())  # it has gone into its job's folder
    os.close(fd)
    os.kill(os.getpid(), signal.SIGKILL)


def deadly(call: Callable[..., Any], after: bool) -> Callable[..., Any]:
    def dies(*args: Any, **more: Any) -> Any:
        if after:
            call(*args, **more)
        die()

    return dies


if STEP == "gate":
    os.chdir(json.loads(sys.stdin.buffer.readline())["folder"])
    die()
owner, name, after = CALLS[STEP]
setattr(owner, name, deadly(getattr(owner, name), after))
sys.argv = [RUNNER]
runpy.run_path(RUNNER, run_name="__main__")
