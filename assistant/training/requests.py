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

HELD_OUT = {"free": (3, 9, 12, 19, 25, 33), "direct": (47, 50, 55, 65, 67),
            "new": (120, 121, 122, 123, 124, 125), "talks": (180, 181, 182, 183),
            "people": (310, 325, 327, 332), "newest": (531, 551, 571, 591, 599, 602)}  # fmt: skip
"""The profiles that nothing learns from, by their sets."""


class Example(NamedTuple):
    """Hold a request with what was asked before it, and what it means."""

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


def is_held_out(profile: int) -> bool:
    """Return whether a profile is for measuring."""
    return any(profile in profiles for profiles in HELD_OUT.values())


def examples(file: Path) -> list[Example]:
    """Return the examples of a file.

    A row with the key `before` says itself what was asked before it; composed phrases have it.
    """
    raw = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    found, before, scene = [], "", ""
    for line in raw.decode().splitlines():
        row = json.loads(line)
        if row["turn"] == 1 or row["scene"] != scene:
            before, scene = "", row["scene"]
        one = _example(row, before)
        found.append(one)
        if not one.heads[0].startswith("talk"):
            fields = {field for field, _, _ in one.spans}
            before = described(one.heads[0], one.marks, fields, one.text)
    return found


def _example(row: dict[str, Any], before: str) -> Example:
    label = row["label"]
    return Example(
        row["profile"], row["language"], row.get("before", before), row["text"],
        tuple(head_of(one) for one in label), tuple(marks_of(label[0])),
        tuple(_places(row["text"], label)), str(label[0].get("manual", "")),
    )  # fmt: skip


def _places(text: str, label: list[dict[str, Any]]) -> Iterator[tuple[str, int, int]]:
    """Yield where the spans of a label stand in the text; the same letters stand for one span.

    Longer spans come first: a condition keeps the name of the job that stands in it, and would be
    lost otherwise.
    """
    low, taken = text.lower(), set[int]()  # `casefold` would make ß two letters
    spans = [span for meaning in label for span in spans_of(meaning)]
    for field, letters in sorted(spans, key=lambda span: -len(span[1])):
        wanted = letters.lower().strip()
        places = [
            range(at, at + len(wanted))
            for at in range(len(low))
            if low.startswith(wanted, at) and not taken & {*range(at, at + len(wanted))}
        ]
        places.sort(key=lambda place: _inside(low, place))
        if places and len(low) == len(text):
            taken |= set(places[0])
            yield field, places[0].start, places[0].stop


def _inside(text: str, place: range) -> bool:
    """Return whether the letters of a place are a part of a word, as 1 in gpu1."""
    first, last = place.start, place.stop
    before = first > 0 and text[first - 1].isalnum() and text[first].isalnum()
    return before or (last < len(text) and text[last].isalnum() and text[last - 1].isalnum())
