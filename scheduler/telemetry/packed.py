"""A table as bytes, a column each, and back. Little-endian numbers, compressed: zlib level 1 leaves an eighth, level 6 little less."""

from __future__ import annotations

import zlib

import msgspec
import numpy as np

from scheduler.telemetry.table import Floats, Table

EXACT, SHORT = "<f8", "<f4"
"""As it was read; and for what was decimated, where seven digits say more than a pixel can."""


def pack(column: Floats, kind: str) -> bytes:
    """An array of any shape."""
    with np.errstate(
        over="ignore"
    ):  # beyond what four bytes hold it is infinite, which is no value
        return zlib.compress(column.astype(kind).tobytes(), 1)


def unpack(data: bytes, kind: str, rows: int) -> Floats:
    """[k, rows]; all NaN where the bytes are damaged: one column must not keep the others from being shown."""
    try:
        found = np.frombuffer(zlib.decompress(data), kind).astype(np.float64).reshape(-1, rows)
    except (zlib.error, ValueError):
        return np.full((1, rows), np.nan)
    found[np.isinf(found)] = np.nan
    return found


class _Journal(msgspec.Struct, array_like=True):
    times: bytes
    counts: bytes
    fields: dict[str, bytes]


_DECODE = msgspec.msgpack.Decoder(_Journal).decode


def pack_table(table: Table) -> bytes:
    """All of it, exactly, as one piece."""
    plain = _Journal(
        table.times.tobytes(),
        table.counts.tobytes(),
        {f: v.tobytes() for f, v in table.fields.items()},
    )
    return zlib.compress(msgspec.msgpack.encode(plain), 1)


def unpack_table(data: bytes) -> Table:
    """Raises ValueError or zlib.error where the bytes are damaged."""
    found = _DECODE(zlib.decompress(data))
    times = np.frombuffer(found.times)
    return Table(
        times,
        np.frombuffer(found.counts),
        {f: np.frombuffer(v).reshape(-1, len(times)) for f, v in found.fields.items()},
    )
