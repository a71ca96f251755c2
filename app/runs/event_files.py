"""Read scalars from the event files that TensorBoard's writers make, without TensorBoard.

A file is a row of records: a length of 8 bytes, its checksum, the data, and their checksum. The
data are a message `Event` of Protocol Buffers, of which the few fields are read that hold scalars.
A file is foreign data, and the newest record may not be complete yet.

Source:
    tensorflow/core/lib/io/record_writer.h, tensorflow/core/util/event.proto, and
    tensorflow/core/framework/summary.proto describe the formats.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from gpudeck.scheduler.protocol.paths import open_plain

PATTERN = "events.out.tfevents.*"
MOST_BYTES = 64 * 2**20
"""Bytes that are read of the files of a run: a minute's work."""
_MOST_RECORD, _MOST_NAME = 2**20, 200
"""Bytes of a record, and characters of a name, above which a record is left out."""
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FLOAT, _DOUBLE = 1, 2
"""Values of `DataType`."""


class Scalar(NamedTuple):
    """One value of a file."""

    name: str
    step: int
    value: float


def created(file: Path) -> float | None:
    """Return when a file was begun, as its name says, in seconds since the epoch."""
    stamp = file.name.removeprefix("events.out.tfevents.").partition(".")[0]
    return float(stamp) if stamp.isdecimal() and len(stamp) <= 12 else None


def scalars(file: Path, most: int = MOST_BYTES) -> Iterator[Scalar]:
    """Yield the finite scalars of a file up to the first record that is damaged or incomplete.

    Args:
        most: Bytes that are read.

    Raises OSError where the file cannot be read, as it is a pipe, or a link.
    """
    with open_plain(file) as source:
        data = memoryview(source.read(most))
    at = 0
    while at + 12 <= len(data):
        length = int.from_bytes(data[at : at + 8], "little")
        if at + 16 + length > len(data):
            return
        if length <= _MOST_RECORD:
            try:
                yield from _event(data[at + 12 : at + 12 + length])
            except (ValueError, struct.error):
                return
        at += 16 + length


def _event(data: memoryview) -> Iterator[Scalar]:
    """Yield the scalars of an `Event`. Raises ValueError, struct.error where it is damaged."""
    step, summary = 0, None
    for number, kind, value in _fields(data):
        if (number, kind) == (2, _VARINT):
            step = _signed(value)
        elif (number, kind) == (5, _BYTES):
            summary = value
    for number, kind, value in _fields(summary) if isinstance(summary, memoryview) else ():
        if (number, kind) == (1, _BYTES) and isinstance(value, memoryview):
            name, scalar = _summary_value(value)
            if name and scalar is not None and math.isfinite(scalar):
                yield Scalar(name, step, scalar)


def _summary_value(data: memoryview) -> tuple[str, float | None]:
    name, found = "", None
    for number, kind, value in _fields(data):
        if (number, kind) == (1, _BYTES) and isinstance(value, memoryview):
            name = bytes(value[: 4 * _MOST_NAME]).decode(errors="replace")[:_MOST_NAME]
        elif (number, kind) == (2, _FIXED32) and isinstance(value, memoryview):
            found = float(struct.unpack("<f", value)[0])
        elif (number, kind) == (8, _BYTES) and isinstance(value, memoryview):
            found = _tensor(value)
    return name, found


def _tensor(data: memoryview) -> float | None:
    """Return the number of a `TensorProto` that holds one number; None for any other."""
    type_, contents, values = 0, b"", b""
    for number, kind, value in _fields(data):
        if (number, kind) == (1, _VARINT):
            type_ = _signed(value)
        elif number == 4 and isinstance(value, memoryview):
            contents = bytes(value)
        elif number in (5, 6) and isinstance(value, memoryview):  # packed or not
            values = bytes(value)
    form = {_FLOAT: "<f", _DOUBLE: "<d"}.get(type_)
    found = contents or values
    if form is None or len(found) != struct.calcsize(form):
        return None
    return float(struct.unpack(form, found)[0])


def _fields(data: memoryview) -> Iterator[tuple[int, int, int | memoryview]]:
    """Yield the number, the wire type and the value of each field. Raises ValueError."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield number, kind, value
            continue
        if kind == _BYTES:
            size, at = _varint(data, at)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise ValueError("a field has an unknown type")
        if at + size > len(data):
            raise ValueError("a field is longer than its message")
        yield number, kind, data[at : at + size]
        at += size


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    found = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return found, at
    raise ValueError("a number is not complete")


def _signed(value: int | memoryview) -> int:
    """Return a 64-bit number with its sign."""
    assert isinstance(value, int)
    value &= 2**64 - 1
    return value - 2**64 if value >= 2**63 else value
