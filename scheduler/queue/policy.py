"""What starts next, on which device, and why the others wait. Pure: values in, a plan out.

First come, first served among the jobs that need devices: the first one that cannot start keeps the free ones for itself, so that
a job for many GPUs is not starved by small ones behind it. Jobs that need no device start when a processor is free.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from scheduler.devices.model import Device
from scheduler.errors import UserError
from scheduler.jobs import Job, Spec, held_devices

_KINDS = {"nvidia": "NVIDIA GPUs", "cpu": "the CPU"}


class Start(NamedTuple):
    job: Job
    devices: tuple[str, ...]


class Plan(NamedTuple):
    starts: list[Start]
    reasons: dict[int, str]
    """For each job that waits on: why."""


def refuse(spec: Spec, devices: Sequence[Device]) -> None:
    """Raises UserError where this job could never run on this machine."""
    if not spec.argv or not spec.argv[0]:
        raise UserError("no command was given. Example: gpudeck submit -- python train.py")
    if any("\0" in text for text in (*spec.argv, spec.cwd, *spec.env, *spec.env.values())):
        raise UserError("a command, folder or environment cannot hold a NUL character")
    if any(not name or "=" in name for name in spec.env):
        raise UserError("the name of an environment variable cannot be empty or hold a '='")
    if spec.gpus < 0:
        raise UserError(f"a job needs 0 or more GPUs, not {spec.gpus}")
    real = [d for d in devices if d.kind != "replay"]
    if spec.gpus and devices and not real:
        raise UserError("a REPLAY shows the past and runs no jobs. Set the source to auto to run on this machine's devices.")
    if spec.gpus and devices and spec.gpus > len(real):
        raise UserError(f"the job needs {spec.gpus} GPUs; this machine has {_count(real)}")


def bound(spec: Spec, devices: Sequence[Device]) -> Spec:
    """`spec` for devices of the kind there is now, where it needs some and they are known."""
    kind = next((d.kind for d in devices if d.kind != "replay"), "") if spec.gpus else ""
    return msgspec.structs.replace(spec, kind=kind)


def plan(active: Sequence[Job], devices: Sequence[Device], paused: bool, slots: int) -> Plan:
    """`active`: jobs that wait or run, oldest first. `slots`: how many jobs without a device may run at once."""
    holders = {device: job for job in active for device in held_devices(job)}
    real = [d for d in devices if d.kind != "replay"]
    free = [d for d in real if d.id not in holders]
    running = sum(job.status in ("starting", "running") and not job.spec.gpus for job in active)
    starts: list[Start] = []
    reasons: dict[int, str] = {}
    ahead: Job | None = None
    for job in active:
        if job.status != "queued":
            continue
        if paused:
            reasons[job.id] = "the queue is paused"
        elif not job.spec.gpus:
            if running < slots:
                running += 1
                starts.append(Start(job, ()))
            else:
                reasons[job.id] = f"needs a processor; {running} jobs run on {slots} already"
        elif real and job.spec.kind not in ("", real[0].kind):  # GPUs that are gone for a moment: it must not run on the CPU meanwhile
            reasons[job.id] = f"was submitted for {_KINDS[job.spec.kind]}; this machine shows {_KINDS[real[0].kind]} now"
        elif ahead is not None:
            reasons[job.id] = f"job {ahead.id} is before it"
        elif devices and job.spec.gpus > len(real):  # more than there are since it was submitted: it must not hold up the others
            reasons[job.id] = f"needs {job.spec.gpus} GPUs; this machine has {_count(real)} now"
        elif job.spec.gpus <= len(free):
            taken, free = free[: job.spec.gpus], free[job.spec.gpus :]
            starts.append(Start(job, tuple(d.id for d in taken)))
        else:
            ahead = job
            reasons[job.id] = _why(job, free, devices, holders, starts)
    return Plan(starts, reasons)


def _why(job: Job, free: Sequence[Device], devices: Sequence[Device], holders: dict[str, Job], starts: Sequence[Start]) -> str:
    if not devices:
        return "no device can be read at present"
    held = {**holders, **{device: start.job for start in starts for device in start.devices}}
    who = [f"{label(d)} is held by job {held[d.id].id} ({held[d.id].spec.name})" for d in devices if d.id in held]
    needs = f"needs {job.spec.gpus} GPU{'s' if job.spec.gpus > 1 else ''}" if devices[0].kind != "cpu" else "needs the CPU"
    return f"{needs}; {len(free)} free" + (": " + ", ".join(who) if who else "")


def label(device: Device) -> str:
    """A device's short name: GPU 0, or CPU."""
    return "CPU" if device.kind == "cpu" else f"GPU {device.index}"


def _count(devices: Sequence[Device]) -> str:
    if devices and devices[0].kind == "cpu":
        return "no NVIDIA GPU: its CPU counts as 1"
    return f"{len(devices)}"
