"""Describe the devices in a few characters each; of many, what each machine does in all. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gpudeck.app.format.values import Meaning
from gpudeck.app.language.texts import tr, tr_noop
from gpudeck.app.strip.tile_model import TEMPERATURE, UTILISATION, Tile

_IDLE = 0.05
"""The utilisation up to which a device that nobody holds is not busy."""


class ChipValue(NamedTuple):
    """Hold one value of a chip."""

    text: str
    meaning: Meaning = ""
    """What its colour says."""


@dataclass(frozen=True)
class Chip:
    """Describe one device, or several, in a few characters."""

    title: str
    values: tuple[ChipValue, ...]
    """The most important one is the first."""
    share: float | None
    """Utilisation, 0 to 1, the mean of several devices; None if it is not known."""
    meaning: Meaning
    tooltip: str
    device: str = ""
    """The device; empty for several."""
    host: str = ""
    """The other machine that several devices belong to; empty for this one, or for several."""

    @property
    def text(self) -> str:
        """Return all values, with two spaces between them."""
        return "  ".join(value.text for value in self.values)

    @property
    def cause(self) -> ChipValue:
        """Return the value to show where there is room for one: the one that is coloured."""
        first = self.values[0] if self.values else ChipValue("")
        return next((value for value in self.values if value.meaning), first)


def device_chip(tile: Tile) -> Chip:
    """Return the chip of a device."""
    util, temperature = tile.metrics[UTILISATION], tile.metrics[TEMPERATURE]
    parts = [ChipValue(tr("free") if tile.free else util.text, tile.meaning_of(UTILISATION))]
    if temperature.share is not None:
        parts.append(ChipValue(temperature.text, tile.meaning_of(TEMPERATURE)))
    values = (f"{m.caption} {m.text}" for m in tile.metrics)
    tooltip = "\n".join((f"{tile.title} · {tile.name}", tile.holder, *values))
    return Chip(tile.title, tuple(parts), util.share, tile.meaning, tooltip, tile.device)


def machine_chips(tiles: Sequence[Tile]) -> tuple[Chip, ...]:
    """Return a chip for each machine; for a single machine one that needs no name."""
    machines: dict[str, list[Tile]] = {}
    for tile in tiles:
        machines.setdefault(tile.host, []).append(tile)
    if len(machines) < 2:
        return (fleet_chip(tiles),)
    found = []
    for host, its in machines.items():
        busy, hottest, share, meaning = _sum_up(its)
        name = host or tr("This machine")
        values = (ChipValue(busy), *hottest)
        tooltip = f"{name}: {_sentence(values)}"
        found.append(Chip(name, values, share, meaning, tooltip, host=host))
    return tuple(found)


def fleet_chip(tiles: Sequence[Tile]) -> Chip:
    """Return one chip for all devices."""
    busy, hottest, share, meaning = _sum_up(tiles)
    values = _sentence((ChipValue(busy), *hottest))
    return Chip(busy, hottest, share, meaning, tr("All GPUs: {values}", values=values))


def _sentence(parts: tuple[ChipValue, ...]) -> str:
    values = ", ".join(part.text for part in parts)
    return tr("{values}. Click to show each of them on the Dashboard", values=values)


def _sum_up(tiles: Sequence[Tile]) -> tuple[str, tuple[ChipValue, ...], float | None, Meaning]:
    """Return how many are busy, the highest temperature, the mean utilisation, and a meaning."""
    shares = [s for tile in tiles if (s := tile.metrics[UTILISATION].share) is not None]
    busy = sum(
        tile.usage in ("held", "in use") or (tile.metrics[UTILISATION].share or 0.0) > _IDLE
        for tile in tiles
    )
    warm = [m for tile in tiles if (m := tile.metrics[TEMPERATURE]).value is not None]
    hottest = max(warm, key=lambda m: m.value or 0.0, default=None)
    usages = {tile.usage for tile in tiles}
    away = next(
        (usage for usage in (tr_noop("unreachable"), tr_noop("asleep")) if usages == {usage}), ""
    )
    meaning: Meaning = "" if hottest is None else hottest.meaning
    shown = () if hottest is None else (tr("{value} max", value=hottest.text),)
    return (
        tr(away) or tr("{n} of {total} busy", n=busy, total=len(tiles)),
        tuple(ChipValue(text, meaning) for text in shown),
        sum(shares) / len(shares) if shares else None,
        meaning,
    )
