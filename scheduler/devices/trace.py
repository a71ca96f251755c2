"""Write, read and replay recorded traces.

A trace is gzip'd JSON lines: a header, then one line per moment. `gpudeck record` writes it.
"""

from __future__ import annotations

import gzip
import os
import zlib
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from gpudeck.language.text import Bytes, Message, phrase
from gpudeck.scheduler.protocol import calibration
from gpudeck.scheduler.protocol.absence import Unavailable, explain
from gpudeck.scheduler.protocol.devices import REPLAYED, Device, Reading, Source
from gpudeck.scheduler.protocol.errors import MALFORMED, NotFound, UserError

FORMAT = 1
MOST_BYTES, MOST_LINE = 2**30, 2**24
"""What a trace, and a line of it, may have once it is unpacked: somebody else may have made it."""
FLUSH_EVERY = 20
"""Moments that a crash may lose; each flush costs a little compression."""


class Header(msgspec.Struct, frozen=True):
    """Describe the recording; the first line of a trace."""

    format: int
    started: float
    devices: tuple[Device, ...]
    notes: dict[str, str] = {}


class _Format(msgspec.Struct):
    """Hold the part of a header that every format has."""

    format: int


class Moment(msgspec.Struct, frozen=True):
    """Hold the readings of one moment."""

    time: float
    readings: tuple[Reading, ...]
    label: str = ""
    """The name of what ran at that moment, where it is known."""


class TraceWriter:
    """Write a trace while it is recorded; a crash loses what follows the last flush."""

    def __init__(
        self, file: Path, devices: tuple[Device, ...], started: float, notes: dict[str, str]
    ) -> None:
        """Create the file and write the header.

        Raises:
            UserError: The file cannot be written, or exists already.
        """
        try:
            fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError as e:
            raise UserError(
                phrase(
                    "{file} exists already and was not changed. Name a new file for the trace.",
                    file=str(file),
                )
            ) from e
        except OSError as e:
            raise UserError(
                phrase(
                    "cannot write the trace {file}: {error}", file=str(file), error=str(e.strerror)
                )
            ) from e
        # mtime=0: the same trace gives the same bytes
        self._raw = os.fdopen(fd, "wb")
        self._since_flush = self.moments = 0
        self._out = gzip.GzipFile(fileobj=self._raw, mode="wb", mtime=0)
        written = tuple(msgspec.structs.replace(d, silent=d.silent or "") for d in devices)
        self._write(Header(FORMAT, started, written, notes))

    def add(self, moment: Moment) -> None:
        """Append a moment; causes of missing fields are written as sentences."""
        readings = tuple(
            msgspec.structs.replace(r, absent=dict(r.explained()), otherwise=explain(r.otherwise))
            for r in moment.readings
        )
        self._write(msgspec.structs.replace(moment, readings=readings))
        self.moments += 1
        self._since_flush += 1
        if self._since_flush >= FLUSH_EVERY:
            self._since_flush = 0
            self._out.flush()
            self._raw.flush()

    def _write(self, value: msgspec.Struct) -> None:
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
    """Return the whole trace.

    Raises:
        NotFound: There is no such file.
        UserError: It is not a trace, or it is cut off before the first moment.
    """
    lines = _lines(file)
    try:
        first = next(lines, b"")
        found = msgspec.json.decode(first, type=_Format).format
        if found != FORMAT:
            raise UserError(
                phrase(
                    "{file} is a trace of format {found}; this GPU Deck reads format "
                    "{known}. Update GPU Deck.",
                    file=str(file),
                    found=found,
                    known=FORMAT,
                )
            )
        header = msgspec.json.decode(first, type=Header)
        devices = tuple(msgspec.structs.replace(d, silent=d.silent or None) for d in header.devices)
        moments = [_completed(msgspec.json.decode(line, type=Moment)) for line in lines]
    except MALFORMED as e:
        raise UserError(
            phrase(
                "{file} is not a trace of GPU Deck: {error}. Record one with: "
                "gpudeck record {name}",
                file=str(file),
                error=str(e),
                name=file.name,
            )
        ) from e
    if not moments or not header.devices:
        raise UserError(
            phrase(
                "{file} has no readings. Record one with: gpudeck record {name}",
                file=str(file),
                name=file.name,
            )
        )
    return msgspec.structs.replace(header, devices=devices), moments


