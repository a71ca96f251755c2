"""Give a command the umask, the limits and the nice value of the process that submitted it.

Standard library only, as the runner imports it.
"""

from __future__ import annotations

import os
import resource
from typing import Any, NamedTuple

NICEST = 19
_MOST = 2**63 - 1


class Inheritance(NamedTuple):
    """Hold what a command is to inherit, as far as this process may pass it on."""

    umask: int | None
    nice: int
    limits: dict[int, tuple[int, int]]
    denied: str
    """What it cannot have, in a sentence; empty where it gets all."""

    def apply(self) -> None:
        """Pass it on, in the child before its command is executed."""
        if self.umask is not None:
            os.umask(self.umask)
        if self.nice != os.getpriority(os.PRIO_PROCESS, 0):
            os.setpriority(os.PRIO_PROCESS, 0, self.nice)
        for number, limit in self.limits.items():
            resource.setrlimit(number, limit)


def prepare(inherited: dict[str, Any] | None, nice: int, may_raise: bool = True) -> Inheritance:
    """Return what the command inherits.

    A limit above the hard one of this process, and a nice value below its own, are as near to what
    was asked for as the system allows.

    Args:
        inherited: fields of `jobs.Inherited`; None for a job of an older client.
        nice: by how much the job is to be nicer than that.
        may_raise: a limit above our own is tried, as root may set it; not for another user.
    """
    own = os.getpriority(os.PRIO_PROCESS, 0)
    if inherited is None:
        return Inheritance(None, min(own + nice, NICEST), {}, "")
    wanted = min(max(int(inherited["nice"]), -NICEST - 1) + nice, NICEST)
    given, denied = _nice(wanted, own) if may_raise else max(wanted, own), []
    if given != wanted:
        denied.append(f"its nice value is {given}, as only root may set {wanted}")
    limits: dict[int, tuple[int, int]] = {}
    for name, number in vars(resource).items():
        if name.startswith("RLIMIT_") and name != "RLIMIT_OFILE":
            key = name.removeprefix("RLIMIT_").lower()
            soft, hard = inherited["limits"].get(key, (-1, -1))
            wish = (_number(soft), _number(hard))
            limits[number], problem = _limit(number, key, *wish, may_raise)
            denied += [problem] if problem else []
    return Inheritance(int(inherited["umask"]) & 0o777, given, limits, "; ".join(denied))


def _nice(wanted: int, own: int) -> int:
    """Return the nice value that this process may set, by trying it on itself."""
    if wanted >= own:
        return wanted
    try:
        os.setpriority(os.PRIO_PROCESS, 0, wanted)
        os.setpriority(os.PRIO_PROCESS, 0, own)
    except PermissionError:
        return own
    return wanted


def _limit(
    number: int, name: str, soft: int, hard: int, may_raise: bool
) -> tuple[tuple[int, int], str]:
    """Return the limit that can be set, and what is denied of it."""
    own_soft, own_hard = resource.getrlimit(number)
    if _size(hard) > _size(own_hard):
        try:
            if not may_raise:
                raise PermissionError
            resource.setrlimit(number, (own_soft, hard))  # root may raise it
        except (OSError, ValueError):
            reached = min(soft, own_hard, key=_size)
            asked = "none" if soft == resource.RLIM_INFINITY else str(soft)
            problem = "" if reached == soft else (
                f"its limit {name} is {reached}, the most that the daemon may set, not {asked}"
            )  # fmt: skip
            return (reached, own_hard), problem
    return (min(soft, hard, key=_size), hard), ""


def _number(limit: int) -> int:
    return resource.RLIM_INFINITY if limit < 0 or limit > _MOST else int(limit)


def _size(limit: int) -> float:
    return float("inf") if limit == resource.RLIM_INFINITY else limit
