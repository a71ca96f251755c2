"""What commands print: aligned tables for people, JSON for programs, nothing that steers a terminal."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TextIO

import msgspec

from scheduler.protocol.progress import printable

if TYPE_CHECKING:
    from app.cli.terminal import Line

_NARROWEST = 20
"""Columns of a terminal that a cell needs to be read in."""
_COLORS = {"muted": "2", "warm": "33", "hot": "31", "throttled": "35", "failed": "1;31"}
"""Codes of the terminal for what colour stands for."""


def say(text: str = "") -> None:
    """One line on standard output."""
    print(printable(text), flush=True)


def say_json(value: Any) -> None:
    """A value of ours as indented JSON."""
    print(msgspec.json.format(msgspec.json.encode(value)).decode(), flush=True)


def table(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> None:
    """Print rows in aligned columns; the first is the heading. `right`: columns aligned to the right.

    On a terminal, a last column that is too long goes on below itself, or where there is no room either, below the row.
    """
    clean = [[printable(cell) for cell in row] for row in rows]
    widths = [max(_columns(row[i]) for row in clean) for i in range(len(clean[0]))]
    terminal = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    for row in clean:
        gaps = [" " * (w - _columns(c)) for c, w in zip(row, widths, strict=True)]
        cells = [
            gap + c if i in right else c + gap
            for i, (c, gap) in enumerate(zip(row, gaps, strict=True))
        ]
        for line in _fitted("  ".join(cells[:-1]), cells[-1], terminal):
            print(line.rstrip(), flush=True)


def _fitted(row: str, last: str, terminal: int) -> list[str]:
    """The row with its last cell, as lines of a terminal that is so wide; 0: one line."""
    whole = f"{row}  {last}" if row else last
    if not terminal or _columns(whole.rstrip()) <= terminal:
        return [whole]
    room = terminal - _columns(row) - 2
    indent = " " * (_columns(row) + 2 if room >= _NARROWEST else 4)
    lines = textwrap.wrap(last, terminal - len(indent)) or [""]
    return (
        [f"{row}  {lines[0]}", *(indent + line for line in lines[1:])]
        if room >= _NARROWEST
        else [row, *(indent + line for line in lines)]
    )


def _columns(text: str) -> int:
    """How many columns of a terminal it takes: wide characters (Unicode's East Asian Width) two, combining ones none."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def colored(stream: TextIO) -> bool:
    """Whether colours are welcome there: on a terminal, where NO_COLOR is not set (https://no-color.org)."""
    return (
        stream.isatty()
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM", "dumb") != "dumb"
    )


def paint(line: Line, color: bool) -> str:
    """A line of pieces, in the colours of what they mean."""
    return "".join(
        f"\x1b[{_COLORS[p.meaning]}m{p.text}\x1b[0m" if color and p.meaning in _COLORS else p.text
        for p in line
    )


def harmless(text: str) -> str:
    """Output of a job, safe for a terminal: its escapes and other control characters become spaces."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return "\n".join(printable(line.replace("\t", "    ")) for line in text.split("\n"))


def status_line(text: str) -> None:
    """Overwrite the current line of a terminal with `text`; does nothing where standard error is no terminal."""
    if sys.stderr.isatty():
        width = (
            shutil.get_terminal_size().columns - 1
        )  # a longer line would wrap, and could not be overwritten
        sys.stderr.write(f"\r\x1b[K{printable(text)[:width]}")
        sys.stderr.flush()
