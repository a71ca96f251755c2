"""The probe: a child of the daemon, and the only process that touches NVML. Prints readings as JSON lines.

It may hang (NVML can block in the kernel) and be replaced. It ends when its parent does. Orders come on its standard input, one a line:
how often to read from now on, and to tell once what is too costly to be read all the time.

    python -m scheduler.devices.probe SOURCE HZ
"""

from __future__ import annotations

import os
import select
import sys
import time
from typing import NoReturn

import msgspec

from scheduler.devices.open import open_source
from scheduler.protocol.devices import Detail, Device, DevicesChanged, Reading, Source
from scheduler.protocol.errors import UserError

RENEWED_S, MOST_TICKS = 0.1, 8
"""How often NVIDIA's driver renews what it tells of the clocks (measured on an H100), and how many times they are looked at, at the most,
between two readings."""

FIRST_S = 0.15
"""The first reading comes this soon, so that a window that has just opened has something to show; counters need 0.1 s."""


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """Said first."""

    source: str
    devices: tuple[Device, ...]


class Readings(msgspec.Struct, frozen=True, tag="readings"):
    time: float
    readings: tuple[Reading, ...]


class Glances(msgspec.Struct, frozen=True, tag="glances"):
    """The answer to Glance."""

    readings: tuple[Reading, ...]


class Refusal(msgspec.Struct, frozen=True, tag="refusal"):
    """The source cannot be had, or its devices changed; the probe ends, and the daemon starts another."""

    message: str


class Details(msgspec.Struct, frozen=True, tag="details"):
    """The answer to Look."""

    details: tuple[Detail, ...]


Message = Hello | Readings | Glances | Details | Refusal
DECODE = msgspec.json.Decoder(Message).decode


class Pace(msgspec.Struct, frozen=True, tag="pace"):
    """Read so often from now on."""

    hz: float


class Look(msgspec.Struct, frozen=True, tag="look"):
    """Tell once all about links, parts and processes."""


class Glance(msgspec.Struct, frozen=True, tag="glance"):
    """Tell once, and at once, who is on the devices."""


Order = Pace | Look | Glance
_DECODE_ORDER = msgspec.json.Decoder(Order).decode
_ENCODE = msgspec.json.Encoder().encode


def _say(message: Message) -> None:
    data = _ENCODE(message) + b"\n"
    while data:
        data = data[os.write(1, data) :]


class Player:
    """Reads a source at a steady pace, and obeys."""

    def __init__(self, source: Source, hz: float) -> None:
        self._source, self._interval = source, 1 / hz
        self._heard = b""

    def play(self) -> NoReturn:
        """Until the devices change, or the daemon is gone."""
        due = time.monotonic() + min(FIRST_S - self._interval, 0.0)
        while True:
            interval = self._interval
            ticks = min(max(round(interval / RENEWED_S), 1), MOST_TICKS)
            for tick in range(1, ticks + 1):
                self._wait(due + interval * tick / ticks)
                if self._interval != interval:
                    break
                if tick < ticks:
                    self._source.tick()
            # after a suspended laptop wakes up, or a new pace, go on from now instead of catching up
            now = time.monotonic()
            due = max(due + interval, now - interval) if self._interval == interval else now
            moment = time.time()
            _say(Readings(moment, tuple(self._source.read(moment))))

    def _wait(self, end: float) -> None:
        """Obey until `end`, or until the pace changes. Ends the process at once when the daemon is gone (its end of stdin closed)."""
        interval = self._interval
        while self._interval == interval:
            ready, _, _ = select.select([0], [], [], max(end - time.monotonic(), 0.0))
            if not ready:
                return
            if not (said := os.read(0, 4096)):
                raise SystemExit(0)
            *lines, self._heard = (self._heard + said).split(b"\n")
            for line in lines:
                self._obey(_DECODE_ORDER(line))

    def _obey(self, order: Order) -> None:
        if isinstance(order, Pace):
            self._interval = 1 / order.hz
        elif isinstance(order, Glance):
            _say(Glances(tuple(self._source.glance(time.time()))))
        else:
            _say(Details(tuple(self._source.details(time.time()))))


def main() -> int:
    spec, hz = sys.argv[1], float(sys.argv[2])
    try:
        source, words = open_source(spec)
    except UserError as e:
        _say(Refusal(str(e)))
        return 1
    try:
        _say(Hello(words, tuple(source.devices())))
        Player(source, hz).play()
    except DevicesChanged as e:
        _say(Refusal(f"the devices changed: {e}"))
        return 1
    finally:
        source.close()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (BrokenPipeError, KeyboardInterrupt):
        sys.exit(0)
