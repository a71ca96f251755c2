"""Drive a Slurm cluster through its own commands, which know its address and the user.

The commands sbatch, squeue and scancel are found in PATH. Slurm accepts the same job twice, and
forgets jobs minutes after their end (MinJobAge). Neither does harm, because its machines share our
file system: the runner there starts no second copy of an attempt (see `remote_runner`), and the
output stays in the job's folder.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from gpudeck.language.text import Span, phrase
from gpudeck.scheduler.executors import remote_runner
from gpudeck.scheduler.executors.agent_protocol import (
    PREFIX,
    Refused,
    Status,
    SubmitAttempt,
    Unreachable,
)
from gpudeck.scheduler.executors.launch import remote_command, remote_environment

TIMEOUT_S = 60.0
"""The time limit of a command. The commands themselves retry if the controller does not answer."""
FRESH_S = 5.0
"""How long a list of the jobs is used: the controller serves every user of the cluster."""
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
        """The jobs in Slurm's list, by attempt."""

    def session(self) -> str:
        """Return the cluster's name. It identifies the session, as a restarted controller keeps
        its jobs."""
        if time.monotonic() - self._listed > FRESH_S:
            self.refresh()
        if not self._session:
            lines = [
                line.partition("=") for line in _run(["scontrol", "show", "config"]).splitlines()
            ]
            self._session = next(
                (value.strip() for key, _, value in lines if key.strip() == "ClusterName"), "slurm"
            )
        return self._session

    def refresh(self) -> None:
        """Read the list of our jobs from the controller."""
        text = _run(["squeue", "--me", "--states=all", "--noheader", "--format=%j|%T|%k|%r"])
        rows = [
            line.strip().split("|", 3)
            for line in text.splitlines()
            if line.startswith(PREFIX) and line.count("|") >= 3
        ]
        rows.sort(
            key=lambda row: (row[1] in _WAITS) + 2 * (row[1] in _RUNS)
        )  # If there are two copies, the one that runs counts.
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
        output = _output_file(Path(request.folder), request.attempt, escape=True)
        gpus = [f"--gpus={request.spec.gpus}"] if request.spec.gpus else []
        self._listed = float("-inf")  # The list is out of date even if sbatch fails.
        _run(
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
            note = phrase("Slurm no longer has it, and it could not record how it ended")
            return Status("over", note, failed=True)
        if job.state in _WAITS:
            return Status("pending", phrase("waits in Slurm: {reason}", reason=job.reason))
        if job.state in _RUNS:
            return Status("running" if _output_file(folder, attempt).exists() else "pending", "")
        why = f" ({job.reason})" if job.reason not in ("", "None") else ""
        state = job.state.lower().replace("_", " ")
        reported = phrase("Slurm reports {state}", state=f"{state}{why}")
        return Status("over", reported, job.state != "COMPLETED")

    def halt(self, attempt: str) -> None:
        self._listed = float("-inf")
        _run(["scancel", "--me", "--quiet", f"--name={PREFIX}{attempt}"])

    def output(self, attempt: str, folder: Path, follow: bool) -> _OutputReader:
        return _OutputReader(_output_file(folder, attempt), follow)


class _OutputReader:
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


def _output_file(folder: Path, attempt: str, escape: bool = False) -> Path:
    """Return the file for an attempt's output; `escape` doubles percent signs for sbatch."""
    return Path(str(folder).replace("%", "%%") if escape else folder) / f"{attempt}.out"


def _run(command: list[str], given: str | None = None) -> str:
    """Return the output of a Slurm command.

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
            phrase(
                "{command} was not found: Slurm's commands must be in the daemon's PATH",
                command=command[0],
            )
        ) from e
    except subprocess.TimeoutExpired as e:
        raise Unreachable(
            phrase(
                "{command} gave no answer within {span}", command=command[0], span=Span(TIMEOUT_S)
            )
        ) from e
    if done.returncode == 0:
        return done.stdout
    lines = done.stderr.strip().splitlines()
    unsure = done.returncode < 0 or any(words in done.stderr for words in _UNREACHED)
    error = Refused if command[0] == "sbatch" and not unsure else Unreachable
    raise error(lines[-1][:300] if lines else phrase("exit status {code}", code=done.returncode))
