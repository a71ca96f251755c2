"""Read texts from files, and report every place that cannot be read.

A file that ends with .jsonl holds a JSON object in each line: {"text": ...}; {"prompt": ...,
"answer": ...}, of which only the answer is learned; or {"messages": [...]}, a chat of which only
the assistant's messages are learned. The rows of a .parquet file are read likewise. Any other file
is one text in UTF-8. The files of a folder are read in the order of their names; hidden files and
folders are not read.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from gpudeck.accel.serving.errors import RequestRefused
from gpudeck.accel.training.errors import Refused
from gpudeck.language.text import Text, phrase

if TYPE_CHECKING:
    from gpudeck.accel.serving.template import Template

FindTemplate = Callable[[], "Template | None"]
"""Returns the model's chat template."""
MOST_LINE = 64 * 2**20
"""The most bytes of a line of JSON."""
_PIECE = 2**20
"""The bytes of a text that are read at a time."""
_ROWS = 64
"""The rows of a table that are read at a time."""
_MOST_WHY = 200
"""Characters of what another package says of data."""
_JSON = (".jsonl", ".ndjson")
_FOREIGN = {
    ".json": phrase("JSON is read line by line. Convert it to .jsonl with an object in each line"),
    ".gz": phrase("it is compressed. Unpack it"),
    ".zst": phrase("it is compressed. Unpack it"),
    ".zip": phrase("it is compressed. Unpack it"),
}
_PREFERENCES = {"chosen", "rejected"}
_NAMES = {"text", "prompt", "answer", "completion", "messages", *_PREFERENCES}
_UNNAMED = phrase('it has no "text", no "prompt" with "answer", and no "messages"')


@dataclass(frozen=True)
class Piece:
    """A part of a document: the next piece continues it unless this one ends it."""

    text: str
    learned: bool
    """False for a prompt, which is read and not predicted."""
    ends: bool
    bare: bool = False
    """True for a chat, whose template writes its first and last tokens itself."""


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


def read_file(file: Path, find_template: FindTemplate = lambda: None) -> Iterator[Piece | Broken]:
    """Yield the documents of a file in pieces, and what of it cannot be used.

    Raises:
        ModelRefused: if the data has chats, and the model's chat template cannot be used.
        ModuleNotFoundError: if the package pyarrow is needed and not installed.
    """
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
                yield from _read_lines(file, opened, find_template)
            elif file.suffix.lower() == ".parquet":
                yield from _read_rows(file, opened, find_template)
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


def _read_rows(
    file: Path, opened: BinaryIO, find_template: FindTemplate
) -> Iterator[Piece | Broken]:
    from pyarrow import ArrowException, large_string, parquet, string

    number = 0
    try:
        fields = [field for field in parquet.read_schema(opened) if field.name in _NAMES]
        names = [field.name for field in fields]
        if not names:
            yield Broken(file, 0, _UNNAMED)
            return
        # a text that is stored once for many rows is held once, too
        texts = [field.name for field in fields if field.type in (string(), large_string())]
        table = parquet.ParquetFile(opened, read_dictionary=texts)
        for batch in table.iter_batches(batch_size=_ROWS, columns=names):
            for at in range(batch.num_rows):
                number += 1
                try:
                    row = batch.slice(at, 1).to_pylist()[0]
                except UnicodeDecodeError:
                    yield Broken(file, number, phrase("it is not UTF-8"))
                    continue
                except (ValueError, ArithmeticError, LookupError) as e:  # times out of all range
                    why = phrase(
                        "it has a value that cannot be read: {why}", why=str(e)[:_MOST_WHY]
                    )
                    yield Broken(file, number, why)
                    continue
                given = {name: value for name, value in row.items() if value is not None}
                yield from _placed(file, number, _document(given, find_template))
    except ArrowException as e:
        yield Broken(file, 0, phrase("it is not valid Parquet: {why}", why=str(e)[:_MOST_WHY]))
        return
    if not number:
        yield Broken(file, 0, phrase("it has no rows"))


def _placed(file: Path, number: int, found: tuple[Piece, ...] | Text) -> tuple[Piece | Broken, ...]:
    return (Broken(file, number, found),) if isinstance(found, Text) else found


def _read_lines(
    file: Path, opened: BinaryIO, find_template: FindTemplate
) -> Iterator[Piece | Broken]:
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
        yield from _placed(file, number, _parse(line, find_template))
    if not found:
        yield Broken(file, 0, phrase("it has no lines with JSON"))


def _parse(line: bytes, find_template: FindTemplate) -> tuple[Piece, ...] | Text:
    """Return the pieces of a document, or why the line is none."""
    try:
        row: Any = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
        return phrase("it is not valid JSON: {why}", why=str(e))
    if not isinstance(row, dict):
        return phrase("it is not a JSON object")
    return _document(row, find_template)


def _document(row: dict[str, Any], find_template: FindTemplate) -> tuple[Piece, ...] | Text:
    """Return the pieces of a document, or why there is none."""
    if row.keys() & _PREFERENCES:
        return phrase("it is a pair of preferences, which this training cannot use")
    if "messages" in row:
        return _chat(row["messages"], find_template)
    if "text" in row:
        return _pieces(row, "text")
    if "prompt" in row:
        return _pieces(row, "prompt", "answer" if "answer" in row else "completion")
    return _UNNAMED


def _pieces(row: dict[str, Any], *names: str) -> tuple[Piece, ...] | Text:
    for name in names:
        value = row.get(name)
        if not isinstance(value, str):
            return phrase("{name} is not a text", name=name)
        if name != "prompt" and not value:
            return phrase("{name} is empty", name=name)
    return tuple(Piece(row[n], learned=n != "prompt", ends=n == names[-1]) for n in names)


def _chat(messages: Any, find_template: FindTemplate) -> tuple[Piece, ...] | Text:
    """Return the pieces of a chat, as the model's template writes it.

    Each answer follows the prompt that the model is given when it is served. A template that writes
    earlier answers in another way when the chat goes on, for example without their reasoning,
    begins a new document there.
    """
    if not isinstance(messages, list) or not all(map(_is_message, messages)):
        return phrase('a message lacks "role" or "content", or one of them is not a text')
    if not messages or messages[-1]["role"] != "assistant":
        return phrase("its last message is not the assistant's, so there is nothing to learn")
    template = find_template()
    if template is None:
        return phrase(
            "it is a chat, but the tokenizer's folder has no chat template. Choose one that has it"
        )
    pieces: list[Piece] = []
    done = ""
    for i, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        try:
            prompt = template.render(messages[:i])
            answered = template.render(messages[: i + 1], prompt=False)
        except RequestRefused as e:
            return phrase("the chat cannot be written: {why}", why=str(e))
        if not answered.startswith(prompt):
            return phrase("the chat template does not continue its own prompt with the answer")
        if not prompt.startswith(done):
            pieces[-1], done = replace(pieces[-1], ends=True), ""
        pieces.append(Piece(prompt[len(done) :], learned=False, ends=False, bare=True))
        pieces.append(Piece(answered[len(prompt) :], learned=True, ends=False, bare=True))
        done = answered
    return *pieces[:-1], replace(pieces[-1], ends=True)


def _is_message(given: Any) -> bool:
    return isinstance(given, dict) and all(
        isinstance(given.get(name), str) for name in ("role", "content")
    )
