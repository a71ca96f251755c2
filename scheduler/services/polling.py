"""The probe kept at the pace that is needed: who looks at the devices, and so how often they are read, or left to sleep."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

from scheduler.devices.probe import Hello
from scheduler.devices.supervisor import Supervisor, can_sleep
from scheduler.protocol.devices import Detail
from scheduler.protocol.settings import Settings
from scheduler.telemetry.monitor import ASLEEP, LINGER_S, polling_rate

CHECK_S = 1.0


class PollingController:
    """`worked()`: whether the queue or the assistant needs a GPU. `slept(asleep)` is called whenever the GPUs go to sleep or wake."""

    def __init__(
        self,
        supervisor: Supervisor,
        settings: Settings,
        worked: Callable[[], bool],
        slept: Callable[[bool], None],
    ) -> None:
        self._supervisor, self._settings, self._worked, self._slept = (
            supervisor,
            settings,
            worked,
            slept,
        )
        self._live = 0
        self._asked = monotonic()
        self._request = asyncio.Event()
        self._gpus = False
        self._asleep = False
        self._turn = asyncio.Lock()

    async def start(self, settings: Settings) -> None:
        """Watch what `settings` name, from now on; what is watched already goes on."""
        async with self._turn:
            old, self._settings = self._settings, settings
            if old is settings or old.source != settings.source:
                self._gpus = False
                self._wake()
                await self._supervisor.start(settings.source, settings.telemetry_hz)
        self.requested()

    def hello(self, hello: Hello) -> None:
        """What the probe found."""
        self._gpus = hello.source == "nvml"

    def requested(self, live: bool = True) -> None:
        """Somebody asked for something. `live`: who looks, and is no program that collects figures day and night."""
        if live:
            self._asked = monotonic()
            self._request.set()

    @contextmanager
    def watched(self, live: bool) -> Iterator[None]:
        """Somebody looks, as long as this lasts."""
        self._live += live
        self._request.set()
        try:
            yield
        finally:
            self._live -= live
            self._asked = monotonic() if live else self._asked

    async def details(self) -> tuple[Detail, ...]:
        """Raises UserError where the devices do not answer."""
        self.requested()
        return await self._supervisor.details()

    async def attend(self) -> None:
        """Keep the pace that is needed."""
        while True:
            try:
                async with asyncio.timeout(CHECK_S):
                    await self._request.wait()
            except TimeoutError:
                pass
            self._request.clear()
            async with self._turn:
                await self._adapt()

    async def _adapt(self) -> None:
        watched = self._live > 0 or monotonic() - self._asked < LINGER_S or self._worked()
        may_sleep = not watched and self._gpus and self._settings.laptop_sleep != "off"
        hz = polling_rate(
            self._settings,
            watched,
            may_sleep and (self._settings.laptop_sleep == "on" or can_sleep()),
        )
        if hz == ASLEEP:
            if not self._asleep:
                self._asleep = True
                await self._supervisor.stop()
                self._slept(True)
        elif self._asleep:
            self._wake()
            # these were GPUs: a driver that was unloaded meanwhile must not turn them into a CPU
            await self._supervisor.start(
                "nvml" if self._settings.source == "auto" else self._settings.source, hz
            )
        else:
            self._supervisor.set_rate(hz)

    def _wake(self) -> None:
        if self._asleep:
            self._asleep = False
            self._slept(False)
