"""Decode what a machine sends. It may send anything: no text of it controls a terminal, no number
is invalid, and no line is longer than the limit."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import msgspec

from gpudeck.language.text import Message, phrase
from gpudeck.scheduler.hosts.reader import MARK, NvmlError, smi_row
from gpudeck.scheduler.protocol.absence import Unavailable
from gpudeck.scheduler.protocol.devices import Device, Process, Reading
from gpudeck.scheduler.protocol.errors import MALFORMED
from gpudeck.scheduler.protocol.fields import FIELDS
from gpudeck.scheduler.protocol.progress import printable, unescaped

MAX_LINE = 2**20
MAX_DEVICES = 128
_MAX_PROCESSES = 64
_MOST = {
    "%": 1e4, "TFLOP/s": 1e6, "B": 2.0**60, "B/s": 2.0**50, "MHz": 1e6, "W": 1e6, "J": 1e15,
    "°C": 1e4, "rpm": 1e6, "s": 1e10, "lanes": 1e3, "": 2.0**53,
}  # fmt: skip
"""By the unit of a field, the largest number that is shown: far above what any device reads."""
_LEAST = {"°C": -1e4}
"""The smallest one, where it is not 0."""
_MARK = MARK.encode()


_Pid = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]


class _Device(msgspec.Struct):
    id: str
    index: Annotated[int, msgspec.Meta(ge=0, lt=1024)]
    name: str
    kind: Literal["nvidia", "cpu", "amd", "intel"]
    values: dict[str, float]
    absent: dict[str, str] = {}
    facts: dict[str, str] = {}
    processes: list[tuple[_Pid, str, str, float | None]] = []
    asleep: bool = False


class _Moment(msgspec.Struct):
    devices: Annotated[list[_Device], msgspec.Meta(max_length=MAX_DEVICES)]
    how: str = ""
    why: str = ""
    python: str = ""
    deck: str = ""


class Moment(msgspec.Struct, frozen=True):
    """Hold what one machine sent at one moment."""

    devices: tuple[Device, ...]
    readings: tuple[Reading, ...]
    how: str
    deck: str


_DECODE = msgspec.json.Decoder(_Moment).decode


class InvalidMessage(Exception):
    """Report that a machine sent something that no reader sends."""

    def __init__(self, why: Message) -> None:
        super().__init__(why)
        self.why = why


class Messages:
    """Turn the lines of one machine into moments."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._rows: list[_Device] = []
        self._asleep: dict[str, float] = {}
        """When each device that sleeps was first found asleep."""

    def add(self, line: bytes, now: float) -> Moment | None:
        """Take a line; return a moment once it is complete.

        Lines without the mark are what the machine's login shell prints. Raises InvalidMessage.
        """
        if not line.startswith(_MARK):
            return None
        body = line[len(_MARK) :].strip()
        try:
            if body.startswith(b"{"):
                return self._moment(_DECODE(body), now)
            return self._from_shell(body, now)
        except MALFORMED as e:
            raise InvalidMessage(
                phrase("it sent an invalid message: {quote}", quote=_clean(str(e), 200))
            ) from e
        except NvmlError as e:
            raise InvalidMessage(_clean(str(e), 200)) from e

    def _from_shell(self, body: bytes, now: float) -> Moment | None:
        """Take a line of the loop that runs where there is no Python."""
        how = "nvidia-smi, as there is no Python 3.6 there"
        if body == b"none":
            raise InvalidMessage(phrase("it has neither Python 3.6 nor nvidia-smi"))
        if body == b"asleep":
            device = _Device("pci", 0, "NVIDIA GPU", "nvidia", {}, asleep=True)
            return self._moment(_Moment([device], how), now)
        if body == b"end":
            rows, self._rows = self._rows, []
            if not rows:
                raise InvalidMessage(phrase("nvidia-smi lists no GPU"))
            return self._moment(_Moment(rows, how), now)
        if not body.startswith(b"csv ") or len(self._rows) >= MAX_DEVICES:
            raise InvalidMessage(phrase("it sent an invalid message"))
        row = smi_row(body[4:].decode(errors="replace"))
        self._rows.append(msgspec.convert(row, _Device))
        return None

    def _moment(self, found: _Moment, now: float) -> Moment:
        devices: list[Device] = []
        readings: list[Reading] = []
        note: Message = ""
        if found.why:
            why = _clean(found.why, 200)
            note = phrase("no NVIDIA GPU can be read there: {quote}", quote=why)
        for one in found.devices:
            name = f"{self._host}/{_clean(one.id, 64)}"
            if any(device.id == name for device in devices):
                raise InvalidMessage(phrase("it sent the same device twice"))
            facts = {_clean(k, 40): _clean(v, 80) for k, v in list(one.facts.items())[:20]}
            devices.append(
                Device(
                    name, one.index, _clean(one.name, 80), one.kind, note, facts, host=self._host
                )
            )
            readings.append(self._reading(name, one, now))
        self._asleep = {
            reading.device: reading.asleep for reading in readings if reading.asleep is not None
        }
        return Moment(
            tuple(devices), tuple(readings), _clean(found.how, 80), _clean(found.deck, 400)
        )

    def _reading(self, name: str, one: _Device, now: float) -> Reading:
        if one.asleep:
            since = self._asleep.get(name, now)
            return Reading(name, now, {}, otherwise=Unavailable("asleep"), asleep=since)
        numbers = {f: v for f, v in one.values.items() if f in FIELDS and math.isfinite(v)}
        values = {f: v for f, v in numbers.items() if _is_possible(v, FIELDS[f].unit)}
        absent = {f: _clean(why, 200) for f, why in one.absent.items() if f in FIELDS}
        absent |= {f: f"it sent {v:.3g}" for f, v in numbers.items() if f not in values}
        processes = tuple(
            Process(pid, _clean(program, 80), _clean(user, 40), _memory(memory))
            for pid, program, user, memory in one.processes[:_MAX_PROCESSES]
        )
        return Reading(name, now, values, absent, processes=processes)


def _is_possible(value: float, unit: str) -> bool:
    return _LEAST.get(unit, 0.0) <= value <= _MOST[unit]


def _memory(value: float | None) -> float | None:
    """Return the memory of a process; None where it is not known, or cannot be."""
    return value if value is not None and _is_possible(value, "B") else None


def _clean(text: str, most: int) -> str:
    """Return foreign text without escape sequences and control characters, cut to a length."""
    return printable(unescaped(text[: 4 * most])).strip()[:most]
