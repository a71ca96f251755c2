"""Group everything that is known of one device: its values with their meanings, and its parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gpudeck.app.format.job_rows import meaning, state_word
from gpudeck.app.format.power_limit import how_to_set, limit_range, limit_text
from gpudeck.app.format.values import (
    NOT_AVAILABLE,
    FormattedValue,
    Meaning,
    clock,
    duration,
    format_field,
)
from gpudeck.app.language.texts import tr, tr_moment, tr_noop, tr_text
from gpudeck.app.strip.tile_model import Tile, temperature_meaning, throttle_reasons, tiles
from gpudeck.language.numbers import capitalized
from gpudeck.scheduler.protocol.absence import explain
from gpudeck.scheduler.protocol.devices import NA, Detail, Device, Part, Reading, card_name
from gpudeck.scheduler.protocol.fields import FIELDS, UNCERTAINTY
from gpudeck.scheduler.protocol.snapshot import DeviceState, Snapshot

FIRST_FIELDS = {
    "util": tr_noop("Work"),
    "mem_used": tr_noop("Memory"),
    "clock_sm": tr_noop("Clocks"),
    "power": tr_noop("Power"),
    "temp": tr_noop("Heat"),
    "pcie_gen": tr_noop("Links"),
    "ecc": tr_noop("Health"),
    "cores": tr_noop("Machine"),
}
"""The first field of each group in the table of fields, and the title of the group."""
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
_PART_TITLES = {
    "instance": tr_noop("MIG instances"),
    "link": tr_noop("NVLink links"),
    "core": tr_noop("Busy cores, %"),
    "disk": tr_noop("Disks"),
    "network": tr_noop("Networks"),
    "sensor": tr_noop("Sensors"),
}
_PART_VALUES = {
    "nvlink_rx": tr_noop("{value} in"),
    "nvlink_tx": tr_noop("{value} out"),
    "nvlink_errors": tr_noop("{value} errors"),
    "disk_read": tr_noop("{value} read"),
    "disk_write": tr_noop("{value} written"),
    "net_rx": tr_noop("{value} in"),
    "net_tx": tr_noop("{value} out"),
    "mem_used": tr_noop("{value} used"),
    "mem_total": tr_noop("{value} total"),
}
_LANES = tr_noop("lanes")
_LINK_STATES = {"up": tr_noop("up"), "down": tr_noop("down")}
_CARD = (
    tr_noop("Driver"),
    tr_noop("Compute capability"),
    tr_noop("VBIOS"),
    tr_noop("Threads"),
    tr_noop("Why"),
    tr_noop("state"),
    tr_noop("version"),
)
"""Captions that devices and their parts have for what they tell about themselves."""
_LEADS = ("util", "mem_used", "clock_sm", "power", "temp")
"""The value that each group is looked at for."""
_MINOR = frozenset(
    {
        *("graphics", "tensor_hmma", "tensor_imma", "tensor_dfma", "fp16", "fp32", "fp64"),
        *("integer", "dram", "encoder", "decoder", "jpeg", "ofa"),
        *("bar1_used", "bar1_total", "mem_reserved"),
        *("clock_video", "clock_mem_max", "clock_video_max"),
        *("power_limit_default", "power_limit_min", "power_limit_max"),
        *("temp_shutdown", "temp_max", "temp_mem_max"),
    }
)
"""Fields that few people look at."""
_MINOR_AT_ZERO = frozenset({"pcie_replays", "nvlink_rx", "nvlink_tx", "nvlink_errors"})
"""Fields that few people look at while they are zero."""
_LABELS = {
    "mem_util": tr_noop("Memory busy"),
    "tflops_gpm": tr_noop("TFLOP/s, by hardware counters"),
    "sm_active": tr_noop("Multiprocessors at work"),
    "sm_occupancy": tr_noop("Warp slots in use"),
    "tensor": tr_noop("Tensor cores at work"),
    "mem_used": tr_noop("In use"),
    "mem_free": tr_noop("Free"),
    "mem_total": tr_noop("Total memory"),
    "mem_reserved": tr_noop("Reserved by the driver"),
    "bar1_used": tr_noop("BAR1 in use"),
    "bar1_total": tr_noop("BAR1"),
    "clock_sm": tr_noop("Core clock"),
    "clock_sm_max": tr_noop("Core clock (max)"),
    "SMs": tr_noop("Multiprocessors"),
    "pstate": tr_noop("Performance level"),
    "throttle": tr_noop("Slowed down by"),
    "ecc": tr_noop("Error correction (ECC)"),
    "ecc_corrected": tr_noop("Memory errors, corrected"),
    "ecc_uncorrected": tr_noop("Memory errors, not corrected"),
}
"""Labels in plainer words than those of the table of fields, for values that stand in groups."""
_FASTEST, _SLOWEST = tr_noop("P0, the fastest"), tr_noop("P{level}, of P0 to P15")
"""What a performance level is called."""
_JOBS = 4
"""The most jobs of a device that are listed."""
_ONLY_NONZERO = frozenset({"nvlink_errors"})
"""Fields of a part that only the tooltip shows while they are zero."""
_CORES_A_LINE = 8


@dataclass(frozen=True)
class DeviceFact:
    """One value of a device."""

    label: str
    value: str
    tooltip: str
    meaning: Meaning = ""
    absent: bool = False
    zero: bool = False
    lead: bool = False
    """It is the value that its group is looked at for."""
    minor: bool = False
    """It is shown only on demand."""


@dataclass(frozen=True)
class FactGroup:
    """Several values under a title."""

    title: str
    facts: tuple[DeviceFact, ...]


@dataclass(frozen=True)
class DeviceFacts:
    """All values of a device."""

    tile: Tile
    read: str
    """When the device was last read."""
    groups: tuple[FactGroup, ...]


def device_facts(
    snapshot: Snapshot, device: str, detail: Detail | None = None
) -> DeviceFacts | None:
    """Return what is known of a device; None if it is not in the snapshot.

    Args:
        detail: What was read of the device's parts.
    """
    state = next((s for s in snapshot.devices if s.device.id == device), None)
    if state is None:
        return None
    tile = next(t for t in tiles(snapshot) if t.device == device)
    read = (
        tr("Read at {time}", time=clock(state.reading.time, snapshot.time))
        if state.reading
        else tr("No reading yet")
    )
    groups = (
        *_groups(state.device, state.reading),
        *_part_groups(detail.parts if detail else ()),
        *_jobs(device, snapshot),
        _card(state, tile, snapshot),
    )
    return DeviceFacts(tile, read, groups)


def _jobs(device: str, snapshot: Snapshot) -> tuple[FactGroup, ...]:
    """Return the newest jobs that ran or run on the device."""
    found = []
    for job in snapshot.jobs:
        began, until = job.started, job.ended
        if began is None or device not in getattr(job.state, "devices", ()):
            continue
        lasted = duration((snapshot.time if until is None else until) - began)
        value = f"{tr(state_word(job))}, {lasted}"
        when = clock(began, snapshot.time)
        tooltip = tr("Job {job}, started {time}", job=job.id, time=when)
        fact = DeviceFact(f"{job.id} · {job.spec.name}", value, tooltip, meaning(job))
        found.append((began, fact))
    newest = sorted(found, key=lambda pair: -pair[0])[:_JOBS]
    return (FactGroup(tr("Jobs"), tuple(fact for _, fact in newest)),) if newest else ()


def _card(state: DeviceState, tile: Tile, snapshot: Snapshot) -> FactGroup:
    device = state.device
    rows = {tr("Name"): card_name(device.name), tr("ID"): device.id}
    for name, told in device.facts.items():
        rows[tr(_LABELS.get(name, capitalized(name)))] = tr_text(told)
    if device.kind != "replay":  # nobody uses a recording
        rows[tr("Used by")] = tile.holder
    for number, booking in snapshot.settings.reservations.items():
        if device.id in booking.gpus and booking.end > snapshot.time:
            rows[tr("Booking {number}", number=number)] = tr(
                "{begin} to {end}, for {holder}",
                begin=tr_moment(booking.begin, snapshot.time),
                end=tr_moment(booking.end, snapshot.time),
                holder=tr_text(booking.holder),
            )
    if device.note and device.kind != "replay":  # the page's title says so
        rows[tr("Note")] = tr_text(device.note)
    return FactGroup(
        tr("Processor") if device.kind == "cpu" else tr("Card"),
        tuple(DeviceFact(name, value, value) for name, value in rows.items()),
    )


def _groups(device: Device, reading: Reading | None) -> list[FactGroup]:
    if reading is None:
        return []
    found: dict[str, list[DeviceFact]] = {}
    title = ""
    for field in FIELDS:
        title = FIRST_FIELDS.get(field, title)
        if field in UNCERTAINTY.values():
            continue  # it stands beside the value that it is about
        if field in reading.values or field in reading.absent or field in reading.texts:
            found.setdefault(title, []).append(_fact(field, reading))
    if "Power" in found and device.kind == "nvidia":
        found["Power"] = [_with_limits(fact, device, reading) for fact in found["Power"]]
    return [FactGroup(tr(title), tuple(facts)) for title, facts in found.items()]


def _fact(field: str, reading: Reading) -> DeviceFact:
    value, description = reading.get(field), FIELDS[field]
    shown = format_field(field, value)
    tooltip = _captioned(field, tr(description.meaning))
    if not shown.available:
        tooltip += "\n" + tr("Not available: {why}", why=shown.reason)
    elif field in reading.methods:
        tooltip += f"\n{tr_text(reading.methods[field])}"
    judged: Meaning = temperature_meaning(reading) if field == "temp" else ""
    if field == "throttle" and throttle_reasons(reading):
        judged = "throttled"
    absent, text = isinstance(value, NA), _text(field, reading, value, shown)
    zero = not absent and value == 0 and field != "pstate" and field not in reading.texts
    return DeviceFact(
        tr(_LABELS.get(field, description.label)),
        text,
        tooltip,
        judged,
        absent,
        zero=zero,
        lead=field in _LEADS,
        minor=field in _MINOR or (zero and field in _MINOR_AT_ZERO),
    )


def _with_limits(fact: DeviceFact, device: Device, reading: Reading) -> DeviceFact:
    """Return the power limit with its range, and how it is set; other facts as they are."""
    limit = FIELDS["power_limit"]
    if fact.label != tr(limit.label) or fact.absent or not limit_range(reading):
        return fact
    tooltip = f"{fact.tooltip}\n{how_to_set(device)}"
    return replace(fact, value=limit_text(reading), tooltip=tooltip)


def _text(field: str, reading: Reading, value: float | NA, shown: FormattedValue) -> str:
    if field in reading.texts:
        return tr_text(reading.texts[field])
    if isinstance(value, NA) or not shown.available:
        return NOT_AVAILABLE
    if field == "pstate":
        return tr(_FASTEST) if value == 0 else tr(_SLOWEST, level=f"{value:.0f}")
    if field in _FLAGS:
        return tr("yes") if value else tr("no")
    unit = FIELDS[field].unit
    if unit in ("", _LANES) and value == int(value):
        return f"{value:.0f} {tr(unit)}" if unit else f"{value:.0f}"
    if field == "throttled":
        return duration(value)
    error = reading.values.get(UNCERTAINTY.get(field, ""))
    if error is None:
        return str(shown)
    return f"{shown.text} ±{error:.0f} %"


def _part_groups(parts: Sequence[Part]) -> Iterator[FactGroup]:
    """Return one group a kind of part."""
    for kind, title in _PART_TITLES.items():
        chosen = [part for part in parts if part.kind == kind]
        facts = tuple(_cores(chosen) if kind == "core" else map(_part_fact, chosen))
        if facts:
            yield FactGroup(tr(title), facts)


def _captioned(field: str, value: object) -> str:
    """Return a line of a tooltip: what a field is called, and what is told of it."""
    return tr("{caption}: {value}", caption=tr(FIELDS[field].label), value=value)


def _part_fact(part: Part) -> DeviceFact:
    cells = [
        tr(_PART_VALUES.get(field, "{value}"), value=format_field(field, value))
        for field, value in part.values.items()
        if value or field not in _ONLY_NONZERO
    ]
    lines = [_captioned(field, format_field(field, value)) for field, value in part.values.items()]
    lines += [
        _captioned(field, f"– ({tr_text(explain(cause))})") for field, cause in part.absent.items()
    ]
    lines += [
        tr("{caption}: {value}", caption=tr(name), value=tr(_LINK_STATES.get(told, told)))
        for name, told in part.texts.items()
    ]
    state = part.texts.get("state", "")
    if state and (state != "up" or not cells):
        cells.insert(0, tr(_LINK_STATES.get(state, state)))
    name = part.name
    if part.kind == "instance":
        name = name[max(name.find("MIG "), 0) :]
    value = ", ".join(cells) or NOT_AVAILABLE
    return DeviceFact(name, value, "\n".join(lines), absent=not cells)


def _cores(parts: Sequence[Part]) -> Iterator[DeviceFact]:
    """List eight cores a line, as there may be hundreds."""
    for at in range(0, len(parts), _CORES_A_LINE):
        line = parts[at : at + _CORES_A_LINE]
        tooltip = "\n".join(
            f"{p.name}: " + ", ".join(str(format_field(f, v)) for f, v in p.values.items())
            for p in line
        )
        last = at + len(line) - 1
        name = tr("{first} to {last}", first=at, last=last) if last > at else f"{at}"
        values = "  ".join(f"{p.values['util']:.0f}" for p in line)
        yield DeviceFact(name, values, tooltip)
