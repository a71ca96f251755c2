"""Lay out `gpudeck watch` for a terminal with room: bars of each device, and its processes."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gpudeck.app.cli.output import StyledLine, StyledText
from gpudeck.app.format.values import NOT_AVAILABLE
from gpudeck.app.processes import process_rows as rows
from gpudeck.app.processes.process_rows import ProcessRow, process_rows
from gpudeck.app.strip.tile_model import COMPUTE_RATE, MEMORY, POWER, TEMPERATURE, UTILISATION, Tile
from gpudeck.scheduler.protocol.devices import Detail
from gpudeck.scheduler.protocol.progress import printable
from gpudeck.scheduler.protocol.snapshot import Snapshot

LINES = 2
"""The lines of each device."""
LEAST_WIDTH = 72
"""Columns below which devices get a line each, without bars."""
_EIGHTHS = " ▏▎▍▌▋▊▉"
_FULL, _EMPTY = "█", "░"
_WARM_SHARE, _HOT_SHARE = 0.85, 0.96
"""Shares of the memory from which its bar has the colour of a warning."""
_CELLS = (
    (rows.DEVICE, 6, False),
    (rows.PID, 8, True),
    (rows.USER, 10, False),
    (rows.MEMORY, 10, True),
    (rows.SM_SHARE, 6, True),
    (rows.JOB, 6, True),
)
"""The cells of a process that are shown: place, width, and whether it is aligned on the right."""
_HEADINGS = ("DEVICE", "PID", "USER", "MEMORY", "SM", "JOB")


def bar(share: float | None, width: int) -> str:
    """Return a bar of `width` characters, filled to a share, by eighths of a character."""
    if share is None:
        return _EMPTY * width
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    whole, rest = divmod(eighths, 8)
    part = _EIGHTHS[rest] if rest else ""
    return (_FULL * whole + part).ljust(width, _EMPTY)[:width]


def device_panels(shown: Sequence[Tile], width: int) -> list[StyledLine]:
    """Return LINES lines for each device: what it is and who has it, then its bars."""
    return [line for tile in shown for line in _panel(tile, width)]


def _panel(tile: Tile, width: int) -> list[StyledLine]:
    rate, temperature, power = (tile.metrics[i] for i in (COMPUTE_RATE, TEMPERATURE, POWER))
    use = tile.holder_tooltip if tile.usage == "in use" else tile.holder
    name = f"REPLAY {tile.name}" if tile.replay else tile.name
    left = [StyledText(tile.title, "strong"), StyledText(f"  {name}", "muted")]
    right = [
        StyledText(text, metric.meaning or ("muted" if text == NOT_AVAILABLE else ""))
        for metric in (temperature, power, rate)
        if (text := metric.text)
    ]
    right = [piece for text in right for piece in (StyledText("  "), text)]
    right += [StyledText(f"  {use}", "muted" if tile.quiet else "accent")]
    taken = sum(len(piece.text) for piece in (*left, *right))
    head = (*left, StyledText(" " * max(width - taken, 0)), *right)
    util, memory = tile.metrics[UTILISATION], tile.metrics[MEMORY]
    texts = f" {util.text:>6}", f" {memory.text}"
    room = max(width - len("UTIL   MEM ") - sum(map(len, texts)) - 2, 8)
    first, second = room // 2, room - room // 2
    full = memory.share or 0.0
    meaning = "hot" if full >= _HOT_SHARE else "warm" if full >= _WARM_SHARE else "accent"
    bars = (
        StyledText("UTIL ", "muted"),
        StyledText(bar(util.share, first), "accent"),
        StyledText(texts[0]),
        StyledText("  MEM ", "muted"),
        StyledText(bar(memory.share, second), meaning),
        StyledText(texts[1]),
    )
    return [head, bars]


def process_lines(snapshot: Snapshot, details: Sequence[Detail], most: int) -> list[StyledLine]:
    """Return a heading and the processes that use most memory; nothing where there are none."""
    gpu_only = [msgspec.structs.replace(detail, cpu_processes=()) for detail in details]
    found = process_rows(gpu_only, [s.device for s in snapshot.devices], snapshot.time)
    if not found or most < 2:
        return []
    head = "  ".join(
        title.rjust(width) if right else title.ljust(width)
        for title, (_, width, right) in zip(_HEADINGS, _CELLS, strict=True)
    )
    lines: list[StyledLine] = [(StyledText(f"{head}  COMMAND", "muted"),)]
    shown = found if len(found) < most else found[: most - 2]
    lines += [_process_line(row) for row in shown]
    if len(shown) < len(found):
        lines.append((StyledText(f"and {len(found) - len(shown)} more processes", "muted"),))
    return lines


def _process_line(row: ProcessRow) -> StyledLine:
    cells = []
    for place, width, right in _CELLS:
        text = printable(row.cells[place])
        text = text if len(text) <= width else f"{text[: width - 1]}…"
        cells.append(text.rjust(width) if right else text.ljust(width))
    mine = "" if row.process.job is not None or row.process.assistant else "muted"
    return (
        StyledText("  ".join(cells)),
        StyledText(f"  {printable(row.cells[rows.COMMAND])}", mine),
    )
