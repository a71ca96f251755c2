"""Lay out devices, alerts and jobs as lines of text that fit a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from gpudeck.app.cli.devices.panels import LEAST_WIDTH, LINES, bar, device_panels, process_lines
from gpudeck.app.cli.output import StyledLine, StyledText
from gpudeck.app.format.job_rows import job_row
from gpudeck.app.format.values import NOT_AVAILABLE, clock, plural, shortest_label
from gpudeck.app.strip.tile_model import Tile, tiles
from gpudeck.scheduler.protocol.devices import Detail
from gpudeck.scheduler.protocol.jobs import Job, Queued
from gpudeck.scheduler.protocol.progress import printable
from gpudeck.scheduler.protocol.snapshot import Snapshot

HEADINGS = ("DEVICE", "NAME", "UTILISATION", "MEMORY", "TFLOP/S", "TEMPERATURE", "POWER", "USE")
_SHORT_HEADINGS = ("DEVICE", "NAME", "UTIL", "MEMORY", "TFLOP/S", "TEMP", "POWER", "USE")
_DROPPED = ("NAME", "USE", "TFLOP/S", "POWER")
"""Columns that a narrow terminal leaves out, in this order."""
_GAP = "  "
_BAR_CELLS = 10
_MIN_BAR_WIDTH = 110
"""Narrower terminals show no bars."""
_MAX_RESERVED = 4
"""Lines that alerts, and jobs, can claim from the devices."""


def status_lines(snapshot: Snapshot, width: int) -> list[StyledLine]:
    """Return a heading and a line for each device.

    Args:
        snapshot: The state to show.
        width: The columns of the terminal; 0 means no limit.
    """
    rows = [_heading(HEADINGS), *(_device_row(tile) for tile in tiles(snapshot))]
    return _align(rows, width)


def watch_lines(
    snapshot: Snapshot, width: int, height: int, details: Sequence[Detail] = ()
) -> list[StyledLine]:
    """Return devices, alerts, jobs and processes in exactly `height` lines.

    Args:
        details: The processes of the devices.
    """
    shown = tiles(snapshot)
    alerts = [
        *((StyledText(str(alert.text), "hot"),) for alert in snapshot.alerts),
        *((StyledText(str(notice), "warm"),) for notice in snapshot.notices),
    ]
    jobs = _job_lines(snapshot)
    reserved = min(len(alerts), _MAX_RESERVED) + min(len(jobs), _MAX_RESERVED)
    if width >= LEAST_WIDTH and LINES * len(shown) + reserved <= height - 6:
        devices = device_panels(shown, width)
    elif len(shown) + 1 + reserved <= height - 2:
        bars = width >= _MIN_BAR_WIDTH
        rows = [_heading(_SHORT_HEADINGS), *(_device_row(tile, bars) for tile in shown)]
        devices = _align(rows, width)
    else:
        devices = _grid(shown, width)
    title = (plural(len(snapshot.devices), "device"), str(snapshot.source), clock(snapshot.time))
    lines = [(StyledText(_GAP.join(title), "muted"),), *devices, *alerts]
    room = height - 1
    if len(lines) > room:
        more = plural(len(lines) - room + 1, "more line")
        text = f"{more} hidden: make the terminal larger"
        lines = [*lines[: room - 1], (StyledText(text, "muted"),)]
    lines += jobs[: room - len(lines)]
    if processes := process_lines(snapshot, details, room - len(lines) - 1):
        lines += [(), *processes]
    lines += [()] * (room - len(lines))
    lines.append((StyledText("q or Ctrl+C to quit", "muted"),))
    return [_cut(line, width) for line in lines]


def _heading(titles: Sequence[str]) -> StyledLine:
    return tuple(StyledText(title, "muted") for title in titles)


def _device_row(tile: Tile, bars: bool = False) -> StyledLine:
    cells = []
    for metric in tile.metrics:
        bar = _bar(metric.share) if bars and metric.bar else ""
        meaning = metric.meaning or ("muted" if metric.text == NOT_AVAILABLE else "")
        cells.append(StyledText(bar + metric.text, meaning))
    use = tile.holder_tooltip if tile.usage in ("in use", "reserved") else tile.holder
    return (
        StyledText(tile.title),
        StyledText(f"REPLAY {tile.name}" if tile.replay else tile.name, "muted"),
        *cells,
        StyledText(use, "muted" if tile.quiet else ""),
    )


def _bar(share: float | None) -> str:
    filled = round((share or 0.0) * _BAR_CELLS)
    return "█" * filled + "░" * (_BAR_CELLS - filled) + " "


def _grid(shown: Sequence[Tile], width: int) -> list[StyledLine]:
    """Return several devices a line, for more devices than there are lines."""
    cells = [_grid_cell(tile) for tile in shown]
    lengths = [sum(len(piece.text) for piece in cell) for cell in cells]
    pitch = max(lengths, default=0) + len(_GAP)
    columns = max((width + len(_GAP)) // pitch, 1)
    heading = f"device: utilisation, memory, temperature of {plural(len(shown), 'device')}"
    lines: list[StyledLine] = [(StyledText(heading, "muted"),)]
    for start in range(0, len(cells), columns):
        pieces: list[StyledText] = []
        for i in range(start, min(start + columns, len(cells))):
            pieces += [*cells[i], StyledText(" " * (pitch - lengths[i]))]
        lines.append(tuple(pieces))
    return lines


def _grid_cell(tile: Tile) -> StyledLine:
    utilisation, memory, _, temperature, power = tile.metrics
    share = NOT_AVAILABLE if memory.share is None else f"{100 * memory.share:.0f}%"
    throttled = "throttled" if power.meaning == "throttled" else ""
    return (
        StyledText(f"{shortest_label(tile.title):>3}", "muted"),
        StyledText(f" {utilisation.text.replace(' ', ''):>4}"),
        StyledText(f" {share:>4}"),
        StyledText(f" {temperature.text.replace(' ', ''):>4}", temperature.meaning or throttled),
    )


def _job_lines(snapshot: Snapshot) -> list[StyledLine]:
    """Return a line for each active job, running jobs first."""
    labels = {tile.device: tile.title for tile in tiles(snapshot)}

    def render(job: Job) -> StyledLine:
        shown = job_row(job, labels, snapshot.time)
        doing = shown.doing if shown.share is None else f"{bar(shown.share, 10)} {shown.doing}"
        named = "" if isinstance(job.state, Queued) else shown.state
        doing = "" if doing.casefold() == named else doing
        state = ", ".join(filter(None, (named, shown.device, doing)))
        waiting = "muted" if isinstance(job.state, Queued) else ""
        text = f"job {job.id} · {job.spec.name}: {state}"
        return (StyledText(text, shown.meaning or waiting),)

    active = (job for job in snapshot.jobs if job.active)
    ordered = sorted(active, key=lambda job: (isinstance(job.state, Queued), job.id))
    return [render(job) for job in ordered]


def _align(rows: list[StyledLine], width: int) -> list[StyledLine]:
    """Return rows in aligned columns, without the columns that do not fit into `width`."""
    rows = [tuple(StyledText(printable(p.text), p.meaning) for p in line) for line in rows]
    titles = [piece.text for piece in rows[0]]
    kept = list(range(len(titles)))
    widths = [max(len(line[i].text) for line in rows) for i in kept]
    for title in _DROPPED:
        if not width or sum(widths[i] for i in kept) + len(_GAP) * (len(kept) - 1) <= width:
            break
        if title in titles:
            kept.remove(titles.index(title))
    *first, last = kept
    lines = [
        (*(StyledText(r[i].text.ljust(widths[i]) + _GAP, r[i].meaning) for i in first), r[last])
        for r in rows
    ]
    return [_cut(line, width) for line in lines] if width else lines


def _cut(line: StyledLine, width: int) -> StyledLine:
    """Return a line of at most `width` characters, none of which controls a terminal."""
    cut, room = [], width
    for piece in line:
        text = printable(piece.text)
        if len(text) > room:
            cut.append(StyledText(text[: max(room - 1, 0)] + "…" if room else "", piece.meaning))
            break
        cut.append(StyledText(text, piece.meaning))
        room -= len(text)
    return tuple(cut)
