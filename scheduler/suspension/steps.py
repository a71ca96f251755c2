"""Take a program off the GPU and bring it back: the order of the driver's calls, and its undoing.

Out: lock all processes, then checkpoint all. Back: continue the processes, hold the memory, then
restore and unlock each. A process for which memory is missing in a restore is lost for ever, so the
helper keeps that memory allocated until the moment of the call. No step relies on what an earlier
one reported: the driver is asked for the state of each process, so any step can be repeated, also
by another helper after a crash.
"""

from __future__ import annotations

import asyncio
import time

from gpudeck.language.text import Bytes, Span, Text, phrase
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.suspension import program
from gpudeck.scheduler.suspension.calls import State
from gpudeck.scheduler.suspension.helper_process import CallLost, DriverRefused, HelperProcess
from gpudeck.scheduler.suspension.program import Member, Suspension

LOCK_S = 10.0
"""How long a lock waits for kernels that are under way."""
_SLOWEST = 2**28
"""Bytes a second below which a copy counts as hung; 1.6 to 6 GiB/s were measured."""
_FIXED_S = 30.0
"""What a call that copies memory may take besides."""
_PAUSE_S = 0.2
"""Between two questions for the state of a process whose copy is under way."""
_NOT_READY, _NOT_SUPPORTED = 600, 801
"""CUDA_ERROR_NOT_READY and CUDA_ERROR_NOT_SUPPORTED."""


class Lost(UserError):
    """Report that the driver cannot bring a program back."""


class Unanswered(UserError):
    """Report that the driver did not answer, so that it must be asked again."""


class NoRoom(UserError):
    """Report that a GPU has too little free memory now to bring a program back."""


def limit_copy(member: Member) -> float:
    """Return how long a call may take that copies the memory of a process, in seconds."""
    return _FIXED_S + sum(room.memory for room in member.rooms) / _SLOWEST


async def take_off(helper: HelperProcess, suspension: Suspension) -> None:
    """Free the GPU of a program.

    Raises:
        UserError: The driver refuses. What was done until then is undone by `bring_back`.
    """
    try:
        for member in suspension.members:
            await helper.call("lock", member.pid, wait_s=LOCK_S)
        for member in suspension.members:
            await helper.call("checkpoint", member.pid, limit_s=limit_copy(member))
    except (DriverRefused, CallLost) as e:
        raise UserError(_explain_refusal(e, suspension)) from e


async def bring_back(helper: HelperProcess, suspension: Suspension) -> None:
    """Let a program go on, from whatever state it is in.

    Raises:
        NoRoom: A GPU has too little free memory. The processes are no longer stopped; those that
            use the GPU block at their next call to it.
        Lost: The driver cannot bring a process back.
        Unanswered: It does not answer; the next call goes on.
    """
    try:
        await _bring_back(helper, suspension)
    except CallLost as e:
        raise Unanswered(
            phrase(
                "the driver did not answer in time, so it is not known whether {name} runs. "
                "Resume it again to find out",
                name=suspension.name,
            )
        ) from e


async def _bring_back(helper: HelperProcess, suspension: Suspension) -> None:
    program.proceed(suspension)  # a stopped process does not even tell its state
    living = [member for member in suspension.members if member.lives]
    saved = [member for member in living if await find_state(helper, member) == "checkpointed"]
    try:
        for member in saved:
            await _hold(helper, member, suspension)
    except NoRoom:
        for member in saved:
            await helper.hold(member.pid, ())
        raise
    for member in living:
        await _let_run(helper, member, suspension)


async def find_state(helper: HelperProcess, member: Member) -> State:
    """Return the state of a process; one that the driver does not know runs."""
    try:
        found = (await helper.call("state", member.pid)).state
    except DriverRefused:
        return "running"
    assert found is not None
    return found


async def _hold(helper: HelperProcess, member: Member, suspension: Suspension) -> None:
    if not await helper.hold(member.pid, member.rooms):
        raise NoRoom(
            phrase(
                "{name} needs {size} of GPU memory to go on, which other programs hold now. It "
                "stays suspended, and nothing is lost",
                name=suspension.name,
                size=Bytes(suspension.memory),
            )
        )


async def _let_run(helper: HelperProcess, member: Member, suspension: Suspension) -> None:
    """Restore and unlock a process, whatever is under way.

    A copy goes on without the helper that asked for it; until it has ended, the driver refuses
    other calls.
    """
    until = time.monotonic() + 2 * limit_copy(member)
    while member.lives and (state := await find_state(helper, member)) != "running":
        try:
            if state == "checkpointed":
                await _hold(helper, member, suspension)
                await helper.call("restore", member.pid, limit_s=limit_copy(member), release=True)
            elif state == "locked":
                await helper.call("unlock", member.pid)
        except CallLost:
            continue
        except DriverRefused as e:
            if state == "checkpointed" or time.monotonic() > until:
                raise _report_loss(suspension, e.name) from e
            await asyncio.sleep(_PAUSE_S)
        if state == "failed":
            raise _report_loss(suspension, "its state in the driver is: failed")


def _report_loss(suspension: Suspension, error: str) -> Lost:
    if suspension.job is not None:
        return Lost(
            phrase(
                "the driver could not bring {name} back to the GPU ({error})",
                name=suspension.name,
                error=error,
            )
        )
    return Lost(
        phrase(
            "the driver cannot bring {name} back ({error}). It will not go on: end it with "
            "gpudeck kill {pid}",
            name=suspension.name,
            error=error,
            pid=suspension.pid,
        )
    )


def _explain_refusal(error: DriverRefused | CallLost, suspension: Suspension) -> Text:
    name = suspension.name
    match error:
        case CallLost():
            return phrase(
                "the driver did not answer in time, so {name} was not suspended and runs on",
                name=name,
            )
        case DriverRefused(code=code) if code == _NOT_READY:
            return phrase(
                "{name} was not suspended and runs on: its work on the GPU took longer than {time}",
                name=name,
                time=Span(LOCK_S),
            )
        case DriverRefused(code=code) if code == _NOT_SUPPORTED:
            return phrase(
                "{name} cannot be suspended and runs on: it uses managed memory, memory shared "
                "between processes or several GPUs in a way that the driver cannot move",
                name=name,
            )
        case _:
            return phrase(
                "{name} was not suspended and runs on: the driver refused ({error})",
                name=name,
                error=error.name,
            )
