"""One machine: its connection over ssh, kept up with pauses that grow, and what it sent last."""

from __future__ import annotations

import asyncio
import time
from asyncio.subprocess import Process
from collections.abc import Callable
from contextlib import suppress

from gpudeck.language.text import Message, phrase
from gpudeck.scheduler.background import children
from gpudeck.scheduler.hosts import ssh
from gpudeck.scheduler.hosts.decoder import (
    MAX_DEVICES,
    MAX_LINE,
    InvalidMessage,
    Messages,
    Moment,
)
from gpudeck.scheduler.protocol.busy_causes import (
    Asleep,
    Loaded,
    NoReading,
    OtherProcesses,
    Unreachable,
)
from gpudeck.scheduler.protocol.devices import Reading
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.settings import HostSettings
from gpudeck.scheduler.protocol.snapshot import Busy, DeviceState, HostState, Idle

SILENCE_S = 20.0
"""A machine that sends no reading for this long counts as unreachable."""
FIRST_S = 2.0 * ssh.CONNECT_S
"""The time for the connection and the first reading."""
PAUSES_S = (2.0, 5.0, 15.0, 30.0, 60.0)
"""The pauses before the next attempt: the longer, the more of them failed."""
LEAST_S = 0.5
"""The least time between two lines that are read: a flood waits in its pipe."""
MAX_NAMED = 2 * MAX_DEVICES
"""Devices that a machine may name in all: GPUs are exchanged and divided anew, but seldom. What is
kept of each stays until the machine is removed."""
BUSY_PERCENT = 5.0
_KEPT_ERRORS = 4096


class HostConnection:
    """Keep the connection to one machine, and its newest readings.

    Args:
        name: The name that the user gave it.
        settings: How to reach it.
        changed: Called in the loop after each moment, and when it is lost; takes the readings.
    """

    def __init__(
        self,
        name: str,
        settings: HostSettings,
        changed: Callable[[tuple[Reading, ...]], None],
    ) -> None:
        self.name, self.settings, self._changed = name, settings, changed
        self.moment: Moment | None = None
        """What it sent last."""
        self.problem: Message | None = phrase("it was not reached yet")
        self.named = set[str]()
        """The ids of all devices that it has named."""
        self._since = time.time()
        self._quiet: dict[str, float] = {}
        """Since when each idle device is idle."""
        self._task: asyncio.Task[None] | None = None

    @property
    def readings(self) -> dict[str, Reading]:
        """Return the newest reading of each device; none while the machine is unreachable."""
        if self.problem is not None or self.moment is None:
            return {}
        return {reading.device: reading for reading in self.moment.readings}

    def state(self) -> HostState:
        """Return the machine with its devices, as the snapshot shows it."""
        moment, readings = self.moment, self.readings
        devices = moment.devices if moment else ()
        return HostState(
            self.name,
            self.settings.address,
            self._since,
            self.problem,
            tuple(DeviceState(d, r := readings.get(d.id), self._use(r)) for d in devices),
            moment.how if moment else "",
            moment.deck if moment else "",
        )

    def _use(self, reading: Reading | None) -> Idle | Busy:
        if self.problem is not None:
            return Busy(Unreachable(self._since, self.problem))
        if reading is None:
            return Busy(NoReading())
        if reading.asleep is not None:
            return Busy(Asleep(reading.asleep))
        if reading.processes:
            return Busy(OtherProcesses(len(reading.processes)))
        if (util := reading.values.get("util", 0.0)) > BUSY_PERCENT:
            return Busy(Loaded(util))
        return Idle(self._quiet.get(reading.device, reading.time))

    def start(self, ended: Callable[[asyncio.Task[None]], None]) -> None:
        """Connect, and connect again whenever the connection ends."""
        self._task = asyncio.create_task(self._keep())
        self._task.add_done_callback(ended)

    async def stop(self) -> None:
        """End the connection for good."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _keep(self) -> None:
        failures = 0
        while True:
            before = self.moment
            problem = await self._attempt()
            failures = 0 if self.moment is not before else failures + 1
            if self.problem is None:
                self._since = time.time()
            self.problem = problem
            self._changed(())
            await asyncio.sleep(PAUSES_S[min(failures, len(PAUSES_S) - 1)])

    async def _attempt(self) -> Message:
        """Read the machine until the connection ends; return why it did."""
        try:
            child = await asyncio.create_subprocess_exec(
                *ssh.reading_command(self.settings),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=MAX_LINE,
            )
        except OSError as e:
            return phrase("ssh cannot be started: {quote}", quote=str(e.strerror))
        errors = bytearray()
        reading_errors = asyncio.create_task(_keep_last(child, errors))
        try:
            await self._receive(child)
            with suppress(TimeoutError):
                async with asyncio.timeout(children.END_S):
                    await child.wait()
                    await reading_errors
            return ssh.problem(self.settings, bytes(errors), child.returncode or 0)
        except TimeoutError:
            return ssh.problem(self.settings, bytes(errors), None)
        except InvalidMessage as e:
            return e.why
        except ValueError:
            return phrase("it sent a line of over a mebibyte")
        finally:
            reading_errors.cancel()
            await asyncio.gather(reading_errors, return_exceptions=True)
            await children.end(child)

    async def _receive(self, child: Process) -> None:
        """Take what the machine sends until it ends.

        Raises TimeoutError, InvalidMessage, and ValueError where a line is too long.
        """
        assert child.stdout is not None
        messages, patience = Messages(self.name), FIRST_S
        while True:
            async with asyncio.timeout(patience):
                moment = None
                while moment is None:
                    started = time.monotonic()
                    if not (line := await child.stdout.readline()):
                        return
                    moment = messages.add(line, time.time())
                    if moment is None:  # a login shell prints a few lines; more of them wait
                        await asyncio.sleep(0.01)
            self._take(moment)
            patience = SILENCE_S
            await asyncio.sleep(max(LEAST_S - (time.monotonic() - started), 0.0))

    def _take(self, moment: Moment) -> None:
        named = self.named.union(device.id for device in moment.devices)
        if len(named) > MAX_NAMED:
            raise InvalidMessage(
                phrase(
                    "it has named over {n} different devices. If it has them, remove it, and add"
                    " it again",
                    n=MAX_NAMED,
                )
            )
        self.named = named
        if self.problem is not None:
            self.problem, self._since = None, time.time()
        self.moment = moment
        idle = (r for r in moment.readings if isinstance(self._use(r), Idle))
        self._quiet = {r.device: self._quiet.get(r.device, r.time) for r in idle}
        self._changed(moment.readings)


async def first_moment(settings: HostSettings) -> Moment:
    """Connect to a machine, and return the first moment that it sends. Raises UserError."""
    arrived = asyncio.Event()
    connection = HostConnection("this", settings, lambda _: arrived.set())
    connection.start(lambda _: None)
    try:
        await arrived.wait()
    finally:
        await connection.stop()
    if connection.problem is not None or connection.moment is None:
        problem = connection.problem or ""
        raise UserError(
            phrase("{name} cannot be read: {problem}", name=settings.address, problem=problem)
        )
    return connection.moment


async def _keep_last(child: Process, kept: bytearray) -> None:
    """Keep the end of what ssh writes to its standard error."""
    assert child.stderr is not None
    while data := await child.stderr.read(_KEPT_ERRORS):
        kept += data
        del kept[:-_KEPT_ERRORS]
        await asyncio.sleep(0.05)  # a flood waits in its pipe
