"""What a runner is told about the attempt it runs, the same on this machine and in a cluster."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from gpudeck.scheduler.executors import remote_runner
from gpudeck.scheduler.executors.agent_protocol import SubmitAttempt
from gpudeck.scheduler.protocol.jobs import Job, Spec

_NOT_SENT = ("env", "params", "notes", "tags", "inherited")
"""Fields of a Spec that are for people, or are sent in another form, or not to clusters."""


def launch_request(
    spec: Spec, attempt: str, folder: str, env: dict[str, str], **more: object
) -> dict[str, Any]:
    """Return the request as its runner reads it: every option of the job under its own name.

    Args:
        folder: the job's folder on this machine.
        env: the whole environment of the attempt on this machine; in a cluster, what is added
            to the environment there.
        more: what only the runner of this machine needs.
    """
    options = {
        name: value for name, value in msgspec.structs.asdict(spec).items() if name not in _NOT_SENT
    }
    return {**options, "attempt": attempt, "folder": folder, "env": env, **more}


class EnergyPrice(NamedTuple):
    """What a kWh costs; 0 if that is not known."""

    amount: float = 0.0
    currency: str = ""

    @property
    def variables(self) -> dict[str, str]:
        """Return the variables by which a job learns it."""
        if not self.amount:
            return {}
        return {"GPUDECK_ENERGY_PRICE": f"{self.amount:g}", "GPUDECK_CURRENCY": self.currency}


def identity(job: Job, attempt: str) -> dict[str, str]:
    """Return the variables that an attempt finds in its environment wherever it runs."""
    array = {} if job.spec.index is None else {"GPUDECK_ARRAY_INDEX": str(job.spec.index)}
    return {
        **array,
        "GPUDECK_JOB": str(job.id),
        "GPUDECK_ATTEMPT": attempt,
        "GPUDECK_TRY": str(job.tries + 1),
    }


def remote_environment(request: SubmitAttempt) -> dict[str, str]:
    """Return the variables by which a cluster runs an attempt: its runner, and its launch request.

    The command is not among them, as one variable holds less than a command line does.
    """
    spec = request.spec
    launch = launch_request(spec, request.attempt, request.folder, request.env)
    del launch["argv"]
    return {
        "GPUDECK_RUNNER": Path(remote_runner.__file__).read_text(),
        "GPUDECK_LAUNCH": json.dumps(launch),
    }


def remote_command(request: SubmitAttempt) -> str:
    """Return the shell command that runs the attempt in this environment."""
    return f"{remote_runner.COMMAND} {shlex.join(request.spec.argv)}"
