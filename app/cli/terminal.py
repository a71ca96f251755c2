"""The devices, alerts and jobs as lines of text that fit a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.format.values import clock, plural
from app.jobs.rows import row
from app.strip.tile_model import QUIET, Meaning, Tile, tiles
from scheduler.protocol.jobs import Queued
from scheduler.protocol.progress import printable
from scheduler.protocol.snapshot import Snapshot

HEADINGS = ("DEVICE", "NAME", "UTILISATION", "MEMORY", "TFLOP/S", "TEMPERATURE", "POWER", "USE")
_SHORT = ("DEVICE", "NAME", "UTIL", "MEMORY", "TFLOP/S", "TEMP", "POWER", "USE")
_DROPPED = ("NAME", "USE", "TFLOP/S", "POWER")
"""What is left out where there is no room, in this order."""
_GAP = "  "
_BAR = 10


@dataclass(frozen=True)
class Piece:
    """Text of one meaning within a line; `strong` for headings."""

    text: str
    meaning: Meaning | str = ""


Line = tuple[Piece, ...]


def status_lines(snapshot: Snapshot, width: int) -> list[Line]:
    """One line a device, under headings; `width` in characters, 0: as wide as it gets."""
    rows = [
        tuple(Piece(h, "muted") for h in HEADINGS),
        *(_device(tile) for tile in tiles(snapshot)),
    ]
    return _fit(rows, width)


def watch_lines(snapshot: Snapshot, width: int, height: int) -> list[Line]:
    """All of it within `height` lines: devices, what is the matter, jobs; the last line says how to leave."""
    head = f"{plural(len(snapshot.devices), 'device')}{_GAP}{snapshot.source}{_GAP}{clock(snapshot.time)}"
    room = height - 2
    matter: list[Line] = [
        *((Piece(a.text, "hot"),) for a in snapshot.alerts),
        *((Piece(n, "warm"),) for n in snapshot.notices),
    ]
    jobs = _jobs(snapshot)
    below = min(len(matter), 4) + min(len(jobs), 4)
    one_each = [
        tuple(Piece(h, "muted") for h in _SHORT),
        *(_device(tile, bars=width >= 110) for tile in tiles(snapshot)),
    ]
    devices = (
        _fit(one_each, width) if len(one_each) + below <= room else _grid(tiles(snapshot), width)
    )
    lines = [(Piece(head, "muted"),), *devices, *matter]
    if len(lines) > height - 1:
        left = len(lines) - (height - 2)
        lines = [
            *lines[: height - 2],
            (Piece(f"and {plural(left, 'line')} more: make the terminal larger", "muted"),),
        ]
    lines += jobs[: max(height - 1 - len(lines), 0)]
    lines += [()] * (height - 1 - len(lines))
    return [_cut(line, width) for line in (*lines, (Piece("Ctrl+C leaves", "muted"),))]


def _device(tile: Tile, bars: bool = False) -> Line:
    use = tile.holder_tooltip if tile.holder == "in use" else tile.holder
    cells = []
    for metric in tile.metrics:
        bar = _bar(metric.share) if bars and metric.caption in ("Utilisation", "Memory") else ""
        cells.append(
            Piece(bar + metric.text, metric.meaning or ("muted" if metric.text == "N/A" else ""))
        )
    name = f"REPLAY {tile.name}" if tile.replay else tile.name
    return (
        Piece(tile.title),
        Piece(name, "muted"),
        *cells,
        Piece(use, "muted" if tile.holder in QUIET else ""),
    )


def _bar(share: float | None) -> str:
    filled = round((share or 0.0) * _BAR)
    return "█" * filled + "░" * (_BAR - filled) + " "


def _grid(shown: Sequence[Tile], width: int) -> list[Line]:
    """Many devices: several on a line, each with utilisation, memory in percent, and temperature."""
    cells = [_small(tile) for tile in shown]
    wide = max((sum(len(p.text) for p in cell) for cell in cells), default=0) + 2
    columns = max((width + 2) // wide, 1)
    heading = (Piece(f"device: utilisation, memory, temperature; {len(shown)} of them", "muted"),)
    found: list[Line] = [heading]
    for at in range(0, len(cells), columns):
        pieces: list[Piece] = []
        for cell in cells[at : at + columns]:
            pieces += [*cell, Piece(" " * (wide - sum(len(p.text) for p in cell)))]
        found.append(tuple(pieces))
    return found


def _small(tile: Tile) -> Line:
    util, memory, _, temperature, power = tile.metrics
    share = "N/A" if memory.share is None else f"{100 * memory.share:.0f}%"
    hot = temperature.meaning or ("throttled" if power.meaning == "throttled" else "")
    return (
        Piece(f"{tile.title.split()[-1]:>3}", "muted"),
        Piece(f" {_dense(util.text):>4}"),
        Piece(f" {share:>4}"),
        Piece(f" {_dense(temperature.text):>4}", hot),
    )


def _dense(text: str) -> str:
    return text.replace(" ", "")


def _jobs(snapshot: Snapshot) -> list[Line]:
    """Those that run, then those that wait."""
    labels = {tile.device: tile.title for tile in tiles(snapshot)}
    found: list[Line] = []
    active = sorted(
        (j for j in snapshot.jobs if j.active), key=lambda j: (isinstance(j.state, Queued), j.id)
    )
    for job in active:
        r = row(job, labels, snapshot.time)
        words = ", ".join(w for w in (r.state, r.device, r.doing) if w)
        found.append(
            (
                Piece(
                    f"job {job.id} · {job.spec.name}: {words}",
                    r.meaning or ("muted" if isinstance(job.state, Queued) else ""),
                ),
            )
        )
    return found


def _fit(rows: list[Line], width: int) -> list[Line]:
    """Aligned columns, without those for which there is no room."""
    kept = list(range(len(rows[0])))
    names = [p.text for p in rows[0]]
    for name in ("", *_DROPPED):
        if name in names:
            kept.remove(names.index(name))
        widths = {i: max(len(printable(r[i].text)) for r in rows) for i in kept}
        if not width or sum(widths.values()) + len(_GAP) * (len(kept) - 1) <= width:
            break
    found = []
    for r in rows:
        cells = [
            Piece(printable(r[i].text).ljust(widths[i]) + _GAP, r[i].meaning) for i in kept[:-1]
        ]
        found.append((*cells, Piece(printable(r[kept[-1]].text), r[kept[-1]].meaning)))
    return [_cut(line, width) for line in found] if width else found


def _cut(line: Line, width: int) -> Line:
    """At most `width` characters, and none that steers a terminal."""
    found, room = [], width
    for piece in line:
        text = printable(piece.text)
        if len(text) > room:
            found.append(Piece(text[: max(room - 1, 0)] + "…" if room else "", piece.meaning))
            break
        found.append(Piece(text, piece.meaning))
        room -= len(text)
    return tuple(found)
