"""Why a job waits, in words that a person understands. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scheduler.protocol.devices import Device
from scheduler.protocol.jobs import Job, Spec
from scheduler.protocol.snapshot import label
from scheduler.protocol.units import amount, numbered
from scheduler.queue.expected_end import End
from scheduler.queue.placement import Spot, of_type

KINDS = {"nvidia": "NVIDIA GPUs", "cpu": "the CPU"}
_NAMED = 3
"""Devices that a reason about memory names at most."""

Ends = Mapping[int, End]


def why(job: Job, places: Sequence[Spot], ends: Ends, now: float) -> str:
    """Why the job cannot start on any of `places`, were it the first in the queue."""
    spec = job.spec
    if missing := _never(spec, places):
        return missing
    return _memory(spec, places, ends, now) if spec.memory else _alone(spec, places, ends, now)


def _never(spec: Spec, places: Sequence[Spot]) -> str:
    """Where waiting for other jobs will not help; empty where it may."""
    devices = [spot.device for spot in places]
    if spec.gpus > len(places):  # more than there are since it was submitted
        return f"needs {spec.gpus} {'GPU' if spec.gpus == 1 else 'GPUs'}; this machine has {count(devices)} now"
    typed = [spot for spot in places if of_type(spot.device, spec)]
    if spec.gpus > len(typed):
        return f"needs {spec.gpus} of the type {spec.gpu_type!r}; this machine has {len(typed)} now"
    if spec.gpus > sum(spot.suits(spec) for spot in typed):
        drained = [label(spot.device) for spot in typed if spot.drained]
        if drained:
            words = (
                "drained or divided by MIG" if any(spot.device.mig for spot in typed) else "drained"
            )
            return f"{needs(spec, typed[0].device)}; {words}: {', '.join(drained)}"
        return f"{needs(spec, typed[0].device)}; the largest has {amount(max(s.seen.total or 0 for s in typed if s.seen))}"
    return ""


def _alone(spec: Spec, places: Sequence[Spot], ends: Ends, now: float) -> str:
    suiting = [spot for spot in places if of_type(spot.device, spec)]
    free = sum(spot.takes(spec, claims=False) for spot in suiting)
    who = [words for spot in suiting if (words := _occupied(spot, ends, now))]
    return f"{needs(spec, suiting[0].device)}; {free} free" + (": " + ", ".join(who) if who else "")


def _occupied(spot: Spot, ends: Ends, now: float) -> str:
    """Why nobody gets the device for itself now; empty where it is free."""
    name = label(spot.device)
    if spot.drained:
        return f"{name} is divided by MIG" if spot.device.mig else f"{name} is drained"
    if spot.holders and spot.alone:
        holder = spot.holders[0]
        until = f" until {ends[holder.id].words(now)}" if holder.id in ends else ""
        return f"{name} is held by job {holder.id} ({holder.spec.name}){until}"
    if spot.holders:
        return f"{name} is shared by {numbered([job.id for job in spot.holders])}"
    if spot.others:
        return f"{name} is used by {_process(spot)}"
    return f"{name} has no current reading" if spot.blind else ""


def _memory(spec: Spec, places: Sequence[Spot], ends: Ends, now: float) -> str:
    suiting = [spot for spot in places if spot.suits(spec)]
    suiting.sort(key=lambda s: (s.alone, -(s.free or 0.0), s.device.index))
    said = [_room(spec, spot, ends, now) for spot in suiting[:_NAMED]]
    more = [f"{len(suiting) - _NAMED} more are no better"] if len(suiting) > _NAMED else []
    return f"{needs(spec, suiting[0].device)}; " + ", ".join(said + more)


def _room(spec: Spec, spot: Spot, ends: Ends, now: float) -> str:
    """What is free of a device's memory, and until when."""
    name = label(spot.device)
    if spot.blind:
        return f"{name} has no current reading"
    if spot.alone:
        return _occupied(spot, ends, now)
    if spot.free is None:
        return f"the memory of {name} cannot be read"
    text = f"{name} has {amount(spot.free)} free"
    if spec.memory <= spot.free:
        return text
    if (last := _frees(spec, spot, ends)) is not None:
        return f"{text} until job {last.id} ends" + (
            f", {ends[last.id].words(now)}" if last.id in ends else ""
        )
    return text + (
        f"; {_process(spot)} uses {amount(spot.others[0].memory)}"
        if spot.others and spot.others[0].memory
        else ""
    )


def _frees(spec: Spec, spot: Spot, ends: Ends) -> Job | None:
    """The job whose end leaves enough memory, were all to end in the order expected; None where that is not enough."""
    room = spot.free or 0.0
    for job in sorted(
        spot.holders, key=lambda j: (ends[j.id].at if j.id in ends else float("inf"), j.id)
    ):
        room += job.spec.memory
        if room >= spec.memory:
            return job
    return None


def _process(spot: Spot) -> str:
    """The processes of others on a device, as pid 4711 (python, of ada) and 2 more."""
    first = spot.others[0]
    what = ", ".join(t for t in (first.name, f"of {first.user}" if first.user else "") if t)
    return f"pid {first.pid} ({what})" + (
        f" and {len(spot.others) - 1} more" if len(spot.others) > 1 else ""
    )


def needs(spec: Spec, device: Device) -> str:
    """What a job needs, as "needs 2 GPUs" or "needs 40 GiB on one GPU"."""
    typed = f" of the type {spec.gpu_type!r}" if spec.gpu_type else ""
    if device.kind == "cpu":
        return f"needs {amount(spec.memory)} of memory" if spec.memory else "needs the CPU"
    if spec.memory:
        return (
            f"needs {amount(spec.memory)} on "
            + ("one GPU" if spec.gpus == 1 else f"each of {spec.gpus} GPUs")
            + typed
        )
    return f"needs {spec.gpus} GPU{'s' if spec.gpus > 1 else ''}{typed}"


def count(devices: Sequence[Device]) -> str:
    """How many devices a machine has, in words."""
    if devices and devices[0].kind == "cpu":
        return "no NVIDIA GPU: its CPU counts as 1"
    return f"{len(devices)}"
