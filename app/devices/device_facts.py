"""Everything known of one device, in groups: each value with what it means and how it came about, or why there is none."""

from __future__ import annotations

from dataclasses import dataclass

from app.devices.parts import Fact, Group, part_groups
from app.format.values import NOT_AVAILABLE, FormattedValue, clock, duration, format_field
from app.strip.tile_model import Meaning, Tile, temperature_meaning, throttle, tiles
from scheduler.protocol.devices import NA, Detail, Reading
from scheduler.protocol.fields import FIELDS
from scheduler.protocol.snapshot import DeviceState, Snapshot

_FIRST = {
    "util": "Work",
    "mem_used": "Memory",
    "clock_sm": "Clocks",
    "power": "Power",
    "temp": "Heat",
    "pcie_gen": "Links",
    "ecc": "Health",
    "cores": "Machine",
}
"""The table of fields is in groups: the first field of each, and what it is called here."""
_FLAGS = frozenset(
    {
        "ecc",
        "rows_pending",
        "rows_failure",
        "pages_pending",
        "mig",
        "throttle_power",
        "throttle_heat",
    }
)


@dataclass(frozen=True)
class DeviceFacts:
    device: str
    tile: Tile
    read: str
    """When it was read last."""
    groups: tuple[Group, ...]


def device_facts(
    snapshot: Snapshot, device: str, detail: Detail | None = None
) -> DeviceFacts | None:
    """None where the device is not there (any more). `detail`: what was read of its parts, where it was."""
    state = next((s for s in snapshot.devices if s.device.id == device), None)
    if state is None:
        return None
    tile = next(t for t in tiles(snapshot) if t.device == device)
    read = (
        f"read at {clock(state.reading.time, snapshot.time)}" if state.reading else "not read now"
    )
    return DeviceFacts(
        device,
        tile,
        read,
        (_card(state, tile), *_groups(state), *part_groups(detail.parts if detail else ())),
    )


def _card(state: DeviceState, tile: Tile) -> Group:
    device = state.device
    rows = [
        ("Name", device.name),
        ("Id", device.id),
        *device.facts.items(),
        ("Used by", tile.holder),
    ]
    rows += [("Note", device.note)] if device.note else []
    return Group(
        "Card" if device.kind != "cpu" else "Processor",
        tuple(Fact(k[:1].upper() + k[1:], v, v) for k, v in rows),
    )


def _groups(state: DeviceState) -> list[Group]:
    reading = state.reading
    if reading is None:
        return []
    found: dict[str, list[Fact]] = {}
    title = ""
    for field in FIELDS:
        title = _FIRST.get(field, title)
        if field in reading.values or field in reading.absent or field in reading.texts:
            found.setdefault(title, []).append(_fact(field, reading))
    return [Group(title, tuple(facts)) for title, facts in found.items()]


def _fact(field: str, reading: Reading) -> Fact:
    value, what = reading.get(field), FIELDS[field]
    shown = format_field(field, value)
    about = [f"{what.label}: {what.meaning}"]
    if shown.reason:
        about.append(f"N/A: {shown.reason}")
    elif method := reading.methods.get(field):
        about.append(method)
    meaning: Meaning = temperature_meaning(reading) if field == "temp" else ""
    if field == "throttle" and throttle(reading):
        meaning = "throttled"
    return Fact(
        what.label,
        _text(field, reading, value, shown),
        "\n".join(about),
        meaning,
        isinstance(value, NA),
    )


def _text(field: str, reading: Reading, value: float | NA, shown: FormattedValue) -> str:
    if field in reading.texts:
        return reading.texts[field]
    if isinstance(value, NA) or shown.reason:
        return NOT_AVAILABLE
    if field in _FLAGS:
        return "yes" if value else "no"
    if FIELDS[field].unit in ("", "lanes") and value == int(value):
        return f"{value:.0f} {FIELDS[field].unit}".strip()
    if field == "throttled":
        return duration(value)
    return str(shown)
