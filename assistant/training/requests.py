"""The requests that people wrote, with what they mean.

A file has one request a line: `id`, `profile`, `language`, `scene`, `turn`, `text` and `label`, in
the order of the conversations. `gpudeck.assistant.reader.labels` has the table of labels.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from gpudeck.assistant.reader.labels import described, head_of, marks_of, spans_of


class Example(NamedTuple):
    """Hold a request with what was meant before it, and what it means."""

    profile: int
    language: str
    before: str
    text: str
    heads: tuple[str, ...]
    marks: tuple[str, ...]
    """Of the first meaning."""
    spans: tuple[tuple[str, int, int], ...]
    """Fields with the places of their letters, of all meanings."""
    page: str


def examples(file: Path) -> list[Example]:
    """Return the examples of a file."""
    raw = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    found, before, scene = [], None, ""
    for line in raw.decode().splitlines():
        row = json.loads(line)
        if row["turn"] == 1 or row["scene"] != scene:
            before, scene = None, row["scene"]
        label = row["label"]
        found.append(Example(
            row["profile"], row["language"], described(before), row["text"],
            tuple(head_of(one) for one in label), tuple(marks_of(label[0])),
            tuple(_places(row["text"], label)), str(label[0].get("manual", "")),
        ))  # fmt: skip
        last = label[-1]
        before = before if "talk" in last else last
    return found


def _places(text: str, label: list[dict[str, Any]]) -> Iterator[tuple[str, int, int]]:
    """Yield where the spans of a label stand in the text; the same letters stand for one span."""
    low, taken = text.casefold(), set[int]()
    whole = len(low) == len(text)
    for meaning in label:
        for field, letters in spans_of(meaning):
            wanted, start = letters.casefold().strip(), 0
            while whole and (at := low.find(wanted, start)) >= 0:
                end = at + len(wanted)
                joined = (at and low[at - 1].isalnum() and wanted[0].isalnum()) or (
                    end < len(low) and low[end].isalnum() and wanted[-1].isalnum())  # fmt: skip
                if not joined and not taken & set(range(at, end)):
                    taken |= set(range(at, end))
                    yield field, at, end
                    break
                start = at + 1
