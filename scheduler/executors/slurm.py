"""A Slurm cluster, through its own commands, found by PATH: sbatch, squeue, scancel. They know where it is, and who we are.

Slurm would take one job twice, and forgets those that ended after minutes (MinJobAge). Both do no harm, as its machines share our
file system: the runner there lets no second copy of an attempt run (see `away`), and what it printed lies in the job's folder.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from scheduler.executors import remote_runner
from scheduler.executors.agent_protocol import PREFIX, Refused, Status, Submit, Unreachable

TIMEOUT_S = 60.0
"""Its commands try for a while themselves where the controller does not answer."""
FRESH_S = 5.0
"""For so long a list of the jobs is good: the controller is everybody's, and not to be asked more often."""
CHUNK = 2**16
LOG_PAUSE_S = 0.5
_UNREACHED = (
    "Unable to contact",
    "timed out",
    "connect failure",
    "Zero Bytes",
    "Transport endpoint",
    "Unable to establish",
)
_WAITS = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD")
_RUNS = ("RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING")
_KEPT_VARIABLES = "PATH,HOME,USER,LOGNAME,LANG"


class Row(NamedTuple):
    """A job in Slurm's list."""

    state: str
    deck: str
    reason: str


class Slurm:
    def __init__(self) -> None:
        self._session = ""
        self._listed = float("-inf")
        self._rows: dict[str, Row] = {}
        """By attempt."""

    def session(self) -> str:
        """Its name: a controller that is started anew remembers its jobs."""
        if time.monotonic() - self._listed > FRESH_S:
            self._list()
        if not self._session:
            lines = [
                line.partition("=") for line in _output(["scontrol", "show", "config"]).splitlines()
            ]
            self._session = next(
                (value.strip() for key, _, value in lines if key.strip() == "ClusterName"), "slurm"
            )
        return self._session

    def _list(self) -> None:
        text = _output(["squeue", "--me", "--states=all", "--noheader", "--format=%j|%T|%k|%r"])
        rows = [
            line.strip().split("|", 3)
            for line in text.splitlines()
            if line.startswith(PREFIX) and line.count("|") >= 3
        ]
        rows.sort(
            key=lambda row: (row[1] in _WAITS) + 2 * (row[1] in _RUNS)
        )  # of two copies the one counts that runs
        self._rows = {
            name.removeprefix(PREFIX): Row(state, deck, reason)
            for name, state, deck, reason in rows
        }
        self._listed = time.monotonic()

    def ours(self, deck: str) -> list[str]:
        return [
            attempt
            for attempt, row in self._rows.items()
            if row.deck == deck and row.state in (*_WAITS, *_RUNS)
        ]

    def submit(self, order: Submit, deck: str) -> None:
        self._list()
        if order.attempt in self._rows:
            return
        launch = {
            "attempt": order.attempt,
            "cwd": order.cwd,
            "timeout": order.timeout,
            "folder": order.folder,
            "env": order.env,
        }
        script = [
            "#!/bin/sh",
            f"export GPUDECK_RUNNER={shlex.quote(Path(remote_runner.__file__).read_text())}",
            f"export GPUDECK_LAUNCH={shlex.quote(json.dumps(launch))}",
            f"{remote_runner.COMMAND} {shlex.join(order.argv)}",
        ]
        self._listed = float("-inf")  # whatever comes of it
        _output(
            [
                "sbatch", "--no-requeue", f"--job-name={PREFIX}{order.attempt}", f"--comment={deck}", "--chdir=/", "--ntasks=1",
                f"--output={_out(Path(order.folder), order.attempt, escape=True)}", "--open-mode=append", f"--export={_KEPT_VARIABLES}",
                *([f"--gpus={order.gpus}"] if order.gpus else []),
            ],
            "\n".join(script) + "\n",
        )  # fmt: skip

    def status(self, attempt: str, folder: Path) -> Status | None:
        row = self._rows.get(attempt)
        if row is None:
            ran = remote_runner.claim(folder, attempt).exists()
            return (
                Status(
                    "over", "Slurm knows it no more, and it could not say how it ended", failed=True
                )
                if ran
                else None
            )
        if row.state in _WAITS:
            return Status("pending", f"waits in Slurm: {row.reason}")
        if row.state in _RUNS:
            return Status("running" if _out(folder, attempt).exists() else "pending", "")
        why = f" ({row.reason})" if row.reason not in ("", "None") else ""
        return Status(
            "over",
            f"Slurm says {row.state.lower().replace('_', ' ')}{why}",
            row.state != "COMPLETED",
        )

    def halt(self, attempt: str) -> None:
        self._listed = float("-inf")
        _output(["scancel", "--me", "--quiet", f"--name={PREFIX}{attempt}"])

    def output(self, attempt: str, folder: Path, follow: bool) -> _Output:
        return _Output(_out(folder, attempt), follow)


class _Output:
    def __init__(self, file: Path, follow: bool) -> None:
        self._file, self._follow = file, follow

    def __iter__(self) -> Iterator[bytes]:
        """Of an attempt that never began there is no file. Raises OSError."""
        if not self._file.exists():
            return
        with self._file.open("rb") as f:
            while True:
                if data := f.read(CHUNK):
                    yield data
                elif self._follow:
                    time.sleep(LOG_PAUSE_S)
                else:
                    return

    def close(self) -> None:
        self._follow = False


def _out(folder: Path, attempt: str, escape: bool = False) -> Path:
    """Where Slurm puts what an attempt prints. `escape`: in words of sbatch, to which a percent sign means something."""
    return Path(str(folder).replace("%", "%%") if escape else folder) / f"{attempt}.out"


def _output(command: list[str], given: str | None = None) -> str:
    """What a command of Slurm's prints. Raises Refused where it says no, Unreachable where nobody can say that it did not do it."""
    try:
        done = subprocess.run(
            command, input=given or "", capture_output=True, text=True, errors="replace", timeout=TIMEOUT_S, check=False,
            env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
    except FileNotFoundError as e:
        raise Unreachable(
            f"there is no {command[0]} here: Slurm's commands must be in the PATH of the daemon"
        ) from e
    except subprocess.TimeoutExpired as e:
        raise Unreachable(f"{command[0]} has no answer within {TIMEOUT_S:.0f} s") from e
    if done.returncode == 0:
        return done.stdout
    said = (
        done.stderr.strip().splitlines() or [f"{command[0]} ended with status {done.returncode}"]
    )[-1][:300]
    if (
        command[0] != "sbatch"
        or done.returncode < 0
        or any(words in done.stderr for words in _UNREACHED)
    ):
        raise Unreachable(said)
    raise Refused(said)
