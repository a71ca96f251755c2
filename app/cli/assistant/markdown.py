"""Print the assistant's Markdown for a terminal: aligned tables, and no marks or backslashes."""

from __future__ import annotations

import re
from itertools import groupby

from gpudeck.app.cli.output import print_line, print_table

_ESCAPED = re.compile(r"\\([\\`*\[\]<>|~&!$_:.@])")
_BOLD = re.compile(r"\*\*([^*\n]+)\*\*")
_CELL = re.compile(r"(?<!\\)\|")
_RULE = re.compile(r"\|(?: *:?-{3,}:? *\|)+")
"""The line below the heads of a table's columns."""


def print_markdown(text: str) -> None:
    """Print a text line by line; what a fence encloses is printed as it is."""
    fence = ""
    for is_table, lines in groupby(text.splitlines(), lambda line: line.startswith("|")):
        if is_table and not fence:
            print_table([_cells(line) for line in lines if not _RULE.fullmatch(line)])
            continue
        for line in lines:
            mark = line[: len(line) - len(line.lstrip("`"))]
            if len(mark) >= 3 and (not fence or line == fence):
                fence = "" if fence else mark
            else:
                print_line(f"  {line}" if fence else plain(line))


def plain(line: str) -> str:
    """Return a line of Markdown without marks and backslashes."""
    return _ESCAPED.sub(r"\1", _BOLD.sub(r"\1", line.removeprefix("### ")))


def _cells(line: str) -> list[str]:
    return [plain(cell.strip()) for cell in _CELL.split(line.strip())[1:-1]]
