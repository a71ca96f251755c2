"""All devices in a word or two: for the tray and the compact strip."""

from __future__ import annotations

from dataclasses import dataclass

from app.alerts.alert_rows import unacknowledged
from app.strip.fleet_model import matter
from app.strip.tile_model import Tile, tiles
from scheduler.protocol.snapshot import Snapshot

LISTED = 12
"""More devices than this are counted, not listed."""


@dataclass(frozen=True)
class Row:
    """One device in a line: its number, utilisation (and its share, 0 to 1), memory, temperature and power."""

    title: str
    share: float | None
    values: tuple[str, ...]
    meaning: str


@dataclass(frozen=True)
class Brief:
    figure: str
    """Utilisation of the busiest device in percent; "–" where none can be read."""
    alarm: bool
    """Something is raised that nobody has seen."""
    rows: tuple[Row, ...]
    more: int
    """Devices that are not among the rows."""

    @property
    def text(self) -> str:
        """For tooltips and screen readers."""
        lines = [" · ".join((row.title, *row.values)) for row in self.rows]
        return (
            "\n".join([*lines, *([f"and {self.more} more"] if self.more else [])])
            or "no device is read"
        )


def brief(snapshot: Snapshot) -> Brief:
    """Where there are many devices, the busiest are listed."""
    shown = tiles(snapshot)
    shares = [s for tile in shown if (s := tile.metrics[0].share) is not None]
    listed = (
        shown
        if len(shown) <= LISTED
        else tuple(sorted(shown, key=lambda t: -(t.metrics[0].share or 0.0)))[:LISTED]
    )
    figure = f"{100 * max(shares):.0f}" if shares else "–"
    return Brief(
        figure,
        unacknowledged(snapshot) > 0,
        tuple(_row(tile) for tile in listed),
        len(shown) - len(listed),
    )


def _row(tile: Tile) -> Row:
    util, memory, _, temperature, power = tile.metrics
    used = memory.text if memory.share is None else f"{100 * memory.share:.0f} % mem"
    title = tile.title.replace("GPU", "REPLAY") if tile.replay else tile.title
    return Row(title, util.share, (util.text, used, temperature.text, power.text), matter(tile))
