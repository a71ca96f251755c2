"""What keeps a job from starting on the devices there are, as values of `wait_reasons`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from gpudeck.scheduler.protocol import wait_reasons as w
from gpudeck.scheduler.protocol.devices import Device
from gpudeck.scheduler.protocol.jobs import Job, Spec
from gpudeck.scheduler.protocol.snapshot import label
from gpudeck.scheduler.queue.placement import Slot, of_type

_NAMED = 3
"""The most devices that a reason about memory names."""

Ends = Mapping[int, w.End]


def no_room(spec: Spec, slots: Sequence[Slot], ends: Ends) -> w.Unsatisfiable | w.NoRoom:
    """Return why the job cannot start on these devices, if it were the first in the queue."""
    if (unsatisfiable := unsatisfiable_need(spec, slots)) is not None:
        return unsatisfiable
    if spec.memory:
        suiting = [slot for slot in slots if slot.suits(spec)]
        suiting.sort(key=lambda s: (s.exclusive, -(s.free or 0.0), s.device.index))
        blockers = tuple(_memory(spec, slot, ends) for slot in suiting[:_NAMED])
        more = max(len(suiting) - _NAMED, 0)
        return w.NoRoom(_needs(spec, suiting[0].device), blockers, more=more)
    typed = [slot for slot in slots if of_type(slot.device, spec)]
    taken = (_exclusive(spec, slot, ends) for slot in typed)
    blockers = tuple(blocker for blocker in taken if blocker is not None)
    free = sum(slot.has_room(spec, respect_reservations=False) for slot in typed)
    return w.NoRoom(_needs(spec, typed[0].device), blockers, free)


def unsatisfiable_need(spec: Spec, slots: Sequence[Slot]) -> w.Unsatisfiable | None:
    """Return what the job needs and the devices cannot offer, however many other jobs end."""
    if spec.gpus > 1:
        slots = [slot for slot in slots if not slot.device.instance]
    if spec.gpus > len(slots):
        cpu = bool(slots) and slots[0].device.kind == "cpu"
        return w.TooFewGpus(spec.gpus, len(slots), cpu)
    typed = [slot for slot in slots if of_type(slot.device, spec)]
    if spec.gpus > len(typed):
        names = tuple(sorted({slot.device.name for slot in slots}))
        return w.TooFewOfType(spec.gpus, spec.gpu_type, len(typed), names)
    if spec.gpus <= sum(slot.suits(spec) for slot in typed):
        return None
    needs = _needs(spec, typed[0].device)
    if drained := tuple(label(slot.device) for slot in typed if slot.drained):
        return w.AllDrained(needs, drained, mig=any(slot.device.mig for slot in typed))
    return w.TooLittleMemory(needs, max(slot.total or 0.0 for slot in typed))


def _exclusive(spec: Spec, slot: Slot, ends: Ends) -> w.Blocker | None:
    """Return why the job does not get the device to itself now; None where it can."""
    name = label(slot.device)
    if slot.drained:
        return w.Drained(name, slot.device.mig)
    if (booked := _booked(spec, slot)) is not None:
        return booked
    if slot.holders and slot.exclusive:
        holder = slot.holders[0]
        return w.HeldBy(name, holder.id, holder.spec.name, ends.get(holder.id))
    if slot.holders:
        return w.SharedBy(name, tuple(job.id for job in slot.holders))
    if slot.held_by_others:
        part = slot.held_by_others if slot.held_by_others < math.inf else 0.0
        return w.HeldByOthers(name, part, slot.other_holder)
    if slot.others:
        return _used_by(slot)
    return w.NoReading(name) if slot.unread else None


def _booked(spec: Spec, slot: Slot) -> w.Booked | None:
    """Return for whom the device is kept, and when, where that keeps the job from starting."""
    booking = slot.booked_against(spec, slot.now)
    if booking is None:
        return None
    return w.Booked(label(slot.device), booking.holder, booking.begin, booking.end)


def _memory(spec: Spec, slot: Slot, ends: Ends) -> w.Blocker:
    """Return how much of the device's memory is free, and until when."""
    name = label(slot.device)
    if (booked := _booked(spec, slot)) is not None:
        return booked
    if slot.unread:
        return w.NoReading(name)
    if slot.exclusive and (holder := _exclusive(spec, slot, ends)) is not None:
        return holder
    if slot.free is None:
        return w.MemoryUnknown(name)
    if spec.memory <= slot.free:
        return w.MemoryFree(name, slot.free)
    if (last := _frees_enough(spec, slot, slot.free, ends)) is not None:
        return w.MemoryFree(name, slot.free, last.id, ends.get(last.id))
    if slot.held_by_others:
        return w.MemoryHeldByOthers(name, slot.free, slot.held_by_others, slot.other_holder)
    return w.MemoryFree(name, slot.free, user=_used_by(slot) if slot.others else None)


def _frees_enough(spec: Spec, slot: Slot, free: float, ends: Ends) -> Job | None:
    """Return the job whose end leaves enough memory, if all jobs end in the order expected."""
    never = w.End(float("inf"))
    for job in sorted(slot.holders, key=lambda j: (ends.get(j.id, never).at, j.id)):
        free += job.spec.memory
        if free >= spec.memory:
            return job
    return None


def _used_by(slot: Slot) -> w.UsedBy:
    return w.UsedBy(label(slot.device), slot.others[0], len(slot.others) - 1)


def _needs(spec: Spec, device: Device) -> w.Needs:
    return w.Needs(spec.gpus, spec.memory, spec.gpu_type, device.kind == "cpu")
