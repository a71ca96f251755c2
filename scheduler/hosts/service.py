"""The machines in the settings: a connection to each, and all of their devices."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping

from gpudeck.scheduler.background import crash
from gpudeck.scheduler.hosts.connection import HostConnection
from gpudeck.scheduler.protocol.devices import Device, Reading
from gpudeck.scheduler.protocol.settings import HostSettings
from gpudeck.scheduler.protocol.snapshot import HostState


class HostService:
    """Read the devices of other machines.

    Args:
        add_readings: Takes the new readings of one machine; none where it was lost.
        forget: Takes the ids of all devices of a machine that was removed.
    """

    def __init__(
        self,
        add_readings: Callable[[tuple[Reading, ...]], None],
        forget: Callable[[Collection[str]], None],
    ) -> None:
        self._add_readings, self._forget = add_readings, forget
        self._connections: dict[str, HostConnection] = {}
        self._lock = asyncio.Lock()
        self.crashed = asyncio.get_running_loop().create_future()
        """Fails with the error of ours that a machine caused."""

    @property
    def devices(self) -> tuple[Device, ...]:
        """Return the devices of all machines, as far as they are known."""
        moments = (c.moment for c in self._connections.values())
        return tuple(device for moment in moments if moment for device in moment.devices)

    @property
    def readings(self) -> dict[str, Reading]:
        """Return the newest reading of each device that can be reached."""
        found: dict[str, Reading] = {}
        for connection in self._connections.values():
            found |= connection.readings
        return found

    def states(self) -> tuple[HostState, ...]:
        """Return all machines, by name."""
        return tuple(c.state() for _, c in sorted(self._connections.items()))

    async def serve(self, wanted: Mapping[str, HostSettings]) -> None:
        """Connect to these machines only."""
        async with self._lock:
            for name, connection in tuple(self._connections.items()):
                if connection.settings != wanted.get(name):
                    await connection.stop()
                    del self._connections[name]
                    self._forget(connection.named)
            for name, settings in wanted.items():
                if name not in self._connections:
                    made = HostConnection(name, settings, self._add_readings)
                    self._connections[name] = made
                    made.start(lambda task: crash.pass_on(task, self.crashed))

    async def stop(self) -> None:
        """End all connections."""
        await asyncio.gather(*(c.stop() for c in self._connections.values()))
