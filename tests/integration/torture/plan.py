"""Plan rounds of faults from a seed: the same seed plans the same faults in the same order."""

from __future__ import annotations

import random
from typing import NamedTuple


class Fault(NamedTuple):
    """A fault at a place, the n-th time that it is reached (see sabotage/sitecustomize.py)."""

    kind: str
    at: str
    n: int = 1


class Round(NamedTuple):
    """A fault while two clients submit these jobs."""

    fault: Fault
    jobs: tuple[str, ...]
    delay: float
    """Seconds from the start of the round to a fault that is not armed."""


_AT_COMMIT = [
    ("daemon", at, 8) for at in ("before BEGIN", "after BEGIN", "before COMMIT", "after COMMIT")
]
_AT_SPAWN = [
    ("daemon", "before spawn", 3),
    ("daemon", "after spawn", 3),
    ("daemon", "before the gate opens", 3),
]
_RUNNER = [
    ("runner", at, 2)
    for at in (
        "gate",
        "lock",
        "before ticket",
        "after ticket",
        "before job",
        "after job",
        "before sync",
        "before rename",
        "after rename",
    )
]
_IN_COMMIT = [
    ("system call", "SIGKILL in pwrite64", 20),
    ("system call", "SIGKILL in fdatasync", 6),
]
_EIO = [("system call", "EIO from fdatasync", 4), ("system call", "EIO from pwrite64", 4)]
_AT_RANDOM = [("at random", who, 1) for who in ("daemon", "runner", "probe", "assistant host")]
_ODD = [
    ("strange", at, 1)
    for at in (
        "pid reused",
        "start time of another",
        "another boot",
        "probe stopped",
        "clock a day on",
        "clock a day back",
    )
]
_DISK = [
    ("disk full", "", 1),
    ("disk full", "and the daemon killed", 1),
    ("disk full", "by a job", 1),
]

_MIXES = {
    "plain": [
        (10, _AT_COMMIT),
        (6, _AT_SPAWN),
        (3, _RUNNER),
        (5, _IN_COMMIT),
        (2, _EIO),
        (4, _AT_RANDOM),
        (1, _ODD),
    ],
    "small disk": [(2, _AT_COMMIT), (10, _DISK), (2, _AT_RANDOM), (1, _RUNNER)],
}
DISKS = tuple(_MIXES)
_JOBS = (
    *(
        ("quick", 10),
        ("fail", 2),
        ("slow", 3),
        ("flaky", 2),
        ("hopeless", 1),
        ("fork", 1),
        ("stubborn", 1),
        ("overtime", 1),
    ),
    *(("child", 3), ("follower", 2), ("narrow", 4), ("array", 1)),
)
"""Kinds, and how often each is drawn. A child runs after its parent succeeded, a follower after it
ended; an array has several members."""


def rounds(seed: int, count: int, disk: str = "plain") -> list[Round]:
    """Return `count` rounds on a `disk` of DISKS; the first ones inject each fault once."""
    draw = random.Random(f"{seed} {disk}")
    every = [(weight, place) for weight, places in _MIXES[disk] for place in places]
    first = draw.sample([place for _, place in every], len(every))
    later = draw.choices(
        [place for _, place in every], [weight for weight, _ in every], k=max(0, count - len(every))
    )
    names, weights = zip(*_JOBS, strict=True)
    return [
        Round(
            Fault(kind, at, draw.randint(1, most)),
            tuple(draw.choices(names, weights, k=draw.randint(1, 3))),
            draw.uniform(0.0, 0.15),
        )
        for kind, at, most in [*first, *later][:count]
    ]