def _completed(moment: Moment) -> Moment:
    """Add what earlier versions did not record: errors of rates, and utilisation by counters.

    They did not correct the clock either, so the errors are those without a calibration.
    """
    for reading in moment.readings:
        values = reading.values
        raise_to_active(values, reading.methods)
        activity = calibration.tensor_activity(values)
        if not values.get("tflops_gpm") or "tflops_gpm_error" in values or activity is None:
            continue
        error = calibration.UNCALIBRATED.error(activity)
        values["tflops_gpm_error"] = error
        if values.get("tflops") == values["tflops_gpm"]:  # else a job counted its own operations
            values["tflops_error"] = error
    return moment


def _lines(file: Path) -> Iterator[bytes]:
    try:
        left = MOST_BYTES
        with file.open("rb") as raw, gzip.GzipFile(fileobj=raw) as unpacked:
            while line := unpacked.readline(min(left, MOST_LINE) + 1):
                left -= len(line)
                if len(line) > MOST_LINE or left < 0:
                    raise UserError(
                        phrase(
                            "the trace {file} is too long: it may have {most}, and {line} a moment",
                            file=str(file),
                            most=Bytes(MOST_BYTES),
                            line=Bytes(MOST_LINE),
                        )
                    )
                yield line
    except FileNotFoundError as e:
        raise NotFound(phrase("there is no trace at {file}", file=str(file))) from e
    except (OSError, EOFError, zlib.error) as e:
        raise UserError(
            phrase(
                "the trace {file} cannot be read: {error}. It may be cut off; record "
                "or copy it again.",
                file=str(file),
                error=str(e),
            )
        ) from e


def raise_to_active(values: dict[str, float], methods: dict[str, Message]) -> None:
    """Raise the utilisation to the share of active multiprocessors where it is lower.

    The driver takes the utilisation over an interval of its own. When work begins or ends, it can
    be 0 % while the counters, and the rate that they give, include that work.

    Args:
        values: The fields of a reading, which are changed.
        methods: Receives how the utilisation was found.
    """
    active, util = values.get("sm_active"), values.get("util")
    if active is not None and util is not None and util < active:
        values["util"] = active
        methods["util"] = phrase("hardware counters (GPM): share of active multiprocessors")


class ReplaySource(Source):
    """Play a trace in a loop, as if it were live; it is labelled REPLAY and runs no jobs."""

    def __init__(self, file: Path, copies: int = 1, start: float | None = None) -> None:
        """Read the trace.

        Args:
            file: The trace.
            copies: Plays each device this many times, shifted in time, as a machine with more GPUs.
            start: Seconds since the epoch that play the first moment; None: the first call of
            `read`.

        Raises:
            NotFound, UserError: As `read` does.
        """
        header, self._moments = read(file)
        self._copies, self._start = copies, start
        first = self._moments[0].time
        self._offsets = [m.time - first for m in self._moments]
        step = self._offsets[-1] / max(len(self._offsets) - 1, 1) or 0.5
        self._length = self._offsets[-1] + step
        self._recorded = header.devices
        note = phrase("REPLAY of {file}: recorded, not live", file=file.name)
        self._devices = [
            msgspec.structs.replace(
                device, id=f"REPLAY-{index}", index=index, name=f"{REPLAYED}{device.name}",
                kind="replay", note=note,
            )
            for index, device in enumerate(self._recorded * copies)
        ]  # fmt: skip

    def devices(self) -> list[Device]:
        """Return the recorded devices, with ids and names that start with REPLAY."""
        return self._devices

    def read(self, now: float) -> list[Reading]:
        """Return the readings of the moment that plays at `now`."""
        if self._start is None:
            self._start = now
        readings: list[Reading] = []
        for copy in range(self._copies):
            offset = (now - self._start + copy * self._length / self._copies) % self._length
            moment = self._moments[max(bisect_right(self._offsets, offset) - 1, 0)]
            by_id = {r.device: r for r in moment.readings}
            for i, device in enumerate(self._recorded):
                if (recorded := by_id.get(device.id)) is not None:
                    new = f"REPLAY-{copy * len(self._recorded) + i}"
                    readings.append(
                        msgspec.structs.replace(
                            recorded,
                            device=new,
                            time=now,
                            processes=(),
                            otherwise=Unavailable("unrecorded"),
                        )
                    )
        return readings
