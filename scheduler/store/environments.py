"""Identify environments of jobs by their content. Pure.

Each is stored once, however many jobs of a batch were submitted with it.
"""

from __future__ import annotations

import hashlib

import msgspec

from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol.errors import MALFORMED, UserError
from gpudeck.scheduler.protocol.jobs import Event, Job, Queued, queued
from gpudeck.scheduler.protocol.wait_reasons import EnvironmentMissing


class EnvironmentLost(UserError):
    """Signal that a job's environment is missing or damaged in the store."""


def digest(text: bytes) -> str:
    """Return the name of an environment, given as JSON: SHA-256 in hex."""
    return hashlib.sha256(text).hexdigest()


def whole(name: str, text: bytes) -> dict[str, str] | None:
    """Return the environment stored under this name as this text, or None if it is damaged."""
    return decoded(text) if digest(text) == name else None


def decoded(text: bytes) -> dict[str, str] | None:
    """Return the environment that this JSON encodes, or None if it does not encode one."""
    try:
        return msgspec.json.decode(text, type=dict[str, str])
    except MALFORMED:
        return None


def held(job: Job, now: float) -> tuple[Job, Event]:
    """Return the job as it waits without its environment, and the event for its timeline."""
    spec = msgspec.structs.replace(job.spec, hold=True)
    waits = msgspec.structs.replace(job, spec=spec, state=queued(EnvironmentMissing(), now))
    return waits, Event(now, "held", phrase("its environment is lost or damaged in the store"))


def is_held(job: Job) -> bool:
    """Return whether the job waits for want of its environment."""
    state = job.state
    waits = isinstance(state, Queued) and isinstance(state.wait, EnvironmentMissing)
    return waits and job.spec.hold
