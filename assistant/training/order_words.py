"""Collect the words that orders for several jobs are made of.

    python -m gpudeck.assistant.training.order_words DATA

An order for all jobs, a group or the queue is not proposed if it has another word: the word may be
one that says which jobs are meant. They are the words of composed orders and of those that people
wrote (DATA, see `requests`), without the letters of names, numbers and times.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from gpudeck.assistant.intents.guards import WORDS, plain
from gpudeck.assistant.reader.labels import spans_of
from gpudeck.assistant.training.filler import NAMES, fillers
from gpudeck.assistant.training.requests import is_held_out

_VERBS = frozenset({"cancel", "pause", "resume", "retry", "edit", "limit", "move", "drain"})
_COMPOSED, _OFTEN = 60_000, 4
"""A composed word must come so often, as some have typos."""


def words_of(text: str, label: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield the words of a request that are no letters of its label."""
    for one in label:
        for _, letters in spans_of(one):
            text = text.replace(letters, " ", 1)
    yield from re.findall(r"[^\W\d_]{2,}", plain(text))


def _is_for_many(order: dict[str, Any]) -> bool:
    """Return whether no single job is named, so that another word might say which are meant."""
    return bool({"group", "states", "queue"} & order.keys() or "@all" in order.get("jobs", ()))


def main() -> None:
    """Write the words."""
    counts = Counter[str]()
    for made in islice(fillers(7), _COMPOSED):
        if made.label[0].get("order") in _VERBS and not made.label[0].get("what_if"):
            counts.update(words_of(made.text, made.label))
    found = {word for word, count in counts.items() if count >= _OFTEN}
    for line in gzip.decompress(Path(sys.argv[1]).read_bytes()).decode().splitlines():
        row = json.loads(line)
        orders = [one for one in row["label"] if one.get("order") in _VERBS]
        plainly = (
            len(orders) == len(row["label"]) and not {"if", "at", "what_if"} & orders[0].keys()
        )
        if plainly and _is_for_many(orders[0]) and not is_held_out(row["profile"]):
            found.update(words_of(row["text"], row["label"]))
    found -= {part for name in NAMES for part in words_of(name, ())}
    WORDS.write_text("\n".join(sorted(found)) + "\n", "utf-8")


if __name__ == "__main__":
    main()
