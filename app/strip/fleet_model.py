"""Sort, filter and colour many devices for the map that replaces the tiles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from gpudeck.app.format.values import Meaning, shortest_label
from gpudeck.app.language.texts import tr_noop
from gpudeck.app.strip.tile_model import MEMORY, POWER, TEMPERATURE, UTILISATION, Tile

MANY = 16
"""With more devices than this the strip shows a map instead of tiles."""
BY_NUMBER, HIGHEST_FIRST, LOWEST_FIRST = ORDERS = (
    tr_noop("By number"),
    tr_noop("Highest first"),
    tr_noop("Lowest first"),
)
QUANTITIES = {
    tr_noop("Utilisation"): UTILISATION,
    tr_noop("Memory"): MEMORY,
    tr_noop("Temperature"): TEMPERATURE,
    tr_noop("Power"): POWER,
}
"""The values that the colours can stand for, as indices of `tile_model.METRICS`."""
FILTERS: dict[str, Callable[[Tile], bool]] = {
    tr_noop("All devices"): lambda tile: True,
    tr_noop("In use"): lambda tile: tile.usage in ("held", "in use", "recorded"),
    tr_noop("Idle"): lambda tile: tile.usage == "idle",
    tr_noop("Hot or throttled"): lambda tile: tile.meaning in ("hot", "throttled", "failed"),
}


class Selection(NamedTuple):
    """Describe which devices the map shows, and how, by the English keys of the tables above."""

    quantity: str
    order: str
    filter: str
    search: str


@dataclass(frozen=True)
class MapCell:
    """One device in the map."""

    device: str
    number: str
    text: str
    """The value, short: "98 %"."""
    share: float | None
    """The depth of the colour, 0 to 1; None if there is no value."""
    meaning: Meaning
    tooltip: str


def map_cell(tile: Tile, quantity: str) -> MapCell:
    """Return the cell of a device, coloured by `quantity`."""
    metric = tile.metrics[QUANTITIES[quantity]]
    values = (f"{m.caption} {m.text}" for m in tile.metrics)
    tooltip = "\n".join((f"{tile.title} · {tile.name}", tile.holder, *values))
    text = metric.text
    if QUANTITIES[quantity] == MEMORY and metric.share is not None:
        text = f"{100 * metric.share:.0f} %"
    number = shortest_label(tile.title)
    return MapCell(tile.device, number, text, metric.share, tile.meaning, tooltip)


def selected_devices(tiles: tuple[Tile, ...], selection: Selection) -> tuple[str, ...]:
    """Return the ids of the devices to show, in their order."""
    words = selection.search.lower().split()
    fits = FILTERS[selection.filter]
    found = [
        tile for tile in tiles if fits(tile) and all(word in _searched(tile) for word in words)
    ]
    if selection.order != BY_NUMBER:
        metric = QUANTITIES[selection.quantity]
        sign = -1 if selection.order == HIGHEST_FIRST else 1

        def place(tile: Tile) -> tuple[bool, float]:
            share = tile.metrics[metric].share
            return share is None, sign * (share or 0.0)

        found.sort(key=place)
    return tuple(tile.device for tile in found)


def _searched(tile: Tile) -> str:
    return f"{tile.title} {tile.name} {tile.holder} {tile.holder_tooltip} {tile.device}".lower()
