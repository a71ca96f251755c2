"""Recover rows from a damaged SQLite file: every intact page yields its rows. Pure.

The pages that lead to a page need not be intact. A leaf page of a table holds rowid and record of
each of its rows; a long record continues in overflow pages. A page in the write-ahead log, as it
was committed last, replaces the page of the file.

Source: https://www.sqlite.org/fileformat2.html
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

PAGE = 4096
"""Bytes of a page: SQLite's default, which GPU Deck never changes."""
_LEAF = 13
_LOG_HEADER, _FRAME_HEADER = 32, 24
_INTEGERS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}
"""Bytes of an integer by its serial type."""

Value = int | float | str | bytes | None


class StoredRow(NamedTuple):
    """Hold one row of some table."""

    id: int
    values: tuple[Value, ...]


def rows(file: bytes, log: bytes) -> Iterator[StoredRow]:
    """Yield the rows of all tables, in no order.

    Args:
        file: The bytes of the database.
        log: The bytes of the write-ahead log, empty where there is none.
    """
    pages = {
        start // PAGE + 1: file[start : start + PAGE]
        for start in range(0, len(file) - PAGE + 1, PAGE)
    }
    pages |= _committed(log)
    for number, page in pages.items():
        yield from _leaf(page, 100 if number == 1 else 0, pages)


def _committed(log: bytes) -> dict[int, bytes]:
    """Return the pages in the log up to the last commit whose frames are all intact."""
    if (
        len(log) < _LOG_HEADER
        or log[:3] != b"\x37\x7f\x06"
        or struct.unpack(">I", log[8:12])[0] != PAGE
    ):
        return {}
    order, salts = ">" if log[3] & 1 else "<", log[16:24]
    total = _sum(order, log[:24], (0, 0))
    done: dict[int, bytes] = {}
    pending: dict[int, bytes] = {}
    for start in range(_LOG_HEADER, len(log) - _FRAME_HEADER - PAGE + 1, _FRAME_HEADER + PAGE):
        body = start + _FRAME_HEADER
        head, page = log[start:body], log[body : body + PAGE]
        total = _sum(order, page, _sum(order, head[:8], total))
        if head[8:16] != salts or struct.unpack(">II", head[16:]) != total:
            break
        pending[struct.unpack(">I", head[:4])[0]] = page
        if struct.unpack(">I", head[4:8])[0]:
            done |= pending
            pending = {}
    return done


def _sum(order: str, data: bytes, start: tuple[int, int]) -> tuple[int, int]:
    one, other = start
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for first, second in zip(words[::2], words[1::2], strict=True):
        one = (one + first + other) & 0xFFFFFFFF
        other = (other + second + one) & 0xFFFFFFFF
    return one, other


def _leaf(page: bytes, offset: int, pages: dict[int, bytes]) -> Iterator[StoredRow]:
    """Yield the intact rows of a page whose header begins at `offset`."""
    if page[offset] != _LEAF:
        return
    (count,) = struct.unpack_from(">H", page, offset + 3)
    for place in range(min(count, (PAGE - offset - 8) // 2)):
        (start,) = struct.unpack_from(">H", page, offset + 8 + 2 * place)
        try:
            size, at = _varint(page, start)
            row_id, at = _varint(page, at)
            yield StoredRow(row_id, _record(_payload(page, at, size, pages)))
        except (IndexError, KeyError, ValueError, struct.error, UnicodeDecodeError):
            continue


def _payload(page: bytes, at: int, size: int, pages: dict[int, bytes]) -> bytes:
    """Return the record's bytes, including overflow pages.

    Raises:
        ValueError, KeyError: A part of the record is missing.
    """
    most, least = PAGE - 35, (PAGE - 12) * 32 // 255 - 23
    kept = least + (size - least) % (PAGE - 4)
    local = size if size <= most else kept if kept <= most else least
    if size > PAGE * len(pages):
        raise ValueError("the record is longer than the file")
    data = bytearray(page[at : at + local])
    if local < size:
        (further,) = struct.unpack_from(">I", page, at + local)
        while len(data) < size:
            more = pages[further]
            (further,) = struct.unpack_from(">I", more)
            data += more[4 : 4 + size - len(data)]
    if len(data) != size:
        raise ValueError("the record is cut")
    return bytes(data)


def _record(data: bytes) -> tuple[Value, ...]:
    length, at = _varint(data, 0)
    types = []
    while at < length:
        kind, at = _varint(data, at)
        types.append(kind)
    values = []
    for kind in types:
        value, at = _value(data, at, kind)
        values.append(value)
    if at != len(data):
        raise ValueError("the record is longer than its values")
    return tuple(values)


def _value(data: bytes, at: int, kind: int) -> tuple[Value, int]:
    """Return the value of a serial type, and where the next one begins."""
    if kind in (0, 8, 9):
        return (None, 0, 1)[(0, 8, 9).index(kind)], at
    if kind == 7:
        return struct.unpack_from(">d", data, at)[0], at + 8
    size = _INTEGERS[kind] if kind in _INTEGERS else (kind - 12) // 2
    if size < 0 or at + size > len(data):
        raise ValueError("the value is cut")
    part = data[at : at + size]
    if kind in _INTEGERS:
        return int.from_bytes(part, "big", signed=True), at + size
    return (part.decode() if kind % 2 else part), at + size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a variable-length integer, and where the next one begins."""
    value = 0
    for place in range(at, at + 8):
        value = value << 7 | data[place] & 0x7F
        if data[place] < 0x80:
            return value, place + 1
    return value << 8 | data[at + 8], at + 9
