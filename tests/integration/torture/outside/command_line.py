"""Run commands of gpudeck for a client, and read what they print."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple

from tests.integration.torture.outside.world import World


class Reply(NamedTuple):
    """Describe how a command ended."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Return the decoded output."""
        return json.loads(self.out)


class CommandLine:
    """Run the commands of one client, one after another, without the power to pass over modes."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._out, self._err = world.folder / f"{name}.out", world.folder / f"{name}.err"
        self._process = subprocess.Popen(
            [
                *without_capabilities(),
                sys.executable,
                "-m",
                "tests.integration.torture.outside.zygote",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **world.env},
        )
        self._running: int | None = None
        self._lock = threading.Lock()

    def __call__(self, *words: str, timeout: float = 90.0) -> Reply:
        """Run a command, and kill it if it has not ended in time."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._world.power:
            self._process.stdin.write(json.dumps([words, str(self._out), str(self._err)]) + "\n")
            self._process.stdin.flush()
            pid = int(self._process.stdout.readline())
        with self._lock:
            self._running = pid
        killer = threading.Timer(timeout, self.kill)
        killer.start()
        status = int(self._process.stdout.readline())
        killer.cancel()
        with self._lock:
            self._running = None
        return Reply(status, _text(self._out), _text(self._err))

    def kill(self) -> bool:
        """Kill the command that runs, and return whether one did."""
        with self._lock:
            if self._running is None:
                return False
            try:
                os.kill(self._running, 9)
            except ProcessLookupError:
                return False
            return True

    def close(self) -> None:
        """End the process that runs the commands."""
        self._process.kill()
        self._process.communicate()


def without_capabilities() -> list[str]:
    """Return the words before a command by which root has no more rights than another user."""
    if os.getuid() or not shutil.which("setpriv"):
        return []
    return ["setpriv", "--inh-caps=-all", "--bounding-set=-all"]


def _text(file: Path) -> str:
    return file.read_text(errors="replace") if file.exists() else ""
