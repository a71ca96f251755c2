"""The pace of the probe: devices are read fast while a person watches or a GPU is needed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

from gpudeck.scheduler.devices.probe import Hello
from gpudeck.scheduler.devices.supervisor import Supervisor, can_sleep
from gpudeck.scheduler.protocol.devices import Detail
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.telemetry.monitor import ASLEEP, LINGER_S, polling_rate

CHECK_S = 1.0
REPLACED_S = 25.0
"""The time within which a probe that hangs is replaced by one that answers, in seconds."""


class PollingController:
    """Adapt how often the probe reads, and let GPUs sleep while nobody needs them.

    Args:
        supervisor: Runs the probe.
        settings: Those in force at the start.
        needed: Returns True while the queue or the assistant needs a GPU.
        sleep_changed: Takes True when the GPUs go to sleep, and False when they wake.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        settings: Settings,
        needed: Callable[[], bool],
        sleep_changed: Callable[[bool], None],
    ) -> None:
        self._supervisor, self._settings = supervisor, settings
        self._needed, self._sleep_changed = needed, sleep_changed
        self._watchers = 0
        self._last_request = monotonic()
        self._requested = asyncio.Event()
        self._gpus = False
        self._asleep = False
        self._lock = asyncio.Lock()

    async def start(self, settings: Settings) -> None:
        """Put settings in force; a probe of the same source continues."""
        async with self._lock:
            old, self._settings = self._settings, settings
            if old is settings or old.source != settings.source:
                self._gpus = False
                self._wake()
                await self._supervisor.start(settings.source, settings.telemetry_hz)
        self.requested()

    def probe_started(self, hello: Hello) -> None:
        """Take what the probe found."""
        self._gpus = hello.source == "nvml"

    def requested(self, live: bool = True) -> None:
        """Note a request; `live` unless a program collects figures day and night."""
        if live:
            self._last_request = monotonic()
            self._requested.set()

    @contextmanager
    def watched(self, live: bool) -> Iterator[None]:
        """Note a subscription, for as long as it lasts."""
        self._watchers += live
        self._requested.set()
        try:
            yield
        finally:
            self._watchers -= live
            if live:
                self._last_request = monotonic()

    async def details(self) -> tuple[Detail, ...]:
        """Read the details of all devices. Raises UserError where they do not respond."""
        self.requested()
        return await self._supervisor.details()

    async def await_details(self) -> tuple[Detail, ...]:
        """Read the details of all devices for work that takes long anyway, also where a probe hangs
        and is replaced. Raises UserError where they do not respond."""
        self.requested()
        return await self._supervisor.details(REPLACED_S)

    async def run(self) -> None:
        """Adapt the pace, for ever."""
        while True:
            try:
                async with asyncio.timeout(CHECK_S):
                    await self._requested.wait()
            except TimeoutError:
                pass
            self._requested.clear()
            async with self._lock:
                await self._adapt()

    async def _adapt(self) -> None:
        settings = self._settings
        recent = monotonic() - self._last_request < LINGER_S
        needed = self._needed()
        watched = self._watchers > 0 or recent or needed
        wake = needed or settings.laptop_sleep == "off"
        may_sleep = not watched and self._gpus and settings.laptop_sleep != "off"
        hz = polling_rate(
            settings, watched, may_sleep and (settings.laptop_sleep == "on" or can_sleep())
        )
        if hz == ASLEEP:
            if not self._asleep:
                self._asleep = True
                await self._supervisor.stop()
                self._sleep_changed(True)
        elif self._asleep:
            self._wake()
            # these were GPUs: a driver that was unloaded meanwhile must not turn them into a CPU
            source = "nvml" if settings.source == "auto" else settings.source
            await self._supervisor.start(source, hz, wake)
        else:
            self._supervisor.set_rate(hz, wake)

    def _wake(self) -> None:
        if self._asleep:
            self._asleep = False
            self._sleep_changed(False)
