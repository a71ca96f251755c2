"""Read the code cells of a notebook, and change code in them without touching any other byte."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from gpudeck.accel.inject.finding import Edit

_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\r\n]*")
_CHARACTER = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.|[^\\]",
    re.DOTALL,
)
"""What one character is in a string of JSON."""
_MAGIC = re.compile(r"^(\s*)([%!?].*)$", re.MULTILINE)


@dataclass(frozen=True)
class Cell:
    """Hold the code of one cell, and where it is in the notebook."""

    number: int
    code: str
    strings: tuple[tuple[int, int], ...]
    """Where its strings of JSON start and end; together they are the code."""
    listed: bool
    """True if they are in a list, as Jupyter writes them, one for each line."""


def encoding_of(raw: bytes) -> str:
    """Return the encoding of a notebook, with its byte order mark if it has one."""
    return "utf-8-sig" if raw.startswith(b"\xef\xbb\xbf") else "utf-8"


def code_cells(raw: bytes) -> list[Cell]:
    """Return the code cells of a notebook.

    Raises ValueError or RecursionError if it cannot be read.
    """
    text = raw.decode(encoding_of(raw))
    json.loads(text)  # so that what follows reads text that is known to be JSON
    places = _members(text, _space(text, 0))
    if "cells" not in places:
        raise ValueError("it has no cells")
    found = (
        _cell(text, number, start)
        for number, (start, _) in enumerate(_items(text, places["cells"]))
    )
    return [cell for cell in found if cell is not None]


def _cell(text: str, number: int, start: int) -> Cell | None:
    places = _members(text, start)
    if "cell_type" not in places or _value(text, places["cell_type"]) != "code":
        return None
    if "source" not in places:
        raise ValueError(f"cell {number + 1} has no source")
    at = places["source"]
    listed = text[at] == "["
    strings = tuple(_items(text, at)) if listed else ((at, _DECODER.raw_decode(text, at)[1]),)
    values = [_value(text, start) for start, _ in strings]
    lines = [value for value in values if isinstance(value, str)]
    if len(lines) < len(values):
        raise ValueError(f"the source of cell {number + 1} is no text")
    return Cell(number, "".join(lines), strings, listed)


def _members(text: str, at: int) -> dict[str, int]:
    """Return where the values of an object start, by their names."""
    if text[at] != "{":
        raise ValueError("it is no notebook")
    found = {}
    at = _space(text, at + 1)
    while text[at] != "}":
        name, at = _DECODER.raw_decode(text, at)
        found[name] = start = _space(text, _space(text, at) + 1)
        at = _next(text, _DECODER.raw_decode(text, start)[1])
    return found


def _items(text: str, at: int) -> Iterator[tuple[int, int]]:
    """Yield where the values of a list start and end."""
    if text[at] != "[":
        raise ValueError("its cells are no list")
    at = _space(text, at + 1)
    while text[at] != "]":
        _, end = _DECODER.raw_decode(text, at)
        yield at, end
        at = _next(text, end)


def _next(text: str, end: int) -> int:
    """Return where the next member or item starts, or the bracket is that closes."""
    at = _space(text, end)
    return _space(text, at + 1) if text[at] == "," else at


def _space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None
    return found.end()


def _value(text: str, at: int) -> object:
    value: object = _DECODER.raw_decode(text, at)[0]
    return value


def hide_magic(code: str) -> str:
    """Return a cell's code with lines such as `%matplotlib` and `!pip` as comments of one length.

    A cell that starts with `%%` is in another language and becomes comments throughout.
    """
    if code.lstrip().startswith("%%"):
        return re.sub(r"[^\n]", "#", code)
    return _MAGIC.sub(lambda m: m[1] + "#" * len(m[2]), code)


def placed(raw: bytes, cell: Cell, edits: Sequence[Edit], first_line: str = "") -> Iterator[Edit]:
    """Yield the edits of a cell's code as edits of the notebook's text.

    Args:
        first_line: code that is put before the cell's.
    """
    text = raw.decode(encoding_of(raw))
    characters = [
        (m.start(), m.end()) for start, end in cell.strings
        for m in _CHARACTER.finditer(text, start + 1, end - 1)
    ]  # fmt: skip
    if first_line and cell.listed:
        (start, end), *others = cell.strings
        gap = text[end : others[0][0]] if others else ", "
        yield Edit(start, start, json.dumps(first_line) + gap)
    first = [Edit(0, 0, first_line)] if first_line and not cell.listed else []
    for edit in chain(first, edits):
        if edit.start < edit.end:
            start, end = characters[edit.start][0], characters[edit.end - 1][1]
        else:
            after = edit.start == len(characters)
            start = end = characters[-1][1] if after else characters[edit.start][0]
        yield Edit(start, end, json.dumps(edit.text)[1:-1])
