"""What a program asks for when it submits a job, as a Spec. Pure but for the caller's own folder and environment."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TypedDict

from scheduler.protocol.errors import UserError
from scheduler.protocol.jobs import Spec
from scheduler.protocol.units import parse_bytes, parse_seconds

MAX_BATCH = 10_000
"""Jobs in one submission."""


class Wishes(TypedDict, total=False):
    """All that can be said of a job beside its command; each may be left out."""

    name: str
    """Shown in lists; the command's name."""
    gpus: int
    """Devices: for itself, or shared where `memory` is given. 0, but 1 with `memory` or `gpu_type`."""
    memory: int | str
    """Bytes, or "20GiB": reserved on each of its devices, which it shares with other jobs that reserve."""
    gpu_type: str
    """Part of the name its GPUs must have, such as "h100"."""
    priority: int
    """The higher, the earlier."""
    timeout: float | str
    """Seconds, or "2h": an attempt that takes longer is ended and has failed."""
    retries: int
    """How often it is tried again where it fails."""
    backoff: float | str
    """Seconds, or "1min", before the second attempt; twice as long each time. 10."""
    after: Sequence[int]
    """Ids of jobs that must have succeeded before it starts; it is cancelled where one does not."""
    after_any: Sequence[int]
    """Ids of jobs that must have ended before it starts, however."""
    group: str
    """A group may be paused, and limited to so many jobs at once."""
    hold: bool
    """It waits until it is resumed."""
    notes: str
    tags: Sequence[str]
    where: str
    """The cluster that is to run it, such as ray:lab; this machine. Command and folder must exist there, too."""
    cwd: str | os.PathLike[str] | None
    """Where it runs; the caller's folder."""
    env: Mapping[str, str] | None
    """Its environment; the caller's. In a cluster: what is added to the environment there; nothing."""
    workload: str | None
    params: Mapping[str, str] | None


def wish(argv: Sequence[str], wishes: Wishes) -> Spec:
    """The job's Spec. Raises UserError for what cannot be understood."""
    memory, gpu_type, cwd = wishes.get("memory", 0), wishes.get("gpu_type", ""), wishes.get("cwd")
    timeout, backoff = wishes.get("timeout", 0), wishes.get("backoff", 10)
    elsewhere_or_later = (
        wishes.get("where") or wishes.get("after") or wishes.get("after_any")
    )  # a job before it may make the folder
    if cwd is not None and not elsewhere_or_later and not Path(cwd).is_dir():
        raise UserError(f"there is no folder {os.path.abspath(cwd)} for the job to run in")
    return Spec(
        argv=tuple(argv),
        name=wishes.get("name", "") or (Path(argv[0]).name if argv else ""),
        cwd=os.path.abspath(cwd) if cwd is not None else os.getcwd(),
        env=_environment(
            {} if wishes.get("where") and wishes.get("env") is None else wishes.get("env")
        ),
        gpus=wishes.get("gpus", 0) or int(bool(memory or gpu_type)),
        workload=wishes.get("workload"),
        params=dict(wishes.get("params") or {}),
        memory=parse_bytes(memory) if memory else 0,
        gpu_type=gpu_type,
        priority=wishes.get("priority", 0),
        timeout=parse_seconds(timeout) if timeout else 0.0,
        retries=wishes.get("retries", 0),
        backoff=parse_seconds(backoff) if backoff else 0.0,
        after=tuple(wishes.get("after", ())),
        after_any=tuple(wishes.get("after_any", ())),
        group=wishes.get("group", ""),
        hold=wishes.get("hold", False),
        notes=wishes.get("notes", ""),
        tags=tuple(wishes.get("tags", ())),
        where=wishes.get("where", ""),
    )


def indices(text: str) -> list[int]:
    """The indices of an array: 0-9, 0-100:10, 1,4,7 or a mixture. Raises UserError."""
    found: list[int] = []
    for part in text.split(","):
        if not (
            match := re.fullmatch(
                r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([1-9][0-9]{0,8}))?)?", part.strip()
            )
        ):
            raise UserError(f"indices such as 0-9, 0-100:10 or 1,4,7 are needed; got {text!r}")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise UserError(f"indices go upwards, as in {last}-{first}; got {part.strip()!r}")
        found += checked(range(first, last + 1, int(match[3] or 1)))
    return checked(found)


def checked(wanted: Iterable[int]) -> list[int]:
    """The indices of an array, or the numbers of a list of jobs. Raises UserError where there are none, too many, or one twice."""
    found = list(islice(wanted, MAX_BATCH + 1))
    if not 0 < len(found) <= MAX_BATCH:
        raise UserError(f"1 to {MAX_BATCH} jobs can be submitted at once")
    if len(set(found)) != len(found):
        raise UserError("an index is named twice")
    return found


def variables(named: Iterable[str]) -> dict[str, str]:
    """NAME=VALUE each, or NAME alone for a variable of the caller's environment."""
    pairs = (text.partition("=") for text in named)
    return {name: value if equals else os.environ.get(name, "") for name, equals, value in pairs}


def _environment(env: Mapping[str, str] | None) -> dict[str, str]:
    variables = dict(os.environ if env is None else env)
    if bad := [name for name, value in variables.items() if not _utf8(name + value)]:
        raise UserError(
            f"only UTF-8 can be sent to the daemon, and the environment variable {bad[0]!a} is none. Unset it and try again."
        )
    return variables


def _utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
