"""Pack history tables into bytes, and unpack them.

Numbers are little-endian and compressed: zlib level 1 leaves an eighth, level 6 little less.
"""

from __future__ import annotations

import zlib

import msgspec
import numpy as np

from gpudeck.scheduler.telemetry.history_table import Floats, HistoryTable

EXACT, SHORT = "<f8", "<f4"
"""Number formats: as it was read, and for decimated rows, where seven digits exceed a pixel."""


def pack(column: Floats, kind: str) -> bytes:
    """Pack an array of any shape."""
    with np.errstate(over="ignore"):  # what four bytes cannot hold is infinite, which is no value
        return zlib.compress(column.astype(kind).tobytes(), 1)


def unpack(data: bytes, kind: str, rows: int) -> Floats:
    """Return the array as [k, rows]; all NaN where the bytes are damaged, to save other columns."""
    try:
        found = np.frombuffer(zlib.decompress(data), kind).astype(np.float64).reshape(-1, rows)
    except (zlib.error, ValueError):
        return np.full((1, rows), np.nan)
    found[np.isinf(found)] = np.nan
    return found


class _PackedTable(msgspec.Struct, array_like=True):
    times: bytes
    counts: bytes
    fields: dict[str, bytes]


_DECODE = msgspec.msgpack.Decoder(_PackedTable).decode


def pack_table(table: HistoryTable) -> bytes:
    """Pack a whole table exactly, as one piece."""
    plain = _PackedTable(
        table.times.tobytes(),
        table.counts.tobytes(),
        {f: v.tobytes() for f, v in table.fields.items()},
    )
    return zlib.compress(msgspec.msgpack.encode(plain), 1)


def unpack_table(data: bytes) -> HistoryTable:
    """Unpack a whole table. Raises ValueError or zlib.error where the bytes are damaged."""
    found = _DECODE(zlib.decompress(data))
    times = np.frombuffer(found.times)
    return HistoryTable(
        times,
        np.frombuffer(found.counts),
        {f: np.frombuffer(v).reshape(-1, len(times)) for f, v in found.fields.items()},
    )
