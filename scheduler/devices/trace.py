"""A recorded trace: gzip'd JSON lines, a header and then one line a moment. Written by `gpudeck record`, played by `replay`."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from scheduler.protocol.devices import Device, Reading
from scheduler.protocol.errors import MALFORMED, NotFound, UserError

FORMAT = 1
FLUSH_EVERY = 20
"""Moments between two flushes: what is on disk before a crash; each one costs a little compression."""


class Header(msgspec.Struct, frozen=True):
    format: int
    started: float
    devices: tuple[Device, ...]
    notes: dict[str, str] = {}


class _Format(msgspec.Struct):
    """What every header has, whatever a later format adds."""

    format: int


class Moment(msgspec.Struct, frozen=True):
    time: float
    readings: tuple[Reading, ...]
    label: str = ""
    """What ran at that moment, where the recorder knew."""


class Writer:
    """Writes a trace as it is taken; after a crash complete up to the last flush."""

    def __init__(
        self, file: Path, devices: tuple[Device, ...], started: float, notes: dict[str, str]
    ) -> None:
        """Raises UserError where the file cannot be written, or is there already: a trace is never written over what somebody has."""
        try:
            fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError as e:
            raise UserError(
                f"{file} is there already, and stays as it is. Name a new file for the trace."
            ) from e
        except OSError as e:
            raise UserError(f"cannot write the trace {file}: {e.strerror}") from e
        # mtime=0: the same trace gives the same bytes
        self._raw = os.fdopen(fd, "wb")
        self._since_flush = self.moments = 0
        self._out = gzip.GzipFile(fileobj=self._raw, mode="wb", mtime=0)
        self._line(Header(FORMAT, started, devices, notes))

    def add(self, moment: Moment) -> None:
        self._line(moment)
        self.moments += 1
        self._since_flush += 1
        if self._since_flush >= FLUSH_EVERY:
            self._since_flush = 0
            self._out.flush()
            self._raw.flush()

    def _line(self, value: msgspec.Struct) -> None:
        self._out.write(msgspec.json.encode(value) + b"\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._out.close()
        self._raw.close()


def read(file: Path) -> tuple[Header, list[Moment]]:
    """The whole trace. Raises NotFound, or UserError where it is no trace or is cut off before the first moment."""
    lines = _lines(file)
    try:
        first = next(lines, b"")
        found = msgspec.json.decode(first, type=_Format).format
        if found != FORMAT:
            raise UserError(
                f"{file} is a trace of format {found}; this GPU Deck reads format {FORMAT}. Update GPU Deck."
            )
        header = msgspec.json.decode(first, type=Header)
        moments = [msgspec.json.decode(line, type=Moment) for line in lines]
    except MALFORMED as e:
        raise UserError(
            f"{file} is not a trace of GPU Deck: {e}. Record one with: gpudeck record {file.name}"
        ) from e
    if not moments or not header.devices:
        raise UserError(f"{file} holds no reading. Record one with: gpudeck record {file.name}")
    return header, moments


def _lines(file: Path) -> Iterator[bytes]:
    try:
        with file.open("rb") as raw, gzip.GzipFile(fileobj=raw) as unpacked:
            yield from unpacked
    except FileNotFoundError as e:
        raise NotFound(f"there is no trace at {file}") from e
    except (OSError, EOFError, zlib.error) as e:
        raise UserError(
            f"the trace {file} cannot be read: {e}. It may be cut off; record or copy it again."
        ) from e
