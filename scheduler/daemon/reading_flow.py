"""Where readings go: to the monitor, the history, alerts, the lease and the queue."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec

from gpudeck.language.text import Message
from gpudeck.scheduler.daemon.gpu_sharing import GpuSharing
from gpudeck.scheduler.daemon.state import State
from gpudeck.scheduler.devices.probe import Hello, Readings
from gpudeck.scheduler.hosts.reader import INTERVAL_S
from gpudeck.scheduler.hosts.service import HostService
from gpudeck.scheduler.lease.service import LeaseService
from gpudeck.scheduler.protocol.devices import Reading
from gpudeck.scheduler.protocol.jobs import held_devices
from gpudeck.scheduler.protocol.snapshot import SLEEP_NOTICE
from gpudeck.scheduler.queue.queue import Queue
from gpudeck.scheduler.services.alert_service import AlertService
from gpudeck.scheduler.services.fault_drain import FaultDrain
from gpudeck.scheduler.services.notices import NoticeBoard
from gpudeck.scheduler.services.polling import PollingController
from gpudeck.scheduler.store.recorder import Recorder
from gpudeck.scheduler.telemetry.monitor import CALM_HZ, Monitor


class ReadingFlow:
    """Pass on what the probe and other machines read."""

    def __init__(
        self,
        state: State,
        queue: Queue,
        monitor: Monitor,
        recorder: Recorder,
        polling: PollingController,
        lease: LeaseService,
        alerts: AlertService,
        faults: FaultDrain,
        sharing: GpuSharing,
        hosts: HostService,
        notices: NoticeBoard,
        *,
        step: Callable[[], None],
        touch: Callable[[], None],
    ) -> None:
        """Pass nothing on yet.

        Args:
            step: starts what can start.
            touch: publishes a new snapshot soon.
        """
        self._state, self._queue, self._monitor, self._recorder = state, queue, monitor, recorder
        self._polling, self._lease, self._alerts, self._faults = polling, lease, alerts, faults
        self._sharing, self._hosts, self._notices = sharing, hosts, notices
        self._step, self._touch = step, touch

    def probe_started(self, hello: Hello) -> None:
        """Take the devices that the probe found."""
        self._state.source = hello.source
        self._polling.probe_started(hello)
        self._monitor.set_devices(hello.devices)
        self._state.latest = {}
        self._notices.set("probe", None)
        self._step()

    def add(self, message: Readings) -> None:
        """Take new readings of all devices."""
        state, running = self._state, self._queue.running
        self._sharing.read(running)
        interval = 1 / min(state.settings.telemetry_hz, CALM_HZ)
        shown = self._monitor.add(message.readings, running)
        self._recorder.add([reading for reading in shown if reading.values], interval)
        self._queue.add_readings(message.readings)
        state.latest = {reading.device: reading for reading in message.readings}
        state.settings = self._faults.add(message.readings, self._monitor.devices, state.settings)
        self.check_alerts()
        self._lease.add_readings(message.readings, state.latest, state.settings)
        if self._queue.waits_for_devices:  # memory may be free, or another's process gone
            self._step()
        self._touch()

    def add_occupancy(self, readings: Sequence[Reading]) -> None:
        """Take memory and processes of devices, read between two whole readings."""
        latest = self._state.latest
        for new in readings:
            if (old := latest.get(new.device)) is not None:
                latest[new.device] = msgspec.structs.replace(
                    old,
                    time=new.time,
                    values={**old.values, **new.values},
                    processes=new.processes,
                    drawing=new.drawing,
                )
        self._lease.add_readings(readings, latest, self._state.settings)
        if self._queue.awaits_reading:
            self._step()

    def add_of_host(self, readings: Sequence[Reading]) -> None:
        """Take new readings of another machine; none where it can no longer be reached."""
        self._recorder.add(readings, INTERVAL_S)
        if readings:
            self.check_alerts()
        self._touch()

    def check_hosts(self) -> None:
        """Raise the alert of a machine that is unreachable, also while no device is read."""
        if any(host.problem is not None for host in self._hosts.states()):
            self.check_alerts()
            self._touch()

    def check_alerts(self) -> None:
        """Raise and clear alerts by the newest readings."""
        holders = [job for job in self._queue.running if held_devices(job)]
        devices = (*self._monitor.devices, *self._hosts.devices)
        readings = {**self._state.latest, **self._hosts.readings}
        hosts = self._hosts.states()
        self._alerts.check(devices, readings, holders, self._state.settings, time.time(), hosts)

    def lose_probe(self, problem: Message) -> None:
        """Take note that the probe does not answer."""
        self._forget()
        self._notices.set("probe", problem)
        self._touch()

    def sleep_changed(self, asleep: bool) -> None:
        """Take note that the devices are left asleep, or are read again."""
        if asleep:
            self._forget()
        self._notices.set("sleep", SLEEP_NOTICE if asleep else None)

    def _forget(self) -> None:
        self._monitor.lose_probe()
        self._state.latest = {}
