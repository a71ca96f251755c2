"""Read Python files and notebooks as text, with all that is needed to write them back unchanged."""

from __future__ import annotations

import io
import json
import re
import tokenize
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LARGEST = 16 * 2**20
"""Bytes above which a file is not read."""
_GENERATED = re.compile(r"@generated|do not edit|automatically generated|auto-?generated", re.I)
_HEAD = 4096
"""Characters in which the first lines are."""
_MAGIC = re.compile(r"^(\s*)([%!?].*)$", re.M)


class Unreadable(Exception):
    """Says in one line why a file cannot be used."""

    def __init__(self, why: str, line: int = 1) -> None:
        super().__init__(why)
        self.line = line


@dataclass(frozen=True)
class Source:
    """Hold the text of a file, with `\\n` at the ends of lines."""

    path: Path
    text: str
    """The program; the code cells of a notebook, one after another."""
    encoding: str = "utf-8"
    newline: str = "\n"
    cells: tuple[tuple[int, int, int], ...] = ()
    """For a notebook: where each code cell is in the text, and its number in the file."""
    raw: bytes = b""

    @property
    def generated(self) -> bool:
        """Return True if the first lines say that a program wrote the file."""
        return _GENERATED.search("\n".join(self.text[:_HEAD].splitlines()[:8])) is not None

    def encode(self, text: str) -> bytes:
        """Return the bytes of the file with another text."""
        return text.replace("\n", self.newline).encode(self.encoding)


def read(path: Path) -> Source:
    """Read a file.

    Raises:
        Unreadable: says in one line what is wrong.
    """
    try:
        if path.stat().st_size > LARGEST:
            raise Unreadable(f"the file has over {LARGEST >> 20} MiB")
        raw = path.read_bytes()
    except OSError as e:
        raise Unreadable(f"the file cannot be read: {e.strerror}") from e
    if b"\0" in raw:
        raise Unreadable("the file is not text")
    if path.suffix == ".ipynb":
        return _notebook(path, raw)
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(raw).readline)
        text = raw.decode(encoding)
    except (SyntaxError, UnicodeDecodeError, LookupError) as e:
        raise Unreadable(f"the encoding cannot be read: {_one_line(e)}") from e
    if encoding == "utf-8-sig" and not raw.startswith(b"\xef\xbb\xbf"):
        encoding = "utf-8"
    ends = {end for end in ("\r\n", "\n", "\r") if end in _alone(text, end)}
    if len(ends) > 1:
        raise Unreadable("the file mixes different line ends")
    newline = ends.pop() if ends else "\n"
    return Source(path, text.replace(newline, "\n"), encoding, newline, raw=raw)


def _alone(text: str, end: str) -> str:
    """Return the text without line ends of which `end` is only a part."""
    return text if end == "\r\n" else text.replace("\r\n", "")


def _notebook(path: Path, raw: bytes) -> Source:
    text, cells, at = "", [], 0
    try:
        for number, cell in enumerate(json.loads(raw)["cells"]):
            if cell["cell_type"] == "code":
                code = hide_magic(_joined(cell["source"]))
                text += code + "\n"
                cells.append((at, at + len(code), number))
                at = len(text)
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise Unreadable(f"the notebook cannot be read: {_one_line(e)}") from e
    return Source(path, text, cells=tuple(cells), raw=raw)


def cell_codes(raw: bytes) -> dict[int, str]:
    """Return the code of a notebook's code cells by their numbers."""
    cells = enumerate(json.loads(raw)["cells"])
    return {n: _joined(cell["source"]) for n, cell in cells if cell["cell_type"] == "code"}


def _joined(source: Any) -> str:
    return source if isinstance(source, str) else "".join(source)


def hide_magic(code: str) -> str:
    """Return a cell's code with lines such as `%matplotlib` and `!pip` as comments of one length.

    A cell that starts with `%%` is in another language and becomes comments throughout.
    """
    if code.lstrip().startswith("%%"):
        return re.sub(r"[^\n]", "#", code)
    return _MAGIC.sub(lambda m: m[1] + "#" * len(m[2]), code)


def write_notebook(raw: bytes, changed: dict[int, str]) -> bytes:
    """Return the notebook with other code in some cells, in the layout that Jupyter writes."""
    book = json.loads(raw)
    for number, code in changed.items():
        cell = book["cells"][number]
        as_list = isinstance(cell["source"], list)
        cell["source"] = code.splitlines(keepends=True) if as_list else code
    indent = re.match(rb"\{\s*?\n( +)", raw)
    text = json.dumps(book, indent=len(indent[1]) if indent else None, ensure_ascii=False)
    return text.encode() + (b"\n" if raw.endswith(b"\n") else b"")


def _one_line(e: BaseException) -> str:
    return " ".join(str(e).split()) or type(e).__name__
