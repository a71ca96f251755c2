"""Suspend and resume programs: one after the other, each step on disk before it is done."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from gpudeck.language.text import Bytes, phrase
from gpudeck.scheduler.background.process_stat import boot_id
from gpudeck.scheduler.protocol.errors import NotFound, UserError
from gpudeck.scheduler.suspension import program, steps
from gpudeck.scheduler.suspension.evidence import read_suspensions, write_suspensions
from gpudeck.scheduler.suspension.helper_process import HelperProcess
from gpudeck.scheduler.suspension.host_memory import find_free_memory
from gpudeck.scheduler.suspension.program import Member, Phase, Suspension

_SPARE = 2 * 2**30
"""Bytes of host memory that stay free for other programs."""


class SuspensionService:
    """Own the helper and the list of suspended programs. Runs in the event loop."""

    def __init__(self, file: Path, on_change: Callable[[], None]) -> None:
        """Read the list that an earlier daemon left.

        Raises:
            UserError: The list cannot be read.
        """
        self._file, self._on_change = file, on_change
        self._helper, self._turn = HelperProcess(), asyncio.Lock()
        self._suspensions = {found.pid: found for found in read_suspensions(file)}

    @property
    def suspensions(self) -> tuple[Suspension, ...]:
        """Return the programs that are suspended, or on their way."""
        return tuple(self._suspensions.values())

    async def suspend(self, name: str, members: Sequence[Member]) -> Suspension:
        """Take a program off the GPU; return it once it is off and stopped.

        Args:
            members: The processes that use a GPU, with their memory there.

        Raises:
            UserError: It cannot be suspended; it runs on.
        """
        async with self._turn:
            first = members[0]
            if first.pid in self._suspensions:
                raise UserError(phrase("{name} is suspended already", name=name))
            await self._helper.require()
            found = Suspension(
                name, tuple(members), program.find_tree(first.pid), boot_id(), "suspending",
                time.time(), Path(f"/proc/{first.pid}").stat().st_uid,
            )  # fmt: skip
            self._check_memory(found)
            self._set(found)
            try:
                await steps.take_off(self._helper, found)
                return self._stop(found)
            except UserError as e:
                await self._undo(found, e)
                raise

    async def resume(self, pid: int) -> Suspension:
        """Bring a program back; return it once it runs.

        Raises:
            NotFound: No such program is suspended.
            UserError: There is no room for it now (it stays suspended), or it is lost.
        """
        async with self._turn:
            if (found := self._suspensions.get(pid)) is None:
                raise NotFound(phrase("no suspended program has the process {pid}", pid=pid))
            await self._helper.require()
            self._set_phase(found, "resuming")
            try:
                await steps.bring_back(self._helper, found)
            except steps.NoRoom:
                self._stop(found)
                raise
            except steps.Lost:
                self._forget(found)
                raise
            self._forget(found)
            return found

    async def recover(self) -> None:
        """Go on where an earlier daemon stopped: what was on its way is brought back, and what was
        suspended stays so. Programs that ended are forgotten."""
        for found in self.suspensions:
            if not any(member.lives for member in found.members):
                self._forget(found)
            elif found.phase != "suspended":
                try:
                    await self.resume(found.pid)
                except UserError:
                    continue  # it stays in the list, with its phase

    async def stop(self) -> None:
        """End the helper. Suspended programs stay suspended."""
        await self._helper.stop()

    async def _undo(self, found: Suspension, refusal: UserError) -> None:
        """Let a program go on that was not suspended, or stop it where another one took its room.

        Raises:
            UserError: It stays suspended, or is lost.
        """
        try:
            await steps.bring_back(self._helper, found)
        except steps.NoRoom as e:
            self._stop(found)
            raise e from refusal
        finally:
            if self._suspensions[found.pid].phase == "suspending":
                self._forget(found)

    def _check_memory(self, found: Suspension) -> None:
        free = find_free_memory(found.pid)
        if found.memory > free - _SPARE:
            raise UserError(
                phrase(
                    "{name} holds {size} on the GPU, which must move to the memory of this "
                    "machine; {free} are free there, of which {spare} stay free for other programs",
                    name=found.name,
                    size=Bytes(found.memory),
                    free=Bytes(free),
                    spare=Bytes(_SPARE),
                )
            )

    def _stop(self, found: Suspension) -> Suspension:
        suspended = self._set_phase(found, "suspended")
        program.stop(found.tree)
        return suspended

    def _set_phase(self, found: Suspension, phase: Phase) -> Suspension:
        changed = msgspec.structs.replace(found, phase=phase)
        self._set(changed)
        return changed

    def _forget(self, found: Suspension) -> None:
        """Drop a program that runs or is lost. If the disk keeps it, a later daemon asks the driver
        for its state and drops it then."""
        del self._suspensions[found.pid]
        with suppress(OSError):
            write_suspensions(self._file, self.suspensions)
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
