"""Keep a probe process alive: start it, receive its messages, replace it when it hangs or dies."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from gpudeck.language.text import Message, phrase
from gpudeck.scheduler.background import children, crash
from gpudeck.scheduler.devices import runtime_power
from gpudeck.scheduler.devices.probe import (
    DECODE,
    Command,
    Details,
    Hello,
    Occupancy,
    ReadDetails,
    Readings,
    ReadOccupancy,
    Refusal,
    SetRate,
)
from gpudeck.scheduler.protocol.devices import Detail, Reading
from gpudeck.scheduler.protocol.errors import MALFORMED, UserError

SILENCE_S = 5.0
"""A probe that sends nothing for this long (or five intervals) hangs and is replaced."""
_LINE_LIMIT = 16 * 2**20
PATIENCE_S = 5.0
"""The time within which the probe must answer a command."""
_GPU_FOLDERS = Path("/proc/driver/nvidia/gpus")
_ENCODE = msgspec.json.Encoder().encode


class Listener(Protocol):
    """Describe what takes the messages of probes, in the event loop."""

    def probe_started(self, hello: Hello) -> None: ...
    def add(self, message: Readings) -> None: ...
    def add_occupancy(self, readings: Sequence[Reading]) -> None: ...
    def lose_probe(self, problem: Message) -> None: ...


class Supervisor:
    """Run probes one after the other."""

    listener: Listener
    """It is set before the first start."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()
        self.crashed = asyncio.get_running_loop().create_future()
        """Fails with the error of a listener that raised one."""
        self.pid: int | None = None
        self._hz, self._wake = 1.0, False
        self._probe: asyncio.subprocess.Process | None = None
        self._waiters: list[asyncio.Future[tuple[Detail, ...]]] = []

    async def start(self, source: str, hz: float, wake: bool = False) -> None:
        """Watch `source` instead of what is watched now."""
        async with self._lock:
            await self._end_current()
            self._hz, self._wake = hz, wake
            self._task = asyncio.create_task(self._run(source))
            self._task.add_done_callback(lambda task: crash.pass_on(task, self.crashed))

    def set_rate(self, hz: float, wake: bool = False) -> None:
        """Set the readings per second, and whether devices that sleep are woken."""
        if (hz, wake) != (self._hz, self._wake):
            self._hz, self._wake = hz, wake
            self._send(SetRate(hz, wake))

    def request_occupancy(self) -> None:
        """Request memory and processes now; there is no answer while there is no probe."""
        self._send(ReadOccupancy())

    async def details(self, more: float = 0.0) -> tuple[Detail, ...]:
        """Return what is too costly to read all the time.

        Args:
            more: How much longer than PATIENCE_S to wait for an answer, in seconds.

        Raises:
            UserError: No probe answers.
        """
        answer: asyncio.Future[tuple[Detail, ...]] = asyncio.get_running_loop().create_future()
        self._waiters.append(answer)
        self._send(ReadDetails())
        try:
            async with asyncio.timeout(PATIENCE_S + more):
                return await answer
        except TimeoutError:
            raise UserError(
                phrase(
                    "the devices do not answer at the moment. Try again in a while, "
                    "or see: gpudeck doctor"
                )
            ) from None
        finally:
            if answer in self._waiters:
                self._waiters.remove(answer)

    def _send(self, command: Command) -> None:
        """Send a command to the probe, where there is one.

        The next probe is started with the current rate, and receives requests that still wait.
        """
        if (
            self._probe is not None
            and self._probe.stdin is not None
            and self._probe.returncode is None
        ):
            self._probe.stdin.write(_ENCODE(command) + b"\n")

    async def stop(self) -> None:
        """End the probe."""
        async with self._lock:
            await self._end_current()

    async def _end_current(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _run(self, source: str) -> None:
        backoff = children.Backoff()
        while True:
            backoff.begin()
            trouble: Message = phrase("the probe ended and was replaced")
            probe: asyncio.subprocess.Process | None = None
            try:
                probe = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-P", "-m", "gpudeck.scheduler.devices.probe"),
                    *(source, str(self._hz)),
                    *(("wake",) if self._wake else ()),
                    stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
                    limit=_LINE_LIMIT,
                )  # fmt: skip
                self.pid, self._probe = probe.pid, probe
                async for line in children.lines(probe, lambda: max(SILENCE_S, 5 / self._hz)):
                    message = DECODE(line)
                    if isinstance(message, Hello):
                        if message.source == "nvml":
                            source = "nvml"  # while a driver reloads, `auto` would choose the CPU
                        self.listener.probe_started(message)
                        if self._waiters:
                            self._send(ReadDetails())
                    elif isinstance(message, Refusal):
                        trouble = message.message
                    else:
                        self._dispatch(message)
            except TimeoutError:
                trouble = phrase("the probe hung and was replaced")
            except OSError as e:
                trouble = phrase("the probe cannot be started: {problem}", problem=str(e.strerror))
            except MALFORMED as e:
                trouble = phrase(
                    "the probe sent an invalid message ({problem}) and was replaced", problem=str(e)
                )
            finally:
                self._probe = None
                if probe is not None:
                    await children.end(probe)
            self.listener.lose_probe(trouble)
            await backoff.pause()

    def _dispatch(self, message: Readings | Occupancy | Details) -> None:
        if isinstance(message, Readings):
            self.listener.add(message)
        elif isinstance(message, Occupancy):
            self.listener.add_occupancy(message.readings)
        else:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(message.details)


def can_sleep() -> bool:
    """Return True if the driver powers an unused NVIDIA GPU down (D3), but for the probe.

    The kernel is asked: NVML itself would wake the GPU. Where its runtime power management is
    visible, the probe itself lets the GPU sleep (see `gpudeck.scheduler.devices.sleep`).
    """
    if any(gpu.can_sleep for gpu in runtime_power.find_gpus()):
        return False
    return any(_sleep_enabled(file) for file in _GPU_FOLDERS.glob("*/power"))


def _sleep_enabled(file: Path) -> bool:
    try:
        lines = file.read_text(errors="replace").splitlines()
    except OSError:
        return False  # the GPU was just unplugged, or the file may not be read
    return any(line.startswith("Runtime D3 status:") and "Enabled" in line for line in lines)
