"""Summarize all devices in a few words, for the tray and the compact strip."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from gpudeck.app.format.free_devices import free_devices
from gpudeck.app.format.values import Meaning
from gpudeck.app.language.texts import tr
from gpudeck.app.strip.tile_model import MEMORY, POWER, TEMPERATURE, UTILISATION, Tile, tiles
from gpudeck.scheduler.protocol.snapshot import Snapshot

LISTED = 12
"""The most devices that are listed; the others are counted."""
REPLAY = "REPLAY"
"""Where recordings are shown, the word that says so."""
_NO_VALUE = "–"


@dataclass(frozen=True)
class SummaryRow:
    """One device in a line."""

    title: str
    share: float | None
    """Utilisation, 0 to 1."""
    values: tuple[str, ...]
    """Utilisation, memory, temperature and power."""
    meanings: tuple[Meaning, ...]
    """What the colours of these say."""
    memory: str
    """How much of its memory is in use, below a heading that says so."""


@dataclass(frozen=True)
class StripSummary:
    """All devices in a few words."""

    figure: str
    """Utilisation of the busiest device in percent."""
    alarm: bool
    """Report if an alert is raised that nobody has acknowledged."""
    rows: tuple[SummaryRow, ...]
    more: int
    """The number of devices that are not among the rows."""
    free: str = ""
    """How many devices are free, and which is next; empty where only recordings are shown."""
    replay: bool = False
    """Report if nothing but recordings is shown."""

    @property
    def text(self) -> str:
        """Return a text for tooltips and screen readers."""
        lines = [REPLAY] if self.replay else []
        lines += [self.free] if self.free else []
        lines += [" · ".join((row.title, *row.values)) for row in self.rows]
        if self.more:
            lines.append(tr("and {n} more", n=self.more))
        return "\n".join(lines) or tr("No device can be read")


def summarize(snapshot: Snapshot) -> StripSummary:
    """Summarize the devices; of many, list the busiest."""
    shown = tiles(snapshot)
    listed = shown
    if len(shown) > LISTED:
        listed = tuple(sorted(shown, key=lambda tile: -(_utilisation(tile) or 0.0))[:LISTED])
    recorded = bool(shown) and all(tile.replay for tile in shown)
    shares = [share for tile in shown if (share := _utilisation(tile)) is not None]
    return StripSummary(
        f"{100 * max(shares):.0f}" if shares else _NO_VALUE,
        unacknowledged(snapshot) > 0,
        tuple(_row(tile, _title(tile, recorded)) for tile in listed),
        len(shown) - len(listed),
        free_devices(snapshot).text,
        recorded,
    )


def _utilisation(tile: Tile) -> float | None:
    return tile.metrics[UTILISATION].share


def _title(tile: Tile, recorded: bool) -> str:
    """Return the title of a device; beside live devices it says that a recording is one."""
    return f"{REPLAY} {tile.title}" if tile.replay and not recorded else tile.title


def _row(tile: Tile, title: str) -> SummaryRow:
    memory = tile.metrics[MEMORY]
    share = None if memory.share is None else f"{100 * memory.share:.0f}"
    used = memory.text if share is None else tr("{share} % mem", share=share)
    short = memory.text if share is None else f"{share} %"
    util, temperature, power = (tile.metrics[i].text for i in (UTILISATION, TEMPERATURE, POWER))
    meanings = tuple(map(tile.meaning_of, (UTILISATION, MEMORY, TEMPERATURE, POWER)))
    values = (util, used, temperature, power)
    return SummaryRow(title, _utilisation(tile), values, meanings, short)


def unacknowledged(snapshot: Snapshot | None) -> int:
    """Count the raised alerts that nobody has acknowledged."""
    return sum(not alert.acknowledged for alert in snapshot.alerts) if snapshot else 0


def device_names(tiles: Sequence[Tile]) -> str:
    """Return how many devices of each name there are: 8 × H100 80GB HBM3."""
    counts = Counter(tile.name for tile in tiles)
    return ", ".join(f"{count} × {name}" if count > 1 else name for name, count in counts.items())
