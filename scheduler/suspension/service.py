"""Suspend and resume programs: one after the other, each step on disk before it is done."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from gpudeck.language.text import Bytes, phrase
from gpudeck.scheduler.protocol.devices import Detail, Process
from gpudeck.scheduler.protocol.errors import NotFound, UserError
from gpudeck.scheduler.protocol.suspended import Phase, SuspendedProgram
from gpudeck.scheduler.suspension import program, steps
from gpudeck.scheduler.suspension.evidence import read_suspensions, write_suspensions
from gpudeck.scheduler.suspension.helper_process import HelperProcess
from gpudeck.scheduler.suspension.host_memory import find_free_memory
from gpudeck.scheduler.suspension.program import Suspension

_ROOT = 0
T = TypeVar("T")
Found = tuple[Process, Sequence[Detail]]
"""The first process of a program, and the details that list it."""


class SuspensionService:
    """Own the helper and the list of suspended programs. Runs in the event loop."""

    def __init__(self, file: Path, on_change: Callable[[], None], spare: Callable[[], int]) -> None:
        """Suspend nothing yet.

        Args:
            file: Where the list of what is suspended is kept.
            on_change: Called after each change of the list.
            spare: Returns the bytes of host memory that stay free for other programs.
        """
        self._file, self._on_change, self._spare = file, on_change, spare
        self._helper, self._turn = HelperProcess(), asyncio.Lock()
        self._suspensions: dict[int, Suspension] = {}
        self._steps = set[asyncio.Task[Any]]()
        self.recovered = False
        """Whether the list of an earlier daemon was read."""

    def describe(self) -> tuple[SuspendedProgram, ...]:
        """Return the programs that are suspended or on their way, and forget those that ended."""
        for found in tuple(self._suspensions.values()):
            if found.phase == "suspended" and not found.lives:
                self._forget(found)
        return tuple(map(_describe, self._suspensions.values()))

    def of_jobs(self) -> dict[int, Suspension]:
        """Return what is kept of suspended jobs, by their numbers."""
        return {each.job: each for each in self._suspensions.values() if each.job is not None}

    async def suspend(
        self, look: Callable[[], Awaitable[Found]], user: int | None
    ) -> SuspendedProgram:
        """Take a program off the GPU; return it once it is off and stopped.

        Args:
            look: Returns its first process, and the details that list it. It is called once nothing
                else is on its way, and may raise UserError.
            user: Who asks, and may suspend their own programs only; None or 0 for any.

        Raises:
            NotFound: It has ended.
            UserError: It cannot be suspended; it runs on.
        """

        async def find() -> Suspension:
            process, details = await look()
            found = program.find_program(process, details)
            _check_owner(found, user)
            return found

        return _describe(*await self.take_off(find))

    async def take_off(self, find: Callable[[], Awaitable[Suspension]]) -> tuple[Suspension, float]:
        """Take a program off the GPU; return it once it is stopped, and how many seconds that took.

        Args:
            find: Returns the program, and what it holds now. It is called once nothing else is on
                its way.

        Raises UserError where it cannot be suspended; it runs on.
        """
        return await self._finish(self._take_off(find))

    async def _take_off(
        self, find: Callable[[], Awaitable[Suspension]]
    ) -> tuple[Suspension, float]:
        async with self._turn:
            self._check_list()
            found = await find()
            self.describe()  # forgets one that ended, whose number this program may have
            if found.pid in self._suspensions:
                raise UserError(phrase("{name} is suspended already", name=found.name))
            if found.members:
                await self._helper.require()
            self._check_memory(found)
            if any(map(program.is_stopped, found.members)):
                raise UserError(
                    phrase(
                        "{name} is stopped, as by Ctrl+Z or a debugger, so the driver cannot "
                        "suspend it. Let it run first",
                        name=found.name,
                    )
                )
            started = time.monotonic()
            self._set(found)
            try:
                await steps.take_off(self._helper, found)
                suspended = self._stop(found)
            except UserError as e:
                try:
                    await self._return(found)
                except UserError as worse:
                    raise worse from e
                raise
            return suspended, time.monotonic() - started

    async def resume(self, pid: int, user: int | None) -> SuspendedProgram:
        """Bring a program back; return it once it runs.

        Args:
            pid: Its first process.
            user: Who asks, and may resume their own programs only; None or 0 for any.

        Raises:
            NotFound: No such program is suspended.
            UserError: There is no room for it now (it stays suspended), or it is lost.
        """
        return await self._finish(self._resume(pid, user))

    async def _resume(self, pid: int, user: int | None) -> SuspendedProgram:
        async with self._turn:
            if (found := self._suspensions.get(pid)) is None:
                raise NotFound(phrase("no suspended program has the process {pid}", pid=pid))
            _check_owner(found, user)
            if found.members:
                await self._helper.require()
            started = time.monotonic()
            await self._return(self._set_phase(found, "resuming"))
            return _describe(found, time.monotonic() - started)

    async def recover(self) -> None:
        """Go on where an earlier daemon stopped: what was on its way is brought back, and what was
        suspended stays so. Programs that ended are forgotten. May be called again.

        Raises:
            UserError: The list of an earlier daemon cannot be read, or a program cannot be
                brought back. The others are.
        """
        if not self.recovered:
            self._suspensions = {found.pid: found for found in read_suspensions(self._file)}
            self.recovered = True
            for found in self._suspensions.values():
                if found.phase == "suspended" and found.lives:
                    program.stop(found)  # that daemon may have ended just before it did
        problem: UserError | None = None
        for found in tuple(self._suspensions.values()):
            if not found.lives:
                self._forget(found)
            elif found.phase != "suspended":
                try:
                    await self.resume(found.pid, None)
                except UserError as e:
                    problem = e
        if problem is not None:
            raise problem

    async def stop(self) -> None:
        """End the helper once nothing is on its way. Suspended programs stay suspended."""
        await asyncio.gather(*self._steps, return_exceptions=True)
        await self._helper.stop()

    async def _finish(self, step: Coroutine[None, None, T]) -> T:
        """Wait for a step, which ends also if the client that asked for it is gone."""
        task = asyncio.create_task(step)
        self._steps.add(task)
        task.add_done_callback(self._steps.discard)
        return await asyncio.shield(task)

    async def _return(self, found: Suspension) -> None:
        """Let a program go on, from whatever state it is in, and forget it then.

        Raises:
            UserError: It stays suspended, or is lost, or the driver does not answer: then it is
                tried again by the next call.
        """
        try:
            await steps.bring_back(self._helper, found)
        except steps.NoRoom:
            self._stop(found)
            raise
        except steps.Lost:
            if found.job is not None:
                program.kill(found)
            self._forget(found)
            raise
        self._forget(found)

    def _check_list(self) -> None:
        """Raise UserError while the list of an earlier daemon, which is to be kept, is unread."""
        if not self.recovered:
            raise UserError(
                phrase(
                    "nothing is suspended until the list of what an earlier daemon suspended, "
                    "{file}, can be read",
                    file=str(self._file),
                )
            )

    def _check_memory(self, found: Suspension) -> None:
        """Raise UserError where the host has too little memory for what the GPU holds."""
        free, spare = find_free_memory(found.pid), self._spare()
        if found.memory > free - spare:
            raise UserError(
                phrase(
                    "{name} holds {size} on the GPU, which must move to the memory of this "
                    "machine; {free} are free there, of which {spare} stay free for other programs",
                    name=found.name,
                    size=Bytes(found.memory),
                    free=Bytes(free),
                    spare=Bytes(spare),
                )
            )

    def _stop(self, found: Suspension) -> Suspension:
        suspended = self._set_phase(found, "suspended")
        program.stop(found)
        return suspended

    def _set_phase(self, found: Suspension, phase: Phase) -> Suspension:
        changed = msgspec.structs.replace(found, phase=phase)
        self._set(changed)
        return changed

    def _forget(self, found: Suspension) -> None:
        """Drop a program that runs or is lost. If the disk keeps it, a later daemon asks the driver
        for its state and drops it then."""
        self._suspensions.pop(found.pid, None)  # one that ended may be gone already
        with suppress(OSError):
            write_suspensions(self._file, tuple(self._suspensions.values()))
        self._on_change()

    def _set(self, found: Suspension) -> None:
        suspensions = {**self._suspensions, found.pid: found}
        try:
            write_suspensions(self._file, tuple(suspensions.values()))
        except OSError as e:
            raise UserError(
                phrase(
                    "the list of suspended programs, {file}, cannot be written: {error}",
                    file=str(self._file),
                    error=e.strerror or str(e),
                )
            ) from e
        self._suspensions = suspensions
        self._on_change()


def _describe(found: Suspension, seconds: float = 0.0) -> SuspendedProgram:
    return SuspendedProgram(
        *(found.pid, found.name, found.memory, found.phase, found.since, found.user),
        job=found.job,
        seconds=seconds,
    )


def _check_owner(found: Suspension, user: int | None) -> None:
    if user not in (None, _ROOT, found.user):
        raise UserError(phrase("{name} belongs to another user", name=found.name))
