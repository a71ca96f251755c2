"""The parts of a device in groups: links, MIG instances, cores, disks, networks, sensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.format.values import NOT_AVAILABLE, format_field
from app.strip.tile_model import Meaning
from scheduler.protocol.absence import explain
from scheduler.protocol.devices import Part
from scheduler.protocol.fields import FIELDS

_TITLES = {
    "instance": "MIG instances",
    "link": "NVLink links",
    "core": "Busy cores, %",
    "disk": "Disks",
    "network": "Networks",
    "sensor": "Sensors",
}
_SHORT = {
    "nvlink_rx": "in",
    "nvlink_tx": "out",
    "nvlink_errors": "errors",
    "disk_read": "read",
    "disk_write": "written",
    "net_rx": "in",
    "net_tx": "out",
    "mem_used": "used",
    "mem_total": "in all",
}
_IF_ANY = frozenset({"nvlink_errors"})
"""Told beside the others only where it is not zero; the tooltip has it always."""
_CORES_A_LINE = 8


@dataclass(frozen=True)
class Fact:
    label: str
    value: str
    tooltip: str
    meaning: Meaning = ""
    absent: bool = False


@dataclass(frozen=True)
class Group:
    title: str
    facts: tuple[Fact, ...]


def part_groups(parts: Sequence[Part]) -> list[Group]:
    """One group a kind of part."""
    found = []
    for kind, title in _TITLES.items():
        if chosen := [part for part in parts if part.kind == kind]:
            found.append(
                Group(
                    title,
                    _cores(chosen) if kind == "core" else tuple(_fact(part) for part in chosen),
                )
            )
    return found


def _fact(part: Part) -> Fact:
    cells = [
        f"{format_field(field, value)}{_after(field)}"
        for field, value in part.values.items()
        if value or field not in _IF_ANY
    ]
    about = [
        f"{FIELDS[field].label}: {format_field(field, value)}"
        for field, value in part.values.items()
    ]
    about += [
        f"{FIELDS[field].label}: N/A, {explain(cause)}" for field, cause in part.absent.items()
    ]
    about += [f"{name}: {text}" for name, text in part.texts.items()]
    words = (
        [state] if (state := part.texts.get("state", "")) and (state != "up" or not cells) else []
    )
    name = (
        part.name[part.name.find("MIG ") :]
        if part.kind == "instance" and "MIG " in part.name
        else part.name
    )
    return Fact(
        name,
        ", ".join(words + cells) or NOT_AVAILABLE,
        "\n".join(about),
        absent=not (words or cells),
    )


def _after(field: str) -> str:
    return f" {_SHORT[field]}" if field in _SHORT else ""


def _cores(parts: Sequence[Part]) -> tuple[Fact, ...]:
    """Eight to a line, as there may be hundreds."""
    lines = []
    for at in range(0, len(parts), _CORES_A_LINE):
        some = parts[at : at + _CORES_A_LINE]
        about = "\n".join(
            f"{p.name}: " + ", ".join(str(format_field(f, v)) for f, v in p.values.items())
            for p in some
        )
        name = f"{at} to {at + len(some) - 1}" if len(some) > 1 else f"{at}"
        lines.append(Fact(name, "  ".join(f"{p.values['util']:.0f}" for p in some), about))
    return tuple(lines)
