"""Find the model that a training run left."""

from __future__ import annotations

from pathlib import Path

import msgspec

from gpudeck.accel.workloads.catalog import AUTO
from gpudeck.app.format.results import result_of
from gpudeck.app.link.call import Call
from gpudeck.scheduler.protocol.jobs import Job

TRAINING = "train"


def leaves_model(job: Job) -> bool:
    """Report if a job trained a model to the end; an estimate leaves a checkpoint only."""
    result = result_of(job) if job.spec.workload == TRAINING else None
    return result is not None and result.passed and job.spec.params.get("estimate") != "yes"


class FindTrained(msgspec.Struct, frozen=True):
    """Find the folder of the model that a job trained."""

    job: int

    def carry_out(self, call: Call) -> str:
        """Return the folder, by the whole job: lists may hold only the beginning of its parameters.

        Raises UserError if the job ran on another machine.
        """
        with call.client() as client:
            spec = client.job(self.job).spec
            artefacts = client.artefact_folder(spec.artefacts_of or self.job)
        out = spec.params.get("out", AUTO)
        if out != AUTO:
            return str(Path(spec.cwd, Path(out).expanduser()).absolute())
        left = sorted(file.parent for file in artefacts.glob("*/config.json"))
        return str(left[0].absolute() if left else artefacts)
