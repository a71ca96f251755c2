"""Write the history for other programs as CSV or Parquet, one row a moment and device, or as a
recording that GPU Deck replays on any machine."""

from __future__ import annotations

import csv
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from gpudeck.app.language.texts import tr
from gpudeck.app.link.call import Call
from gpudeck.app.report.recording import write_recording
from gpudeck.extras import missing_of
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.devices import Device
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.snapshot import Columns, label

FORMATS = (".csv", ".parquet", ".trace.gz")
_PARTS = (("", "columns"), ("_low", "low"), ("_high", "high"))
Values = dict[str, list[float | None]]


class ExportHistory(msgspec.Struct, frozen=True):
    """Request a file with the history of devices between two times."""

    devices: tuple[Device, ...]
    since: float
    until: float
    file: str

    def carry_out(self, call: Call) -> None:
        """Write the file."""
        with call.client() as client:
            export_past(client, self.devices, (), self.since, self.until, None, Path(self.file))


def export_past(
    client: Client,
    devices: Sequence[Device],
    fields: Sequence[str],
    since: float,
    until: float,
    points: int | None,
    file: Path,
) -> int:
    """Write the readings of devices, and return the number of rows.

    Args:
        fields: The fields to write; all if empty.
        since: Seconds since the epoch, as is `until`.
        points: The most bins a device; None for all readings.
        file: Its name ends with one of `FORMATS`, which chooses the format.

    Raises:
        UserError: The name ends otherwise, there is nothing to write or too much, pyarrow is not
            installed, or the file cannot be written.
    """
    name = file.name.lower()
    ending = next((ending for ending in FORMATS if name.endswith(ending)), None)
    if ending is None:
        text = tr(
            "the file name must end with .csv, .parquet or .trace.gz; got {name}",
            name=repr(file.name),
        )
        raise UserError(text)
    known = {
        device.id: tuple(fields) or client.fields(device.id, since, until) for device in devices
    }
    names = tuple(dict.fromkeys(field for found in known.values() for field in found))
    read = [
        (device, client.history(device.id, names, since, until, points))
        for device in devices
        if names
    ]
    count = sum(len(columns.times) for _, columns in read)
    if not count:
        raise UserError(tr("there are no readings of that device in that time"))
    try:
        match ending:
            case ".csv":
                _write_csv(file, read, names)
            case ".parquet":
                _write_parquet(file, read, names)
            case _:
                file.unlink(missing_ok=True)  # who chose the name was asked
                write_recording(file, read, client.annotations(since, until))
    except OSError as e:
        text = tr("cannot write {file}: {problem}", file=file, problem=e.strerror or e)
        raise UserError(text) from e
    return count


def _whole(
    read: Sequence[tuple[Device, Columns]], names: Sequence[str]
) -> tuple[list[float], list[str], Values]:
    """Return times, names of devices, and for each field its mean, lowest and highest values."""
    times = [at for _, columns in read for at in columns.times]
    devices = [label(device) for device, columns in read for _ in columns.times]
    values = {
        name + end: [x for _, columns in read for x in getattr(columns, part)[name]]
        for name in names
        for end, part in _PARTS
    }
    return times, devices, values


def _write_csv(file: Path, read: Sequence[tuple[Device, Columns]], names: Sequence[str]) -> None:
    times, devices, values = _whole(read, names)
    with file.open("w", newline="") as f:
        out = csv.writer(f, lineterminator="\n")
        out.writerow(["time", "seconds", "device", *values])
        for at, device, *row in zip(times, devices, *values.values(), strict=True):
            stamp = time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(at))
            out.writerow(
                [stamp, f"{at:.3f}", device, *("" if x is None else f"{x:.15g}" for x in row)]
            )


def _write_parquet(
    file: Path, read: Sequence[tuple[Device, Columns]], names: Sequence[str]
) -> None:
    if missing := missing_of("parquet"):
        raise UserError(missing.text)
    import pyarrow
    from pyarrow import parquet

    times, devices, values = _whole(read, names)
    moments = pyarrow.array([round(at * 1e6) for at in times], pyarrow.timestamp("us", "UTC"))
    columns = {name: pyarrow.array(column, pyarrow.float64()) for name, column in values.items()}
    parquet.write_table(
        pyarrow.table({"time": moments, "device": pyarrow.array(devices), **columns}),
        file,
        compression="zstd",
    )
