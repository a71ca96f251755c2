"""Say what happens when a GPU is freed for a time, before the user asks for it. Free of Qt."""

from __future__ import annotations

import os

from gpudeck.app.format.values import duration, memory
from gpudeck.app.language.texts import tr, tr_moment
from gpudeck.scheduler.protocol.devices import Device
from gpudeck.scheduler.protocol.jobs import Job, Running, held_devices, suspension_of
from gpudeck.scheduler.protocol.snapshot import DeviceState, Snapshot, label
from gpudeck.scheduler.protocol.suspended import estimate_out

FREE_S = 2 * 3600.0
"""How long the window frees a GPU, in seconds."""


def can_be_freed(device: Device) -> bool:
    """Return whether the jobs of a device can be suspended: a GPU of this machine."""
    return device.kind == "nvidia" and not device.host


def gpus_to_free(snapshot: Snapshot) -> tuple[Device, ...]:
    """Return the GPUs whose jobs can be suspended."""
    return tuple(state.device for state in snapshot.devices if can_be_freed(state.device))


def jobs_on_gpus(snapshot: Snapshot) -> tuple[Job, ...]:
    """Return the jobs of this user that hold GPUs of this machine and run there."""
    gpus = {gpu.id for gpu in gpus_to_free(snapshot)}
    return tuple(
        job
        for job in snapshot.jobs
        if _is_own(job)
        and isinstance(job.state, Running)
        and job.state.suspension is None
        and gpus & set(held_devices(job))
    )


def suspended_jobs(snapshot: Snapshot) -> tuple[Job, ...]:
    """Return the jobs of this user that come back only when somebody resumes them."""
    off = ((job, suspension_of(job)) for job in snapshot.jobs if _is_own(job))
    return tuple(job for job, away in off if away is not None and away.resume_at is None)


def _is_own(job: Job) -> bool:
    return job.spec.user in (None, os.getuid())


def free_question(state: DeviceState, snapshot: Snapshot) -> str:
    """Return what happens to a GPU, its jobs and the assistant when it is freed for FREE_S."""
    until = tr_moment(snapshot.time + FREE_S, snapshot.time)
    gpu = label(state.device)
    parts = [tr("{gpu} is kept free until {time}.", gpu=gpu, time=until)]
    jobs = {job.id: job for job in snapshot.jobs}
    parts += [_leaving(jobs[number], state) for number in state.holders if number in jobs]
    if state.leased:
        parts.append(tr("The assistant leaves it."))
    return " ".join(parts)


def _leaving(job: Job, state: DeviceState) -> str:
    processes = state.reading.processes if state.reading is not None else ()
    size = sum(process.memory or 0.0 for process in processes if process.job == job.id)
    if not size:
        return tr(
            "Job {job} ({name}) is suspended, and comes back by itself.",
            job=job.id,
            name=job.spec.name,
        )
    return tr(
        "Job {job} ({name}) is suspended in about {time}, as {size} move to the machine's memory, "
        "and comes back by itself.",
        job=job.id,
        name=job.spec.name,
        time=duration(estimate_out(size)),
        size=memory(size),
    )
