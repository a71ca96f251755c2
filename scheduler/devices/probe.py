"""Run the probe: a child of the daemon, and the only process that touches NVML.

It prints readings as JSON lines. It may hang (NVML can block in the kernel) and is then replaced.
It ends when its parent does. Commands arrive on its standard input, one per line: the rate of
readings from now on, and requests for what is too costly to read all the time.

    python -m gpudeck.scheduler.devices.probe SOURCE HZ [wake]
"""

from __future__ import annotations

import os
import random
import select
import sys
import time
from typing import NoReturn

import msgspec

from gpudeck.language import text
from gpudeck.scheduler.devices.sources import open_source
from gpudeck.scheduler.protocol.devices import Detail, Device, DevicesChanged, Reading, Source
from gpudeck.scheduler.protocol.errors import UserError

RENEWED_S, MOST_TICKS = 0.1, 8
"""NVIDIA's driver renews the clocks when it is asked, but not within this time of the last renewal
(measured on an H100 and an H200); the most samples that are taken between two readings."""
JITTER, MOST_JITTER = 0.3, 3.0
"""Pauses between samples are longer than the shortest one by this share in the mean, exponentially
distributed, and by MOST_JITTER at most. So they are in step with no load, and readings, which come
at a steady rate, are no samples (tests/benchmarks/log/telemetry.md)."""
FIRST_S = 0.15
"""The first reading comes soon, for a window that has just opened; counters need 0.1 s."""


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """Introduce the source and its devices; the first message."""

    source: text.Message
    devices: tuple[Device, ...]


class Readings(msgspec.Struct, frozen=True, tag="readings"):
    """Carry one reading of every device."""

    time: float
    readings: tuple[Reading, ...]


class Occupancy(msgspec.Struct, frozen=True, tag="occupancy"):
    """Answer ReadOccupancy."""

    readings: tuple[Reading, ...]


class Refusal(msgspec.Struct, frozen=True, tag="refusal"):
    """Explain why the probe ends: the source cannot be opened, or its devices changed."""

    message: text.Message


class Details(msgspec.Struct, frozen=True, tag="details"):
    """Answer ReadDetails."""

    details: tuple[Detail, ...]


Message = Hello | Readings | Occupancy | Details | Refusal
DECODE = msgspec.json.Decoder(Message).decode


class SetRate(msgspec.Struct, frozen=True, tag="set rate"):
    """Set the readings per second, and whether devices that sleep are woken."""

    hz: float
    wake: bool = False


class ReadDetails(msgspec.Struct, frozen=True, tag="read details"):
    """Request the details of links, parts and processes once."""


class ReadOccupancy(msgspec.Struct, frozen=True, tag="read occupancy"):
    """Request memory and processes of the devices once, at once."""


Command = SetRate | ReadDetails | ReadOccupancy
_DECODE_COMMAND = msgspec.json.Decoder(Command).decode
_ENCODE = msgspec.json.Encoder().encode


def _send(message: Message) -> None:
    data = _ENCODE(message) + b"\n"
    while data:
        data = data[os.write(1, data) :]


class ProbeLoop:
    """Read a source at a steady rate, and carry out commands."""

    def __init__(self, source: Source, description: text.Message, hz: float) -> None:
        self._source, self._description, self._interval = source, description, 1 / hz
        self._devices: tuple[Device, ...] = ()
        self._received = b""
        self._sample_at = 0.0

    def run(self) -> NoReturn:
        """Send readings until the devices change, or the daemon is gone."""
        self._introduce()
        next_at = time.monotonic() + min(FIRST_S - self._interval, 0.0)
        while True:
            interval = self._interval
            self._sample_until(next_at + interval)
            # after a suspend, or at a new rate, go on from now instead of catching up
            now = time.monotonic()
            next_at = max(next_at + interval, now - interval) if self._interval == interval else now
            moment = time.time()
            readings = tuple(self._source.read(moment))
            self._introduce()
            _send(Readings(moment, readings))

    def _introduce(self) -> None:
        """Name the devices, at first and where more is known of one, as it woke up."""
        devices = tuple(self._source.devices())
        if devices != self._devices:
            self._devices = devices
            _send(Hello(self._description, devices))

    def _sample_until(self, end: float) -> None:
        """Take the samples that are due before the next reading at `end`, or until the rate
        changes."""
        interval = self._interval
        least = max(RENEWED_S, interval / MOST_TICKS)
        while self._interval == interval and self._sample_at < end:
            self._wait(self._sample_at)
            if self._interval == interval:
                self._source.sample()
                longer = min(random.expovariate(1 / JITTER), MOST_JITTER)
                self._sample_at = time.monotonic() + least * (1 + longer)
        if self._interval == interval:
            self._wait(end)

    def _wait(self, end: float) -> None:
        """Carry out commands until `end`, or until the rate changes; exit where the daemon is
        gone."""
        interval = self._interval
        while self._interval == interval:
            ready, _, _ = select.select([0], [], [], max(end - time.monotonic(), 0.0))
            if not ready:
                return
            if not (data := os.read(0, 4096)):
                raise SystemExit(0)  # the daemon's end of stdin is closed
            *lines, self._received = (self._received + data).split(b"\n")
            for line in lines:
                self._carry_out(_DECODE_COMMAND(line))

    def _carry_out(self, command: Command) -> None:
        if isinstance(command, SetRate):
            self._interval, self._sample_at = 1 / command.hz, 0.0
            self._source.wake(command.wake)
        elif isinstance(command, ReadOccupancy):
            _send(Occupancy(tuple(self._source.occupancy(time.time()))))
        else:
            _send(Details(tuple(self._source.details(time.time()))))


def main() -> int:
    """Run the probe and return its exit status."""
    spec, hz = sys.argv[1], float(sys.argv[2])
    try:
        source, description = open_source(spec)
    except UserError as e:
        _send(Refusal(e.message))
        return 1
    try:
        source.wake(sys.argv[3:] == ["wake"])
        ProbeLoop(source, description, hz).run()
    except DevicesChanged as e:
        _send(Refusal(text.phrase("the devices changed: {problem}", problem=str(e))))
        return 1
    finally:
        source.close()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (BrokenPipeError, KeyboardInterrupt):
        sys.exit(0)
