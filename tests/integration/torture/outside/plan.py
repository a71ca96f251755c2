"""Plan rounds of faults from a seed: the same seed plans the same faults in the same order."""

from __future__ import annotations

import random
from typing import NamedTuple


class Fault(NamedTuple):
    """A fault, and how long it lasts where it can be undone."""

    family: str
    kind: str
    seconds: float
    """Seconds until it is undone; 0 where it lasts until the campaign ends."""


class Round(NamedTuple):
    """A fault that strikes while clients submit jobs."""

    fault: Fault
    jobs: tuple[tuple[str, ...], ...]
    """The kinds of jobs that each client submits, one after another."""
    delay: float
    """Seconds from the start of the round to the fault."""


SIGNALS = {
    "kill daemon": 20,
    "kill runner": 12,
    "kill idle runner": 3,
    "kill probe": 3,
    "kill client": 8,
    "kill assistant host": 0.5,
    "kill daemon and runner": 5,
    "stop daemon": 5,
    "stop runner": 5,
    "stop probe": 2,
    "stop daemon for 32 s": 0.1,
    "restart of everything": 5,
    "idle connections": 3,
    "half a request": 3,
}
ATTACKS = {
    "folder chmod 0": 3,
    "artefacts chmod 0": 2,
    "jobs chmod 0": 3,
    "artefacts group writable": 3,
    "lock removed, runner killed": 4,
    "lock removed": 2,
    "lock is a folder": 3,
    "lock is a folder, runner killed": 2,
    "exit.new is a link": 3,
    "exit.new is a link to a full device": 2,
    "exit.new is a folder": 2,
    "exit.json is a folder": 2,
    "log is a pipe": 2,
    "folder deleted": 3,
    "jobs deleted": 2,
    "runner stopped by its job": 2,
    "daemon killed by a job": 3,
}
SMALL_DISK = {"disk full": 6, "disk full, daemon killed": 5}
OWN_DISK = {"file system aborted": 2, "file system aborted, daemon killed": 2, "power cut": 3}
STORE = {"log of the store cut": 1.5, "log of the store deleted": 1.5, "store deleted": 0.7}
CLOCK = {"clock a day on": 1.5, "clock a day back": 1.5, "clock an hour back, daemon killed": 1.5}

JOBS = {
    "quick": 10,
    "fail": 2,
    "slow": 4,
    "flaky": 2,
    "hopeless": 1,
    "fork": 1,
    "stubborn": 1,
    "overtime": 1,
    "array": 1,
    "cancelled": 2,
}
"""Kinds of jobs, and how often each is drawn."""
CLIENTS = 3


def families(*, disk: bool) -> dict[str, dict[str, float]]:
    """Return the kinds of faults that a world can have, with how often each is drawn."""
    found = {"signal": SIGNALS, "attack": ATTACKS, "store": STORE, "clock": CLOCK}
    return {**found, "disk": {**SMALL_DISK, **OWN_DISK}} if disk else found


def rounds(seed: int, kinds: dict[str, dict[str, float]]) -> list[Round]:
    """Return one round for each kind of fault, in a drawn order, and a thousand drawn rounds."""
    draw = random.Random(seed)
    every = [(family, kind) for family, weights in kinds.items() for kind in weights]
    weights = [weight for found in kinds.values() for weight in found.values()]
    drawn = [*draw.sample(every, len(every)), *draw.choices(every, weights, k=1000)]
    return [
        Round(
            Fault(family, kind, draw.choice((0.0, draw.uniform(0.05, 0.8), draw.uniform(0.05, 2)))),
            tuple(
                tuple(
                    draw.choices(list(JOBS), list(JOBS.values()), k=most and draw.randint(0, most))
                )
                for _ in range(CLIENTS)
            ),
            draw.uniform(0.0, 0.15),
        )
        for family, kind in drawn
        for most in (0 if family == "store" else 2,)
    ]
