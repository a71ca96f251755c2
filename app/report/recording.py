"""Write a stretch of the history as a recording, such as an incident that others are to see.

`gpudeck daemon start --source replay:FILE` opens it on any machine. The stored history has the
means of its steps, so a recording of the last hour has every reading, and older ones fewer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from gpudeck.scheduler.devices.trace import Moment, TraceWriter
from gpudeck.scheduler.protocol.annotation import Annotation
from gpudeck.scheduler.protocol.devices import Device, Reading, card_name
from gpudeck.scheduler.protocol.snapshot import Columns


def write_recording(
    file: Path, read: Sequence[tuple[Device, Columns]], notes: Iterable[Annotation]
) -> None:
    """Write the readings of devices.

    Args:
        file: A new file.
        read: The columns of each device.
        notes: What happened meanwhile; jobs become the labels of their moments.
    """
    devices = tuple(_recorded(device) for device, _ in read)
    readings: dict[float, list[Reading]] = {}
    for device, columns in read:
        for at, time in enumerate(columns.times):
            row = {field: values[at] for field, values in columns.columns.items()}
            known = {field: value for field, value in row.items() if value is not None}
            if known:
                readings.setdefault(time, []).append(Reading(device.id, time, known))
    jobs = [note for note in notes if note.kind == "job" and note.job is not None]
    first = min(readings, default=0.0)
    with TraceWriter(file, devices, first, {"exported": "from the history"}) as trace:
        for time in sorted(readings):
            running = [note.job for note in jobs if _covers(note, time)]
            label = ", ".join(f"job {job}" for job in dict.fromkeys(running))
            trace.add(Moment(time, tuple(readings[time]), label))


def _recorded(device: Device) -> Device:
    """Return the device without what a replay adds by itself."""
    return msgspec.structs.replace(device, name=card_name(device.name), note="", host="")


def _covers(note: Annotation, time: float) -> bool:
    return note.time <= time and (note.until is None or time <= note.until)
