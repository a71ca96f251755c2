"""The probe: a child of the daemon, and the only process that touches NVML. Prints readings as JSON lines.

It may hang (NVML can block in the kernel) and be replaced. It ends when its parent does.

    python -m scheduler.devices.probe SOURCE HZ
"""

from __future__ import annotations

import os
import select
import sys
import time
from typing import NoReturn

import msgspec

from scheduler.devices.model import Device, DevicesChanged, Reading, Source
from scheduler.devices.open import open_source
from scheduler.errors import UserError

TICKS = 8
"""How many times the clocks are looked at between two readings."""

FIRST_S = 0.15
"""The first reading comes this soon, so that a window that has just opened has something to show; counters need 0.1 s."""


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """Said first."""

    source: str
    devices: tuple[Device, ...]


class Readings(msgspec.Struct, frozen=True, tag="readings"):
    time: float
    readings: tuple[Reading, ...]


class Refusal(msgspec.Struct, frozen=True, tag="refusal"):
    """The source cannot be had, or its devices changed; the probe ends, and the daemon starts another."""

    message: str


Message = Hello | Readings | Refusal
DECODE = msgspec.json.Decoder(Message).decode
_ENCODE = msgspec.json.Encoder().encode


def _say(message: Message) -> None:
    data = _ENCODE(message) + b"\n"
    while data:
        data = data[os.write(1, data) :]


def _sleep(seconds: float) -> None:
    """Sleep, or end the process at once when the daemon is gone (its end of our standard input closed)."""
    ready, _, _ = select.select([0], [], [], max(seconds, 0.0))
    if ready and not os.read(0, 1):
        raise SystemExit(0)


def _play(source: Source, interval: float) -> NoReturn:
    """Read at a steady pace until the devices change."""
    due = time.monotonic() + min(FIRST_S - interval, 0.0)
    while True:
        for tick in range(1, TICKS + 1):
            _sleep(due + interval * tick / TICKS - time.monotonic())
            if tick < TICKS:
                source.tick()
        # after a suspended laptop wakes up, go on from now instead of catching up
        due = max(due + interval, time.monotonic() - interval)
        now = time.time()
        _say(Readings(now, tuple(source.read(now))))


def main() -> int:
    spec, interval = sys.argv[1], 1.0 / float(sys.argv[2])
    try:
        source, words = open_source(spec)
    except UserError as e:
        _say(Refusal(str(e)))
        return 1
    try:
        _say(Hello(words, tuple(source.devices())))
        _play(source, interval)
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
