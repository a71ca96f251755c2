"""Environments of jobs by their content: each is stored once, however many jobs of a batch were submitted with it. Pure."""

from __future__ import annotations

import hashlib

import msgspec

from scheduler.protocol.errors import MALFORMED, UserError
from scheduler.protocol.jobs import Event, Job, Queued

LOST = "is held: the environment it was submitted with is lost or damaged in the store. Submit it again, and cancel this one"
"""Why a job waits that must not run, as it would run with another environment."""


class EnvironmentLost(UserError):
    """A job's environment is not in the store as it was put there."""


def digest(text: bytes) -> str:
    """The name of an environment, given as JSON: SHA-256 in hex."""
    return hashlib.sha256(text).hexdigest()


def whole(name: str, text: bytes) -> dict[str, str] | None:
    """The environment that was stored under this name as this text; None where it is not as it was."""
    return decoded(text) if digest(text) == name else None


def decoded(text: bytes) -> dict[str, str] | None:
    """The environment that is this JSON; None where it is none."""
    try:
        return msgspec.json.decode(text, type=dict[str, str])
    except MALFORMED:
        return None


def held(job: Job, now: float) -> tuple[Job, Event]:
    """The job as it waits without its environment, and what its timeline says of that."""
    waits = msgspec.structs.replace(
        job, spec=msgspec.structs.replace(job.spec, hold=True), state=Queued(LOST)
    )
    return waits, Event(now, "held", "its environment is lost or damaged in the store")


def is_held(job: Job) -> bool:
    """Whether the job waits for want of its environment."""
    return isinstance(job.state, Queued) and job.spec.hold and job.state.reason == LOST
