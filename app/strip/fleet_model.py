"""Many devices as a map of coloured cells: by which quantity, in which order, and which of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from app.strip.tile_model import Metric, Tile

MANY = 16
"""With more devices than this the strip is a map instead of tiles."""
CHARTED = 8
"""Of many devices the charts show so many: the first of the map."""


@dataclass(frozen=True)
class Quantity:
    """What the colours stand for: one of a tile's metrics; `share` of it, 0 to 1."""

    name: str
    metric: int


QUANTITIES = (
    Quantity("Utilisation", 0),
    Quantity("Memory", 1),
    Quantity("Temperature", 3),
    Quantity("Power", 4),
)
ORDERS = ("By number", "Highest first", "Lowest first")
EVERY, IN_USE, IDLE, HOT = KINDS = ("All", "In use", "Idle", "Hot or slowed")


@dataclass(frozen=True)
class Cell:
    device: str
    number: str
    text: str
    """The value, short: "98 %"."""
    share: float | None
    """How deep its colour is; None: no value."""
    meaning: str
    tooltip: str


def cells(shown: tuple[Tile, ...], quantity: Quantity) -> tuple[Cell, ...]:
    return tuple(_cell(tile, tile.metrics[quantity.metric]) for tile in shown)


def _cell(tile: Tile, metric: Metric) -> Cell:
    lines = [
        f"{tile.title} · {tile.name}",
        tile.holder,
        *(f"{m.caption} {m.text}" for m in tile.metrics),
    ]
    text = (
        metric.text
        if metric.caption != "Memory" or metric.share is None
        else f"{100 * metric.share:.0f} %"
    )
    return Cell(
        tile.device, tile.title.split()[-1], text, metric.share, matter(tile), "\n".join(lines)
    )


def matter(tile: Tile) -> str:
    """What is the matter with the device, as colour stands for it: hot before throttled before warm."""
    meanings = {metric.meaning for metric in tile.metrics}
    return next((m for m in ("failed", "hot", "throttled", "warm") if m in meanings), "")


def chosen(
    shown: tuple[Tile, ...], quantity: Quantity, order: str, kind: str, search: str
) -> tuple[str, ...]:
    """Ids of the devices to show, in their order: those of a kind in which every word of `search` is found."""
    words = search.lower().split()
    fits: dict[str, Callable[[Tile], bool]] = {
        EVERY: lambda tile: True,
        IN_USE: lambda tile: tile.holder != "idle",
        IDLE: lambda tile: tile.holder == "idle",
        HOT: lambda tile: matter(tile) in ("hot", "throttled", "failed"),
    }
    found = [
        tile for tile in shown if fits[kind](tile) and all(word in _text(tile) for word in words)
    ]
    if order != ORDERS[0]:
        sign = -1 if order == ORDERS[1] else 1
        shares = {tile.device: tile.metrics[quantity.metric].share for tile in found}
        found.sort(key=lambda tile: ((share := shares[tile.device]) is None, sign * (share or 0.0)))
    return tuple(tile.device for tile in found)


def _text(tile: Tile) -> str:
    return f"{tile.title} {tile.name} {tile.holder} {tile.holder_tooltip} {tile.device}".lower()
