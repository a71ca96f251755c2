"""Run the commands of a page one after the other, as somebody would who follows it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shlex import quote

from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import DaemonGone
from tests.support import state_folder

ROOT = Path(__file__).parents[2]
TIMEOUT_S, JOBS_S = 300.0, 20.0
LASTING = {
    "gpudeck serve tiny-model": "http://127.0.0.1:",
    "gpudeck web": "http://127.0.0.1:",
}
"""Commands that go on until Ctrl+C, and what they have printed once they work."""
WITH_GPUS = ("queue.md", "environment.md")
"""Pages whose jobs hold GPUs: eight, which NVML plays from a recording."""
OLD_STATE = {"upgrade.md": ROOT / "tests" / "integration" / "data" / "state-0.1.tar.gz"}
"""Pages that begin with a state folder of an earlier version."""
_MODEL = """\
import math

import torch
from torch.nn import functional as F


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = 4

    def forward(self, q, k, v):
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = F.softmax(att, dim=-1)
        return att @ v
"""
FILES = {
    "train.py": "print('trained')\n",
    "texts.jsonl": '{"text": "The queue waits for a GPU that is free."}\n' * 600,
    "sweep.py": "import os\n\nprint(os.environ['GPUDECK_ARRAY_INDEX'])\n",
    "src/model.py": _MODEL,
}
"""What the commands of the manual work on, in the folder in which they run."""


ASKING = ("gpudeck inject prove ", "gpudeck inject apply ")
"""Commands that ask a person, who would answer yes, before they run code."""


class Shell:
    """Run commands in a folder of their own, with a state folder of their own."""

    def __init__(self, folder: Path, home: Path, env: dict[str, str]) -> None:
        self._output, self._place = folder / "output", folder / "place"
        self._code, self._began = folder / "code.py", time.time()
        outside = {name: text for name, text in os.environ.items() if not name.startswith("XDG_")}
        self._env = {**outside, **env, "HOME": str(home)}
        self._place.write_text(f"{folder / 'work'}\n")

    def run(self, command: str) -> str:
        """Run one command, and return what went wrong, with what it printed; empty if nothing did.

        The next command runs in the folder to which this one changed.
        """
        if command.startswith(ASKING):
            words, mark, comment = command.partition(" #")
            command = f"{words.rstrip()} --yes{mark}{comment}"
        script = (
            f"cd {quote(self._place.read_text().strip())}\n{command}\n"
            f"status=$?; pwd > {quote(str(self._place))}; exit $status"
        )
        awaited = LASTING.get(command.partition(" #")[0].strip(), "")
        return self._follow(["bash", "-c", script], awaited)

    def run_python(self, code: str) -> str:
        """Run a block of Python code, and return what went wrong."""
        self._code.write_text(code)
        return self._follow([sys.executable, str(self._code)], "")

    def failed_jobs(self) -> list[str]:
        """Return the jobs that the commands submitted and that failed, with their output.

        A job that still waits after a while is right, too: the manual has some that do.
        """
        with suppress(DaemonGone), Client(start=False) as deck:
            end = time.monotonic() + JOBS_S
            while jobs := [job for job in deck.jobs() if job.submitted >= self._began]:
                if not any(job.active for job in jobs) or time.monotonic() > end:
                    break
                time.sleep(0.2)
            return [
                f"job {job.id} {job.spec.argv} failed\n{deck.log(job.id).decode()}"
                for job in jobs
                if job.status in ("failed", "lost")
            ]
        return []

    def _follow(self, argv: list[str], awaited: str) -> str:
        """Wait until the process ends; where a text is awaited, ask it to end after that."""
        with self._output.open("wb") as output:
            process = subprocess.Popen(
                argv, env=self._env, cwd=self._place.read_text().strip(),
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
        end, asked = time.monotonic() + TIMEOUT_S, False
        try:
            while process.poll() is None and time.monotonic() < end:
                if awaited and not asked and awaited in self._printed():
                    os.killpg(process.pid, signal.SIGINT)
                    asked = True
                time.sleep(0.05)
            if process.poll() is None:
                return f"it has not ended after {TIMEOUT_S:.0f} s\n{self._printed()}"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if awaited and not asked:
            return f"it never printed {awaited!r}\n{self._printed()}"
        if process.returncode == 0 or asked:
            return ""
        return f"exit status {process.returncode}\n{self._printed()}"

    def _printed(self) -> str:
        return self._output.read_text(errors="replace")


@contextmanager
def shell_for(page: str) -> Iterator[Shell]:
    """Yield a shell for the commands of a page; whatever they started is ended afterwards."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        home = folder / "home"
        state = home / ".local" / "state" / "gpudeck"
        _write_files(folder / "work", home)
        if archive := OLD_STATE.get(page):
            state.parent.mkdir(parents=True, mode=0o700)
            with tarfile.open(archive) as packed:
                packed.extractall(state.parent, filter="data")
            (state.parent / "state").rename(state)
            state.chmod(0o700)
        env = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        if page in WITH_GPUS:
            told = folder / "nvml.json"
            told.write_text(json.dumps({"gpus": 8}))
            edge = ROOT / "tests" / "integration" / "edge"
            env |= {"PYTHONPATH": f"{edge}:{ROOT}", "RECORDED_NVML": str(told)}
        with state_folder(state):
            yield Shell(folder, home, env)


def _write_files(work: Path, home: Path) -> None:
    for name, text in FILES.items():
        file = work / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    binaries = home / "train" / "bin"  # an environment of somebody's own
    binaries.mkdir(parents=True)
    (binaries / "python").symlink_to(sys.executable)
    (binaries / "activate").write_text('PATH="$HOME/train/bin:$PATH"\n')
