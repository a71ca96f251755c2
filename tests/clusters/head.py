"""Run a real Ray head, with a token, that can be frozen, killed and restarted."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from gpudeck.scheduler.executors.agent_protocol import Unreachable
from gpudeck.scheduler.executors.ray import Ray
from tests.support import command_of, eventually, lives, send

ADDRESS = "http://127.0.0.1:8265"
START_S = 180.0
TRIES = 3


def ray_command() -> str | None:
    """Return the `ray` that GPUDECK_RAY names, or that of this environment."""
    beside = Path(sys.executable).parent / "ray"
    return os.environ.get("GPUDECK_RAY") or (
        str(beside) if beside.exists() else shutil.which("ray")
    )


def environment_of(pid: int) -> bytes:
    """Return the environment of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


class Head:
    """Run one Ray head."""

    def __init__(self, folder: Path) -> None:
        self.token_file = folder / "token"
        self.token_file.touch(mode=0o600)
        self.token_file.write_text(secrets.token_hex(32))
        self._output = folder / "output"
        self._temp = tempfile.mkdtemp(prefix="gd-ray-")  # a short path, as sockets lie in it
        self._mark = f"GPUDECK_TEST_HEAD={self._temp}"
        self.cluster = Ray(ADDRESS, str(self.token_file))
        """The cluster, without GPU Deck's daemon."""

    def start(self) -> None:
        """Start the head, several times if it misses its own deadlines on a busy machine."""
        for _ in range(TRIES):
            if self._start():
                eventually(self.answers, START_S)
                return
            self.kill()
        raise AssertionError(self._output.read_text())

    def _start(self) -> bool:
        """Run `ray start`, and return whether it succeeded in time."""
        name, value = self._mark.split("=")
        env = {
            **os.environ,
            name: value,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": self.token_file.read_text(),
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        command = ray_command()
        assert command is not None
        with self._output.open("wb") as out:  # no pipe, which its children would hold open
            started = subprocess.Popen(
                [
                    command, "start", "--head", "--num-cpus=4", "--num-gpus=1", "--port=6399",
                    "--node-ip-address=127.0.0.1", "--dashboard-host=127.0.0.1",
                    "--dashboard-port=8265", f"--temp-dir={self._temp}",
                ],
                env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
            )  # fmt: skip
            try:
                return started.wait(START_S) == 0
            except subprocess.TimeoutExpired:
                started.kill()
                started.wait()
                return False

    def answers(self) -> bool:
        """Return whether the head answers."""
        try:
            return bool(self.cluster.session())
        except Unreachable:
            return False
        finally:
            self.cluster.close()

    def processes(self) -> list[int]:
        """Return the pids of the head, and of what it runs."""
        pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        return [pid for pid in pids if self._mark.encode() in environment_of(pid).split(b"\0")]

    def freeze(self, frozen: bool) -> None:
        """Stop its dashboard, which then accepts connections and does not answer, or resume it."""
        for pid in self.processes():
            if b"dashboard" in command_of(pid) and b"agent" not in command_of(pid):
                send(pid, signal.SIGSTOP if frozen else signal.SIGCONT)

    def kill(self) -> None:
        """Kill the cluster without notice; what it runs may live on."""
        for pid in self.processes():
            if b"\0GPUDECK_LAUNCH=" not in environment_of(pid):
                send(pid, signal.SIGKILL)
        eventually(lambda: not self.answers())

    def remove(self) -> None:
        """Kill the cluster and what it runs, and delete its files."""
        while pids := [pid for pid in self.processes() if lives(pid)]:
            for pid in pids:
                send(pid, signal.SIGKILL)
        shutil.rmtree(self._temp, ignore_errors=True)
