"""Describe the power limit of a GPU, and the command by which root sets it."""

from __future__ import annotations

import math

from gpudeck.app.format.values import format_field
from gpudeck.app.language.texts import tr
from gpudeck.language.text import Number, phrase
from gpudeck.scheduler.protocol.devices import NA, Device, Reading
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.snapshot import label


def limit_range(reading: Reading) -> str:
    """Return the range that the limit can be set to, such as "100 to 450 W"; empty if unknown."""
    low, high = reading.get("power_limit_min"), reading.get("power_limit_max")
    if isinstance(low, NA) or isinstance(high, NA):
        return ""
    return tr("{low} to {high} W", low=f"{low:.0f}", high=f"{high:.0f}")


def how_to_set(device: Device) -> str:
    """Return a sentence with the command, without a value."""
    command = _command(device, "WATTS")
    if device.host:
        return tr("To set it, run as root on {host}: {command}", host=device.host, command=command)
    return tr("To set it, run as root: {command}", command=command)


def limit_command(device: Device, reading: Reading | None, watts: float) -> str:
    """Return the command that sets the limit; GPU Deck itself never runs it.

    Raises UserError where the card has no such limit.
    """
    name = label(device)
    if device.kind != "nvidia":
        raise UserError(
            phrase(
                "{name} is no NVIDIA GPU. Only the limit of an NVIDIA GPU can be set.", name=name
            )
        )
    if reading is None or not reading.values:
        raise UserError(
            phrase("{name} cannot be read at the moment, so its limits are not known", name=name)
        )
    low, high = reading.get("power_limit_min"), reading.get("power_limit_max")
    if isinstance(low, NA) or isinstance(high, NA):
        why = low.reason if isinstance(low, NA) else ""
        raise UserError(
            phrase("the power limit of {name} cannot be set ({why})", name=name, why=why)
        )
    if not (math.isfinite(watts) and math.ceil(low) <= watts <= high):
        raise UserError(
            phrase(
                "{name} takes a limit of {low} to {high} W; got {watts} W",
                name=name,
                low=math.ceil(low),
                high=math.floor(high),
                watts=Number(watts),
            )
        )
    return _command(device, f"{watts:g}")


def _command(device: Device, watts: str) -> str:
    return f"sudo nvidia-smi -i {device.index} -pl {watts}"


def limit_text(reading: Reading) -> str:
    """Return the limit in force with its range: "350 W (100 to 450 W)"."""
    shown, span = str(format_field("power_limit", reading.get("power_limit"))), limit_range(reading)
    return f"{shown} ({span})" if span else shown
