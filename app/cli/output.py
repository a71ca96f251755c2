"""Print tables for people and JSON for programs, ask questions, and report errors."""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
import unicodedata
from argparse import Namespace
from collections.abc import Sequence
from typing import Any, NamedTuple, TextIO

import msgspec

from gpudeck.language.rendering import json_in_english
from gpudeck.language.text import Message, phrase
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.progress import printable

_MIN_CELL_COLUMNS = 20
"""A last cell narrower than this continues below its row instead of beside it."""
_COLORS = {
    "muted": "2",
    "accent": "36",
    "strong": "1",
    "warm": "33",
    "hot": "31",
    "throttled": "35",
    "failed": "1;31",
}
"""The terminal's color code of each meaning."""


class UsageError(Exception):
    """Report a command line that cannot be carried out as written; the exit status is 2."""


class StyledText(NamedTuple):
    """Hold a piece of a line whose meaning decides its color."""

    text: str
    meaning: str = ""


StyledLine = tuple[StyledText, ...]


def print_line(text: str = "") -> None:
    """Print one line on standard output, without characters that control a terminal."""
    print(printable(text), flush=True)


def print_json(value: Any) -> None:
    """Print a value as indented JSON, with characters that control a terminal escaped."""
    text = msgspec.json.format(json_in_english(msgspec.json.encode(value))).decode()
    print(text if text.isascii() else "".join(map(_in_json, text)), flush=True)


def _in_json(character: str) -> str:
    """Return a character of JSON; JSON itself escapes only those of ASCII."""
    if character.isprintable() or character == "\n":
        return character
    return json.dumps(character)[1:-1]


def print_result(args: Namespace, value: Any, *lines: str) -> None:
    """Print the value as JSON if the user passed --json, and the lines otherwise."""
    if args.json:
        print_json(value)
        return
    for line in lines:
        print_line(line)


def print_list(
    args: Namespace,
    value: Any,
    heading: Sequence[str],
    rows: Sequence[Sequence[str]],
    empty: str,
    right: Sequence[int] = (),
) -> None:
    """Print the value as JSON if the user passed --json, and the rows as a table otherwise.

    Args:
        args: The arguments of the command.
        value: What is printed as JSON.
        heading: The titles of the columns.
        rows: The cells of each row.
        empty: The line that is printed where there are no rows.
        right: The columns to align to the right.
    """
    if args.json or not rows:
        print_result(args, value, empty)
    else:
        print_table([heading, *rows], right)


def print_error(message: str) -> None:
    """Print one line on standard error."""
    print(f"gpudeck: {printable(message)}", file=sys.stderr)


def print_table(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> None:
    """Print rows in aligned columns.

    On a terminal, a last cell that is too long is wrapped.

    Args:
        rows: The cells of each row; the first row is the heading.
        right: The columns to align to the right.
    """
    clean = [[printable(cell) for cell in row] for row in rows]
    widths = [max(_columns(row[i]) for row in clean) for i in range(len(clean[0]))]
    terminal = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    for row in clean:
        gaps = [" " * (width - _columns(cell)) for cell, width in zip(row, widths, strict=True)]
        cells = [
            gap + cell if i in right else cell + gap
            for i, (cell, gap) in enumerate(zip(row, gaps, strict=True))
        ]
        for line in _wrap_row("  ".join(cells[:-1]), cells[-1], terminal):
            print(line.rstrip(), flush=True)


def _wrap_row(row: str, last: str, terminal: int) -> list[str]:
    """Return the row and its last cell as lines of `terminal` columns; 0 means no limit."""
    whole = f"{row}  {last}" if row else last
    if not terminal or _columns(whole.rstrip()) <= terminal:
        return [whole]
    beside = terminal - _columns(row) - 2 >= _MIN_CELL_COLUMNS
    indent = " " * (_columns(row) + 2 if beside else 4)
    lines = textwrap.wrap(last, terminal - len(indent)) or [""]
    if not beside:
        return [row, *(indent + line for line in lines)]
    return [f"{row}  {lines[0]}", *(indent + line for line in lines[1:])]


def _columns(text: str) -> int:
    """Return the width of a text on a terminal.

    Wide characters (Unicode's East Asian Width) take two columns, combining ones none.
    """
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def supports_color(stream: TextIO) -> bool:
    """Return True for a color terminal unless NO_COLOR is set (https://no-color.org)."""
    return (
        stream.isatty()
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM", "dumb") != "dumb"
    )


def render(line: StyledLine, color: bool) -> str:
    """Return the text of a line, with the terminal's color codes if `color` is true."""
    return "".join(
        f"\x1b[{_COLORS[p.meaning]}m{p.text}\x1b[0m" if color and p.meaning in _COLORS else p.text
        for p in line
    )


def neutralize(text: str) -> str:
    """Return a job's output with its control characters replaced, safe for a terminal."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return "\n".join(printable(line.replace("\t", "    ")) for line in text.split("\n"))


def show_progress(text: str) -> None:
    """Overwrite the current line of the terminal; do nothing if standard error is not one."""
    if sys.stderr.isatty():
        # a longer line would wrap, and could not be overwritten
        width = shutil.get_terminal_size().columns - 1
        sys.stderr.write(f"\r\x1b[K{printable(text)[:width]}")
        sys.stderr.flush()


def clear_progress() -> None:
    """Erase the line that `show_progress` wrote."""
    show_progress("")


def prompt(question: str) -> str:
    """Ask a question on standard error and return the answer, in lower case."""
    sys.stderr.write(f"{printable(question)} ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower()


def require_terminal(declined: Message) -> None:
    """Raise UserError if there is no terminal to ask on; `declined` says what was not done."""
    if not sys.stdin.isatty():
        raise UserError(
            phrase(
                "{declined} There is no terminal to ask on. If you are sure, add --yes.",
                declined=declined,
            )
        )


def confirm(question: str) -> bool:
    """Ask a question and return True if the answer is yes."""
    return prompt(f"{question} [y/N]") in ("y", "yes")
