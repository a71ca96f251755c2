"""A Slurm cluster, driven through its own commands, which know where it is and who we are.

They are found by PATH: sbatch, squeue, scancel. Slurm accepts one job twice, and forgets jobs
minutes after their end (MinJobAge). Neither does harm, as its machines share our file system: the
runner there runs no second copy of an attempt (see `remote_runner`), and what it printed is in the
job's folder.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from scheduler.executors import remote_runner
from scheduler.executors.agent_protocol import PREFIX, Refused, Status, SubmitAttempt, Unreachable
from scheduler.executors.launch import remote_command, remote_environment

TIMEOUT_S = 60.0
"""Seconds. The commands themselves try for a while where the controller does not answer."""
FRESH_S = 5.0
"""Seconds that a list of the jobs is used: the controller serves everybody."""
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


class SlurmJob(NamedTuple):
    """Describe a job in Slurm's list."""

    state: str
    deck: str
    reason: str


class Slurm:
    """Drive the Slurm cluster of this machine."""

    def __init__(self) -> None:
        self._session = ""
        self._listed = float("-inf")
        self._jobs: dict[str, SlurmJob] = {}
        """By attempt."""

    def session(self) -> str:
        """Return the cluster's name: a controller that is restarted remembers its jobs."""
        if time.monotonic() - self._listed > FRESH_S:
            self.refresh()
        if not self._session:
            lines = [
                line.partition("=") for line in _output(["scontrol", "show", "config"]).splitlines()
            ]
            self._session = next(
                (value.strip() for key, _, value in lines if key.strip() == "ClusterName"), "slurm"
            )
        return self._session

    def refresh(self) -> None:
        """Read the list of our jobs from the controller."""
        text = _output(["squeue", "--me", "--states=all", "--noheader", "--format=%j|%T|%k|%r"])
        rows = [
            line.strip().split("|", 3)
            for line in text.splitlines()
            if line.startswith(PREFIX) and line.count("|") >= 3
        ]
        rows.sort(
            key=lambda row: (row[1] in _WAITS) + 2 * (row[1] in _RUNS)
        )  # of two copies the one counts that runs
        self._jobs = {
            name.removeprefix(PREFIX): SlurmJob(state, deck, reason)
            for name, state, deck, reason in rows
        }
        self._listed = time.monotonic()

    def attempts(self, deck: str) -> list[str]:
        return [
            attempt
            for attempt, row in self._jobs.items()
            if row.deck == deck and row.state in (*_WAITS, *_RUNS)
        ]

    def submit(self, request: SubmitAttempt, deck: str) -> None:
        self.refresh()
        if request.attempt in self._jobs:
            return
        variables = remote_environment(request).items()
        script = [
            "#!/bin/sh",
            *(f"export {name}={shlex.quote(value)}" for name, value in variables),
            remote_command(request),
        ]
        output = _out(Path(request.folder), request.attempt, escape=True)
        gpus = [f"--gpus={request.spec.gpus}"] if request.spec.gpus else []
        self._listed = float("-inf")  # whether it succeeds or not
        _output(
            [
                "sbatch", "--no-requeue", "--chdir=/", "--ntasks=1", "--open-mode=append",
                f"--job-name={PREFIX}{request.attempt}", f"--comment={deck}",
                f"--output={output}", f"--export={_KEPT_VARIABLES}", *gpus,
            ],
            "\n".join(script) + "\n",
        )  # fmt: skip

    def status(self, attempt: str, folder: Path) -> Status | None:
        job = self._jobs.get(attempt)
        if job is None:
            if not remote_runner.claim(folder, attempt).exists():
                return None
            note = "Slurm no longer has it, and it could not record how it ended"
            return Status("over", note, failed=True)
        if job.state in _WAITS:
            return Status("pending", f"waits in Slurm: {job.reason}")
        if job.state in _RUNS:
            return Status("running" if _out(folder, attempt).exists() else "pending", "")
        why = f" ({job.reason})" if job.reason not in ("", "None") else ""
        state = job.state.lower().replace("_", " ")
        return Status("over", f"Slurm reports {state}{why}", job.state != "COMPLETED")

    def halt(self, attempt: str) -> None:
        self._listed = float("-inf")
        _output(["scancel", "--me", "--quiet", f"--name={PREFIX}{attempt}"])

    def output(self, attempt: str, folder: Path, follow: bool) -> _Output:
        return _Output(_out(folder, attempt), follow)


class _Output:
    """Iterate over the file that Slurm writes the output to."""

    def __init__(self, file: Path, follow: bool) -> None:
        self._file, self._follow = file, follow

    def __iter__(self) -> Iterator[bytes]:
        """Yield nothing for an attempt that never began, as it has no file. Raises OSError."""
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
    """Return the file for an attempt's output, with percent signs escaped for sbatch if asked."""
    return Path(str(folder).replace("%", "%%") if escape else folder) / f"{attempt}.out"


def _output(command: list[str], given: str | None = None) -> str:
    """Return what a command of Slurm prints.

    Raises:
        Refused: Slurm has not done it, and will not.
        Unreachable: Slurm may have done it.
    """
    env = {**os.environ, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            command, input=given or "", capture_output=True, text=True, errors="replace",
            timeout=TIMEOUT_S, check=False, env=env,
        )  # fmt: skip
    except FileNotFoundError as e:
        raise Unreachable(
            f"{command[0]} was not found: Slurm's commands must be in the daemon's PATH"
        ) from e
    except subprocess.TimeoutExpired as e:
        raise Unreachable(f"{command[0]} gave no answer within {TIMEOUT_S:.0f} s") from e
    if done.returncode == 0:
        return done.stdout
    lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
    unsure = done.returncode < 0 or any(words in done.stderr for words in _UNREACHED)
    error = Refused if command[0] == "sbatch" and not unsure else Unreachable
    raise error(lines[-1][:300])
