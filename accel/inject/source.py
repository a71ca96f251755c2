"""Read Python files and notebooks as text, with all that is needed to write them back unchanged."""

from __future__ import annotations

import io
import os
import re
import stat
import tokenize
from dataclasses import dataclass
from pathlib import Path

from gpudeck.accel.inject.notebook import code_cells, encoding_of, hide_magic
from gpudeck.language.text import Bytes, Text, phrase

LARGEST = 16 * 2**20
"""Bytes above which a file is not read."""
_GENERATED = re.compile(r"@generated|do not edit|automatically generated|auto-?generated", re.I)
_HEAD = 4096
"""Characters in which the first lines are."""


class Unreadable(Exception):
    """Says in one line why a file cannot be used."""

    def __init__(self, why: Text, line: int = 1) -> None:
        super().__init__(why)
        self.why, self.line = why, line


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
    if shown(path) != str(path):
        raise Unreadable(phrase("its name is not UTF-8; rename it"))
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise Unreadable(phrase("it is no regular file"))
        if found.st_size > LARGEST:
            raise Unreadable(phrase("the file has over {size}", size=Bytes(LARGEST)))
        raw = path.read_bytes()
    except OSError as e:
        raise Unreadable(phrase("the file cannot be read: {why}", why=str(e.strerror))) from e
    if b"\0" in raw:
        raise Unreadable(phrase("the file is not text"))
    if path.suffix == ".ipynb":
        return _notebook(path, raw)
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(raw).readline)
        text = raw.decode(encoding)
    except (SyntaxError, UnicodeDecodeError, LookupError) as e:
        raise Unreadable(phrase("the encoding cannot be read: {why}", why=_one_line(e))) from e
    if text.encode(encoding) != raw:
        raise Unreadable(
            phrase("its encoding {encoding} cannot be written back unchanged", encoding=encoding)
        )
    if encoding == "utf-8-sig" and not raw.startswith(b"\xef\xbb\xbf"):
        encoding = "utf-8"
    ends = {end for end in ("\r\n", "\n", "\r") if end in _alone(text, end)}
    if len(ends) > 1:
        raise Unreadable(phrase("the file mixes different line ends"))
    newline = ends.pop() if ends else "\n"
    return Source(path, text.replace(newline, "\n"), encoding, newline, raw=raw)


def shown(path: Path) -> str:
    """Return the name of a file as text; bytes that are not UTF-8 are written as in Python."""
    return os.fsencode(path).decode(errors="backslashreplace")


def _alone(text: str, end: str) -> str:
    """Return the text without line ends of which `end` is only a part."""
    return text if end == "\r\n" else text.replace("\r\n", "")


def _notebook(path: Path, raw: bytes) -> Source:
    text, cells, at = "", [], 0
    try:
        for cell in code_cells(raw):
            code = hide_magic(cell.code)
            text += code + "\n"
            cells.append((at, at + len(code), cell.number))
            at = len(text)
    except ValueError as e:
        raise Unreadable(phrase("the notebook cannot be read: {why}", why=_one_line(e))) from e
    except RecursionError as e:
        raise Unreadable(phrase("the notebook is too deeply nested to be read")) from e
    if "\r" in text.replace("\r\n", ""):
        raise Unreadable(phrase("the notebook has cells with different line ends"))
    return Source(path, text, encoding_of(raw), cells=tuple(cells), raw=raw)


def _one_line(e: BaseException) -> str:
    return " ".join(str(e).split()) or type(e).__name__
