"""What is refused when it is submitted, as it could never run here. Pure."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import msgspec

from scheduler.protocol.devices import Device
from scheduler.protocol.errors import UserError
from scheduler.protocol.job_options import check_limits
from scheduler.protocol.jobs import Spec
from scheduler.protocol.units import amount
from scheduler.queue.blockers import count
from scheduler.queue.placement import Availability, of_type

MAX_WORDS = 10_000
MAX_TAGS = 100
MAX_ARGUMENT = 32 * os.sysconf("SC_PAGE_SIZE")
"""Bytes of one argument, with the NUL at its end: MAX_ARG_STRLEN of execve(2)."""
MAX_SENT = 2**16
"""Bytes of environment that are sent to a cluster."""


def refuse(spec: Spec, devices: Sequence[Device], sight: Availability = Availability()) -> None:  # noqa: B008 - a constant
    """Raises UserError where this job could never run on this machine, whatever its environment (see `refuse_environment`)."""
    if not spec.argv or not spec.argv[0]:
        raise UserError("no command was given. Example: gpudeck submit -- python train.py")
    if any("\0" in text for text in (*spec.argv, spec.cwd)):
        raise UserError("a command or a folder cannot hold a NUL character")
    if any(
        len(text) >= MAX_ARGUMENT or len(text.encode()) >= MAX_ARGUMENT
        for text in spec.argv
        if len(text) >= MAX_ARGUMENT // 4
    ):
        raise UserError(
            f"no process can be given an argument of {MAX_ARGUMENT // 1024} KiB: put it into a file, and name that"
        )
    refuse_words(spec)
    check_limits(spec)
    if spec.gpus < 0:
        raise UserError(f"a job needs 0 or more GPUs, not {spec.gpus}")
    if spec.memory < 0:
        raise UserError(f"a job reserves 0 or more bytes of memory, not {spec.memory}")
    if not spec.gpus and (spec.memory or spec.gpu_type):
        raise UserError(
            "memory and a type of GPU are asked for with a number of GPUs, such as --gpus 1"
        )
    if spec.gpus and devices and not spec.where:
        _refuse_devices(spec, devices, sight)


def refuse_environment(env: Mapping[str, str], where: str) -> None:
    """Raises UserError where no process can have this environment, or it is too large for a cluster (`where`; empty: none)."""
    if any("\0" in text for text in (*env, *env.values())):
        raise UserError("an environment cannot hold a NUL character")
    if any(not name or "=" in name for name in env):
        raise UserError("the name of an environment variable cannot be empty or hold a '='")
    if where and sum(len(name) + len(value) for name, value in env.items()) > MAX_SENT:
        raise UserError(
            f"{where} is given up to {MAX_SENT // 1024} KiB of environment: name the variables the job needs"
        )


def refuse_words(spec: Spec) -> None:
    """Raises UserError where what the job is called and noted with is too long to be listed."""
    texts = (spec.name, spec.group, spec.notes, "".join(spec.tags))
    if any("\0" in text or len(text) > MAX_WORDS for text in texts) or len(spec.tags) > MAX_TAGS:
        raise UserError(
            f"a name, a group, notes and all tags hold up to {MAX_WORDS} characters and no NUL, and a job up to {MAX_TAGS} tags"
        )


def _refuse_devices(spec: Spec, devices: Sequence[Device], sight: Availability) -> None:
    real = [d for d in devices if d.kind != "replay"]
    if not real:
        raise UserError(
            "a REPLAY shows the past and runs no jobs. Set the source to auto to run on this machine's devices."
        )
    if spec.gpus > len(real):
        raise UserError(
            f"the job needs {spec.gpus} {'GPU' if spec.gpus == 1 else 'GPUs'}; this machine has {count(real)}"
        )
    typed = [d for d in real if of_type(d, spec)]
    if spec.gpus > len(typed):
        names = ", ".join(sorted({d.name for d in real}))
        raise UserError(
            f"the job needs {spec.gpus} of the type {spec.gpu_type!r}; this machine has {len(typed)} (there is: {names})"
        )
    totals = [
        seen.total
        for d in typed
        if (seen := sight.seen.get(d.id)) is not None and seen.total is not None
    ]
    if len(totals) == len(typed) and sum(spec.memory <= total for total in totals) < spec.gpus:
        where = "one GPU" if spec.gpus == 1 else f"each of {spec.gpus} GPUs"
        raise UserError(
            f"the job needs {amount(spec.memory)} on {where}; the largest here has {amount(max(totals))}"
        )


def bound(spec: Spec, devices: Sequence[Device]) -> Spec:
    """`spec` for devices of the kind there is now, where it needs some and they are known."""
    kind = (
        next((d.kind for d in devices if d.kind != "replay"), "")
        if spec.gpus and not spec.where
        else ""
    )
    return msgspec.structs.replace(spec, kind=kind)
