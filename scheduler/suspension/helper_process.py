"""Keep the helper process: start it when it is needed, limit each call, replace one that hangs."""

from __future__ import annotations

import asyncio
import itertools
import sys

import msgspec

from gpudeck.language.text import Text, phrase
from gpudeck.scheduler.background import children
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.suspension.calls import (
    Answer,
    Call,
    Capability,
    Command,
    Done,
    DriverCall,
    HoldRoom,
    Room,
)

START_S = 20.0
"""How long the start may take; initializing the driver takes up to 3 s on some machines."""
CALL_S = 10.0
"""How long a call may take that copies no memory."""
_DECODE = msgspec.json.Decoder(Answer).decode
_ENCODE = msgspec.json.Encoder().encode


class _HelperGone(Exception):
    """Signal that the helper ended during a call."""


class DriverRefused(Exception):
    """Report that the driver refused a call."""

    def __init__(self, call: Call, pid: int, code: int, name: str) -> None:
        super().__init__(f"{call} of process {pid}: {name} ({code})")
        self.code, self.name = code, name


class CallLost(Exception):
    """Report that a call has no answer, as it hung or the helper ended.

    What it did must be asked of the driver, by another helper.
    """

    def __init__(self, command: Command) -> None:
        call = command.call if isinstance(command, DriverCall) else "hold"
        super().__init__(f"{call} of process {command.pid} has no answer")


def describe_problem(capability: Capability) -> Text:
    """Return why nothing can be suspended here, and what to do."""
    match capability.problem:
        case "no driver":
            return phrase("this machine has no NVIDIA driver ({detail})", detail=capability.detail)
        case "old driver":
            return phrase(
                "the NVIDIA driver is too old to suspend programs; install driver 570 or newer"
            )
        case "ptrace":
            return phrase(
                "the kernel lets only an administrator suspend programs (ptrace_scope is {value}). "
                "To allow it: sudo sysctl kernel.yama.ptrace_scope=1",
                value=capability.detail,
            )
        case _:
            return phrase("the NVIDIA driver does not start: {detail}", detail=capability.detail)


class HelperProcess:
    """Make calls to the driver through a child process. Runs in the event loop."""

    def __init__(self) -> None:
        self._ids = itertools.count(1)
        self._child: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._waiting: dict[int, asyncio.Future[Done]] = {}
        self._starting = asyncio.Lock()
        self._capability: Capability | None = None

    async def check(self) -> Capability:
        """Start the helper if none runs, and return what this machine can do."""
        async with self._starting:
            if self._child is None or self._child.returncode is not None:
                await self._start()
            assert self._capability is not None
            return self._capability

    async def require(self) -> None:
        """Raise UserError where programs cannot be suspended on this machine."""
        capability = await self.check()
        if capability.problem:
            raise UserError(describe_problem(capability))

    async def call(
        self, call: Call, pid: int, *, wait_s: float = 0.0, limit_s: float | None = None,
        release: bool = False,
    ) -> Done:  # fmt: skip
        """Make one call to the driver.

        Args:
            wait_s: How long a lock waits for kernels that are under way.
            limit_s: How long the call may take beyond that; CALL_S if omitted.
            release: Release the room that is held, immediately before the call.

        Raises:
            DriverRefused: The driver returned an error.
            CallLost: The call did not return in its time, or the helper ended.
        """
        limit = wait_s + (CALL_S if limit_s is None else limit_s)
        command = DriverCall(next(self._ids), call, pid, round(1000 * wait_s), release)
        done = await self._ask(command, limit)
        if done.code:
            raise DriverRefused(call, pid, done.code, done.name)
        return done

    async def hold(self, pid: int, rooms: tuple[Room, ...]) -> bool:
        """Keep memory free of other programs until a call for the process releases it; return
        whether there is enough. Raises CallLost."""
        done = await self._ask(HoldRoom(next(self._ids), pid, rooms), CALL_S)
        return done.code == 0

    async def stop(self) -> None:
        """End the helper. What is suspended stays so."""
        child, self._child = self._child, None
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
        if child is not None:
            await children.end(child)

    async def _ask(self, command: Command, limit_s: float) -> Done:
        await self.require()
        assert self._child is not None and self._child.stdin is not None
        answer: asyncio.Future[Done] = asyncio.get_running_loop().create_future()
        self._waiting[command.id] = answer
        self._child.stdin.write(_ENCODE(command) + b"\n")
        try:
            async with asyncio.timeout(limit_s):
                return await answer
        except TimeoutError:
            await self.stop()
            raise CallLost(command) from None
        except _HelperGone:
            raise CallLost(command) from None
        finally:
            self._waiting.pop(command.id, None)

    async def _start(self) -> None:
        await self.stop()
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "gpudeck.scheduler.suspension.helper"),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert child.stdout is not None
        self._child = child
        try:
            async with asyncio.timeout(START_S):
                line = await child.stdout.readline()
        except TimeoutError:
            line = b""
        if not line:
            await self.stop()
            raise UserError(phrase("the NVIDIA driver does not answer. See: gpudeck doctor"))
        first = _DECODE(line)
        assert isinstance(first, Capability)
        self._capability = first
        self._reader = asyncio.create_task(self._read(child))

    async def _read(self, child: asyncio.subprocess.Process) -> None:
        """Deliver answers until the child ends; what waits then hears that the helper is gone."""
        assert child.stdout is not None
        try:
            while line := await child.stdout.readline():
                done = _DECODE(line)
                assert isinstance(done, Done)
                if (answer := self._waiting.get(done.id)) is not None and not answer.done():
                    answer.set_result(done)
        finally:
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(_HelperGone())
