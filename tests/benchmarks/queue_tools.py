"""Run GPU Deck and its peers alike: start a queue, submit a script, kill and restart its daemon.

The peers are gflow (`pip install runqd`, which needs tmux), task-spooler and Slurm (`apt install
task-spooler slurm-wlm`). Each runs in a folder of its own, with its own socket or port.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from gpudeck.version import VERSION

START_S = 20.0
_HOMES = (
    *("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"),
    "TMUX_TMPDIR",
)
_SLURM_CONF = """
ClusterName=one
SlurmctldHost={host}
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
NodeName={host} CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
"""


class QueueTool:
    """A queue that is used by its command line."""

    name = ""
    program = ""
    """A program in the PATH without which it is not installed."""
    version = ""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.env: Mapping[str, str] = dict(os.environ)

    def start(self) -> None:
        """Start the daemon, for the first time or after it was killed."""

    def submit(self, script: Path) -> bool:
        """Submit a script, and return whether that was acknowledged."""
        raise NotImplementedError

    def daemons(self) -> list[int]:
        """Return the processes that hold the queue."""
        raise NotImplementedError

    def stop(self) -> None:
        """End the daemon and all jobs."""

    def kill(self) -> None:
        """Kill the daemon, as a crash does."""
        for pid in self.daemons():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _run(self, *words: str | Path) -> str | None:
        """Return what a command prints; None if it failed."""
        done = subprocess.run(
            list(map(str, words)), env=self.env, capture_output=True, text=True, check=False
        )
        return None if done.returncode else done.stdout + done.stderr

    def _processes(self, word: str) -> list[int]:
        """Return the processes of this folder that run the program `word`, by itself or by another
        one that runs it, as gflow does.
        """
        return [
            pid
            for pid in (int(e.name) for e in Path("/proc").iterdir() if e.name.isdigit())
            if any(
                name.rpartition(b"/")[2] == word.encode()
                for name in _read(pid, "cmdline").split(b"\0")[:3]
            )
            and os.fsencode(self.folder) in _read(pid, "environ") + _read(pid, "cmdline")
        ]


class GpuDeck(QueueTool):
    """GPU Deck itself."""

    name, program, version = "GPU Deck", sys.executable, VERSION

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.env = {**os.environ, "GPUDECK_HOME": str(folder / "home")}

    def start(self) -> None:
        self._run(sys.executable, "-m", "gpudeck", "daemon", "start", "--source", "cpu")

    def submit(self, script: Path) -> bool:
        return self._run(sys.executable, "-m", "gpudeck", "submit", "--", script) is not None

    def daemons(self) -> list[int]:
        return [int((self.folder / "home" / "daemon.lock").read_text())]

    def stop(self) -> None:
        self._run(sys.executable, "-m", "gpudeck", "daemon", "stop")


class Gflow(QueueTool):
    """gflow, whose package is called runqd."""

    name, program = "gflow", "gbatch"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.env = {**os.environ, **dict.fromkeys(_HOMES, str(folder)), "SHELL": "/bin/sh"}
        self.version = (self._run("gbatch", "--version") or "? ?").split()[1]
        self._run("gflowd", "init", "--yes", "--force", "--port", str(_free_ports(1)[0]))

    def start(self) -> None:
        self._run("gflowd", "start")
        end = time.monotonic() + START_S
        while self._run("gqueue") is None and time.monotonic() < end:
            time.sleep(0.2)

    def submit(self, script: Path) -> bool:
        return self._run("gbatch", script) is not None

    def daemons(self) -> list[int]:
        return self._processes("gflowd")

    def stop(self) -> None:
        self._run("gflowd", "stop")
        self._run("tmux", "kill-server")


class TaskSpooler(QueueTool):
    """task-spooler, as Debian packages it."""

    name, program = "task-spooler", "tsp"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.env = {**os.environ, "TS_SOCKET": str(folder / "socket"), "TMPDIR": str(folder)}
        found = re.search(r"v([\d.]+)", self._run("tsp", "-V") or "")
        self.version = found[1] if found else "?"

    def submit(self, script: Path) -> bool:
        return self._run("tsp", script) is not None

    def daemons(self) -> list[int]:
        """Return the server, the one process of them that leads a session: clients run the jobs."""
        return [pid for pid in self._processes("tsp") if os.getsid(pid) == pid]

    def stop(self) -> None:
        self._run("tsp", "-K")


class Slurm(QueueTool):
    """Slurm with this machine as its only node, which needs root."""

    name, program = "Slurm", "slurmctld"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        host, ports = socket.gethostname().partition(".")[0], _free_ports(2)
        for name in ("state", "spool"):
            (folder / name).mkdir()
        conf = folder / "slurm.conf"
        conf.write_text(
            _SLURM_CONF.format(host=host, ports=ports, folder=folder, cpus=os.cpu_count())
        )
        self.env = {**os.environ, "SLURM_CONF": str(conf)}
        self.version = (self._run("sinfo", "--version") or "? ?").split()[1]

    def start(self) -> None:
        if not self._processes("slurmctld"):
            self._run("slurmctld", "-f", self.folder / "slurm.conf")
        if not self._processes("slurmd"):
            self._run("slurmd", "-f", self.folder / "slurm.conf")
        end = time.monotonic() + START_S
        while "idle" not in (self._run("sinfo", "-h", "-o", "%t") or "") and time.monotonic() < end:
            time.sleep(0.2)

    def submit(self, script: Path) -> bool:
        return self._run("sbatch", "--output=/dev/null", "--ntasks=1", script) is not None

    def daemons(self) -> list[int]:
        return self._processes("slurmctld")

    def stop(self) -> None:
        for word in ("slurmctld", "slurmd", "slurmstepd"):
            for pid in self._processes(word):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


TOOLS: tuple[type[QueueTool], ...] = (GpuDeck, Gflow, TaskSpooler, Slurm)


def why_missing(tool: type[QueueTool]) -> str:
    """Return why a tool cannot be measured here; an empty text if it can."""
    if shutil.which(tool.program) is None:
        return f"{tool.program} is not installed"
    return "it needs root" if tool is Slurm and os.getuid() else ""


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in found:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in found]


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""  # it has ended
