"""The lease service decides who may have a GPU besides the jobs, and until when."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence

from gpudeck.language.text import Message, Text, joined, phrase
from gpudeck.scheduler.lease.lease import Lease, end_stray
from gpudeck.scheduler.protocol import busy_causes
from gpudeck.scheduler.protocol.devices import Reading
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.protocol.snapshot import DeviceState, Idle
from gpudeck.scheduler.telemetry.monitor import Monitor

Latest = Mapping[str, Reading]
"""The newest reading of each device."""

KILL_S = 0.1
"""The time between an eviction and the SIGKILL."""
WATCH_S = 0.2
"""The interval between readings of a leased device."""
RELEASE_S = 0.01
"""The same once the process has ended."""


class LeaseService:
    """Grant at most one lease at a time, and evict it where anybody else needs the device.

    Args:
        monitor: Judges whether the assistant may stay.
        request_reading: Requests a reading, which is then given to `add_readings`.
        released: Called once a device is free again.
        changed: Called when a lease is granted or evicted.
        lent_by_another: Returns whether another queue has lent a device to its own assistant.
    """

    def __init__(
        self,
        monitor: Monitor,
        request_reading: Callable[[], None],
        released: Callable[[], None],
        changed: Callable[[], None],
        lent_by_another: Callable[[str], bool] = lambda device: False,
    ) -> None:
        self._lent_by_another = lent_by_another
        self._monitor, self._request_reading = monitor, request_reading
        self._released, self._changed = released, changed
        self._lease: Lease | None = None

    @property
    def device(self) -> str | None:
        """Return the id of the leased device, until it is free again."""
        return None if self._lease is None else self._lease.device

    @property
    def problem(self) -> str | None:
        """Return a notice where the assistant has ended and still holds its memory."""
        if self._lease is None or not self._lease.overdue:
            return None
        return (
            f"the assistant (pid {self._lease.pid}) has ended, but its GPU still lists it: "
            "jobs there wait until the driver releases it"
        )

    def grant(
        self,
        states: Sequence[DeviceState],
        latest: Latest,
        memory: int,
        pid: int,
        evict: Callable[[Message], None],
    ) -> str:
        """Lease an idle GPU to a process, and return the device's id.

        Jobs get the first GPU and the assistant the last.

        Args:
            states: All devices.
            latest: Their newest readings.
            memory: Bytes that must be free.
            pid: The process.
            evict: Tells the process later why it must end.

        Raises:
            UserError: There is no such GPU; the message says why.
        """
        if self._lease is not None:
            raise UserError(phrase("the assistant has a GPU already, or is just leaving it"))
        gpus = [state for state in states if state.device.kind == "nvidia"]
        if not gpus and any(state.device.kind == "replay" for state in states):
            raise UserError(
                phrase(
                    "a recording is shown (REPLAY), on which nothing runs. Set the "
                    "model device to cpu"
                )
            )
        if not gpus:
            raise UserError(phrase("no NVIDIA GPU is watched here. Set the model device to cpu"))
        refusals = []
        for state in reversed(gpus):
            reading = latest.get(state.device.id)
            if not isinstance(state.use, Idle):
                refusals.append(_refusal(state, state.use.reason))
            elif reading is None:
                refusals.append(_refusal(state, phrase("no current reading")))
            elif reading.values.get("mem_free", float(memory)) < memory:
                refusals.append(_refusal(state, phrase("not enough memory is free")))
            else:
                self._grant(reading, pid, evict)
                return state.device.id
        raise UserError(phrase("{text}", text=joined(reversed(refusals), "; ")))

    def add_readings(self, readings: Sequence[Reading], latest: Latest, settings: Settings) -> None:
        """Evict the assistant, or release its device, according to new readings.

        An assistant without a lease is killed, unless another queue gave it one.
        """
        for reading in readings:
            if self._lease is not None and reading.device == self._lease.device:
                self._lease.add_reading(reading)
                self._release(self._lease)
            elif not self._lent_by_another(reading.device):
                for process in reading.processes:
                    if process.assistant:
                        end_stray(process.pid)
        self.review(latest, settings)

    def review(self, latest: Latest, settings: Settings) -> None:
        """Evict the assistant where quiet hours or a booking began, or nothing is read now."""
        lease = self._lease
        if lease is not None and lease.running and not lease.evicted:
            cause = self._monitor.eviction_cause(
                lease.device, latest.get(lease.device), settings, time.time()
            )
            if cause is not None:
                self.evict(lease.device, busy_causes.explain(cause))

    def evict(self, device: str, reason: Message) -> None:
        """Evict the assistant from a device where it has that, and was not evicted yet."""
        lease = self._lease
        if lease is None or lease.device != device or lease.evicted or not lease.running:
            return
        lease.evict(reason)
        asyncio.get_running_loop().call_later(KILL_S, lease.kill)
        self._monitor.record_eviction(device, time.time())
        self._changed()

    def _grant(self, reading: Reading, pid: int, evict: Callable[[Message], None]) -> None:
        try:
            self._lease = lease = Lease(reading, pid, evict)
        except OSError as e:
            raise UserError(
                phrase(
                    "process {pid}, which asks for a GPU, cannot be watched: {error}",
                    pid=pid,
                    error=str(e.strerror),
                )
            ) from e
        loop = asyncio.get_running_loop()
        loop.add_reader(lease.fd, self._process_ended, lease)
        loop.call_soon(self._watch, lease)
        self._changed()

    def _watch(self, lease: Lease) -> None:
        """Read the device at intervals, until the lease is over."""
        if lease is not self._lease:
            return
        self._request_reading()
        self._release(lease)
        hurry = not lease.running and not lease.overdue
        delay = RELEASE_S if hurry else WATCH_S
        asyncio.get_running_loop().call_later(delay, self._watch, lease)

    def _process_ended(self, lease: Lease) -> None:
        asyncio.get_running_loop().remove_reader(lease.fd)
        lease.end()
        self._watch(lease)

    def _release(self, lease: Lease) -> None:
        if lease is self._lease and lease.is_over():
            self._lease = None
            self._released()


def _refusal(state: DeviceState, why: Message) -> Text:
    return phrase("{device}: {why}", device=state.device.name, why=why)
