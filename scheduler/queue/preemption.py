"""Which running jobs give their GPUs to one that waits.

A job that is preemptible is suspended for a waiting job of a higher priority if that is worth it:
the wait that it spares is WORTH times as long as taking it off the GPU and bringing it back. Where
the settings say so, preemptible jobs of the same priority take turns: one that has had its GPU for
a turn leaves it to the next. No job is moved twice within PAUSE_S.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from gpudeck.scheduler.protocol.jobs import Job, Running
from gpudeck.scheduler.protocol.suspended import estimate_back, estimate_out
from gpudeck.scheduler.protocol.wait_reasons import End, TakesTurn
from gpudeck.scheduler.queue.placement import Slot

PAUSE_S = 600.0
WORTH = 10.0
_UNKNOWN = 80 * 2**30
"""Bytes that a job is taken to hold where nothing tells."""


class Offer(NamedTuple):
    """Describe how a job could have a GPU."""

    cost: float
    """Seconds that the jobs there need for leaving it and coming back."""
    victims: frozenset[int]
    """Jobs that must be suspended."""
    leaving: bool
    """Jobs are on their way off it."""
    wait: float
    """Seconds until the jobs there end by themselves; infinity where that is unknown."""


NOTHING = Offer(0.0, frozenset(), False, 0.0)


def find_offer(
    job: Job,
    slots: Sequence[Slot],
    ends: Mapping[int, End],
    now: float,
    kept: Collection[int],
    turns: float,
) -> Offer | None:
    """Return how a job that waits, or is to come back, can have its GPUs now; None where it cannot,
    or it is not worth it.

    Args:
        ends: When running jobs are expected to end.
        kept: Jobs that cannot be suspended.
        turns: Seconds after which jobs of the same priority leave their GPUs to each other.
    """
    offers = [
        offer
        for slot in slots
        if slot.suits(job.spec) and slot.booked_against(job.spec, now) is None
        and slot.reserved_for is None
        and (offer := _offer(job, slot, ends, now, kept, turns)) is not None
    ]  # fmt: skip
    chosen = sorted(offers, key=lambda offer: offer.cost)[: job.spec.gpus]
    if len(chosen) < job.spec.gpus:
        return None
    victims = frozenset[int]().union(*(offer.victims for offer in chosen))
    leaving = any(offer.leaving for offer in chosen)
    found = Offer(
        sum(offer.cost for offer in chosen), victims, leaving,
        max((offer.wait for offer in chosen), default=0.0),
    )  # fmt: skip
    return found if leaving or found.wait >= WORTH * found.cost else None


def _offer(
    job: Job,
    slot: Slot,
    ends: Mapping[int, End],
    now: float,
    kept: Collection[int],
    turns: float,
) -> Offer | None:
    """Return how the job could have one GPU; None where somebody stays there."""
    if slot.has_room(job.spec, respect_reservations=False):
        return NOTHING
    if slot.others or slot.held_by_others or slot.unread or not slot.holders:
        return None
    leaving = [holder for holder in slot.holders if _leaves(holder)]
    victims = [holder for holder in slot.holders if holder not in leaving]
    if any(holder.id in kept or move_time(holder, job, turns) > now for holder in victims):
        return None
    known = [ends[holder.id].at - now if holder.id in ends else math.inf for holder in victims]
    cost = sum(moving_time(holder, slot) for holder in victims)
    return Offer(cost, frozenset(v.id for v in victims), bool(leaving), max(known, default=0.0))


def move_time(victim: Job, job: Job, turns: float) -> float:
    """Return from when on a running job may be suspended for another one (seconds since the epoch);
    infinity: never."""
    state = victim.state
    if not isinstance(state, Running) or state.stopping or state.over:
        return math.inf
    if state.suspension is not None or not victim.spec.preemptible:
        return math.inf
    if victim.spec.priority < job.spec.priority:
        return state.returned + PAUSE_S
    if victim.spec.priority == job.spec.priority and job.spec.preemptible:
        return turn_end(state, turns)
    return math.inf


def turn_end(state: Running, turns: float) -> float:
    """Return when a job has had its GPUs for a turn, in seconds since the epoch."""
    return max(state.at, state.returned) + max(turns, PAUSE_S)


def find_turn(
    job: Job, slots: Sequence[Slot], ends: Mapping[int, End], turns: float
) -> TakesTurn | None:
    """Return when and from whom a job takes over its GPUs by its turn; None where it does not, as
    where those are about to end by then."""

    def over(slot: Slot) -> float:
        return max((move_time(holder, job, turns) for holder in slot.holders), default=0.0)

    suited = [slot for slot in slots if slot.suits(job.spec) and not slot.others]
    chosen = sorted(suited, key=over)[: job.spec.gpus]
    if len(chosen) < job.spec.gpus or (at := over(chosen[-1])) == math.inf:
        return None
    holders = {holder.id for slot in chosen for holder in slot.holders}
    cost = sum(moving_time(holder, slot) for slot in chosen for holder in slot.holders)
    left = max((ends[n].at - at if n in ends else math.inf for n in holders), default=0.0)
    return TakesTurn(tuple(sorted(holders)), at) if left >= WORTH * cost else None


def moving_time(victim: Job, slot: Slot) -> float:
    """Return how long a job takes at most for leaving a GPU and coming back, in seconds."""
    size = slot.used.get(victim.id) or victim.spec.memory or slot.total or _UNKNOWN
    return estimate_out(size) + estimate_back(size)


def _leaves(holder: Job) -> bool:
    """Return whether a job is on its way off its GPUs."""
    state = holder.state
    if not isinstance(state, Running):
        return False
    going = state.suspension is not None and state.suspension.phase == "suspending"
    return going or bool(state.yielding) or state.stopping
