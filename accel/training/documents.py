"""Read texts from files, and report every place that cannot be read.

A file that ends with .jsonl holds a JSON object in each line: {"text": ...}, or {"prompt": ...,
"answer": ...}, of which only the answer is learned. Any other file is one text in UTF-8. The files
of a folder are read in the order of their names; hidden files and folders are not read.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from gpudeck.accel.training.errors import Refused
from gpudeck.language.text import Text, phrase

MOST_LINE = 64 * 2**20
"""The most bytes of a line of JSON."""
_PIECE = 2**20
"""The bytes of a text that are read at a time."""
_JSON = (".jsonl", ".ndjson")
_FOREIGN = {
    ".parquet": phrase("Parquet is not read yet. Convert it to JSONL"),
    ".json": phrase("JSON is read line by line. Convert it to .jsonl with an object in each line"),
    ".gz": phrase("it is compressed. Unpack it"),
    ".zst": phrase("it is compressed. Unpack it"),
    ".zip": phrase("it is compressed. Unpack it"),
}
_PREFERENCES = {"chosen", "rejected"}


@dataclass(frozen=True)
class Piece:
    """A part of a document: the next piece continues it unless this one ends it."""

    text: str
    learned: bool
    """False for a prompt, which is read and not predicted."""
    ends: bool


@dataclass(frozen=True)
class Broken:
    """Say where data cannot be used, and why."""

    file: Path
    line: int
    """Counted from 1; 0: the whole file."""
    why: Text

    @property
    def text(self) -> Text:
        """Return the place with the reason."""
        if not self.line:
            return phrase("{file}: {why}", file=str(self.file), why=self.why)
        return phrase(
            "{file}, line {line}: {why}", file=str(self.file), line=self.line, why=self.why
        )


def files_of(path: Path) -> list[Path]:
    """Return the files of a folder, or the file itself, in the order of their names.

    Raises:
        Refused: there are none.
    """
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise Refused(phrase("there is no file or folder {path}", path=str(path)))
    found = [
        file
        for file in sorted(path.rglob("*"))
        if file.is_file() and not any(p.startswith(".") for p in file.relative_to(path).parts)
    ]
    if not found:
        raise Refused(phrase("the folder {path} has no files", path=str(path)))
    return found


def read_file(file: Path) -> Iterator[Piece | Broken]:
    """Yield the documents of a file in pieces, and what of it cannot be used."""
    if (why := _FOREIGN.get(file.suffix.lower())) is not None:
        yield Broken(file, 0, why)
        return
    try:
        with file.open("rb") as opened:
            if not opened.peek(1):
                yield Broken(file, 0, phrase("it is empty"))
            elif opened.peek(2)[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
                yield Broken(file, 0, phrase("it is in UTF-16. Convert it to UTF-8"))
            elif file.suffix.lower() in _JSON:
                yield from _read_lines(file, opened)
            else:
                yield from _read_text(file, opened)
    except OSError as e:
        yield Broken(file, 0, phrase("it cannot be read: {why}", why=e.strerror or str(e)))


def _read_text(file: Path, opened: BinaryIO) -> Iterator[Piece | Broken]:
    """Yield a text in pieces, which end with a line where one ends within the piece."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    rest, line, data = "", 1, opened.read(_PIECE)
    while data:
        following = opened.read(_PIECE)
        try:
            text = rest + decoder.decode(data, final=not following)
        except UnicodeDecodeError as e:
            at = line + e.object[: e.start].count(b"\n")
            yield Broken(file, at, phrase("it is not UTF-8; the file is not used from here on"))
            yield Piece(rest, learned=True, ends=True)
            return
        cut = text.rfind("\n") + 1 or len(text)
        now, rest = (text[:cut], text[cut:]) if following else (text, "")
        line += now.count("\n")
        yield Piece(now, learned=True, ends=not following)
        data = following


def _read_lines(file: Path, opened: BinaryIO) -> Iterator[Piece | Broken]:
    number, found = 0, False
    while raw := opened.readline(MOST_LINE + 1):
        number += 1
        if len(raw) > MOST_LINE:
            limit = MOST_LINE // 2**20
            yield Broken(file, number, phrase("the line has over {limit} MiB", limit=limit))
            while raw and not raw.endswith(b"\n"):
                raw = opened.readline(MOST_LINE)
            continue
        line = raw.removeprefix(codecs.BOM_UTF8) if number == 1 else raw
        if not line.strip():
            continue
        found = True
        pieces = _parse(line)
        if isinstance(pieces, Text):
            yield Broken(file, number, pieces)
        else:
            yield from pieces
    if not found:
        yield Broken(file, 0, phrase("it has no lines with JSON"))


def _parse(line: bytes) -> tuple[Piece, ...] | Text:
    """Return the pieces of a document, or why the line is none."""
    try:
        row: Any = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
        return phrase("it is not valid JSON: {why}", why=str(e))
    if not isinstance(row, dict):
        return phrase("it is not a JSON object")
    if row.keys() & _PREFERENCES:
        return phrase("it is a pair of preferences, which this training cannot use")
    if "messages" in row:
        return phrase("it is a chat. Convert it to lines with prompt and answer")
    if "text" in row:
        return _pieces(row, "text")
    if "prompt" in row:
        return _pieces(row, "prompt", "answer" if "answer" in row else "completion")
    return phrase('it has no "text", and no "prompt" with "answer"')


def _pieces(row: dict[str, Any], *names: str) -> tuple[Piece, ...] | Text:
    for name in names:
        value = row.get(name)
        if not isinstance(value, str):
            return phrase("{name} is not a text", name=name)
        if name != "prompt" and not value:
            return phrase("{name} is empty", name=name)
    return tuple(Piece(row[n], learned=n != "prompt", ends=n == names[-1]) for n in names)
