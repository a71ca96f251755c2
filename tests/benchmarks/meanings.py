"""Measure the share of requests that have a meaning here, as if the reader made no mistake.

    python -m tests.benchmarks.meanings [--misses FILE] [--record]

Asked are the labelled requests of the held-out profiles, with their labels as the reading, and the
turns of the known blind sets, whose labellers wrote which requests are right, or that a refusal is.
A request has a meaning if each of its labels becomes a `query`, an `order`, a `section` of the
manual, `talk` that is answered, something that is declared to be `outside`, or a refusal that names
the `command` for it. All others have none: what is not measured, an order that is refused without a
command, and a question for which the manual has no section. The rows go to results/meanings.csv.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from gpudeck.assistant import one_thread

one_thread.import_numpy()


from gpudeck.assistant.intents.names import Known  # noqa: E402
from gpudeck.assistant.intents.state import State  # noqa: E402
from gpudeck.assistant.intents.understand import Understood, understand  # noqa: E402
from gpudeck.assistant.query.request import Query  # noqa: E402
from gpudeck.assistant.reader import labels  # noqa: E402
from gpudeck.assistant.reader.reading import Reader, Reading  # noqa: E402
from gpudeck.assistant.tools import help_texts  # noqa: E402
from gpudeck.assistant.training.requests import is_held_out  # noqa: E402
from gpudeck.assistant.training.sections import DATA  # noqa: E402
from gpudeck.language.words import words  # noqa: E402
from tests.benchmarks.request_chain import NOW, SETS, _after, _composed, _named  # noqa: E402
from tests.benchmarks.rows import context, write  # noqa: E402

MEANINGS = ("query", "order", "section", "talk", "outside", "command")
"""What has a meaning; anything else has none."""
_EN = words("en")


class Labelled(Reader):
    """Read a request as its label says."""

    def __init__(self, label: dict[str, Any]) -> None:
        self._label = label

    def read(self, request: str, before: str = "") -> Reading:
        """Return the label as a reading that is quite sure."""
        found = tuple(labels.spans_of(self._label))
        first = [request.find(letters) for _, letters in found]
        places = tuple((max(at, 0), max(at, 0) + len(letters))
                       for at, (_, letters) in zip(first, found, strict=True))  # fmt: skip
        head = labels.head_of(self._label)
        return Reading(((head, 1.0),), "", frozenset(labels.marks_of(self._label)), found, places,
                       ())  # fmt: skip


class Judged(NamedTuple):
    """Say what became of a request."""

    set: str
    text: str
    kinds: tuple[str, ...]
    """One for each of its labels."""

    @property
    def meant(self) -> bool:
        """Return whether all of it has a meaning."""
        return all(kind in MEANINGS for kind in self.kinds)


def judged() -> Iterator[Judged]:
    """Yield all requests with what becomes of them."""
    lines = (DATA / "sections.tsv").read_text("utf-8").splitlines()
    places = {line.split("\t")[0] for line in lines}
    file = gzip.decompress((DATA / "requests.jsonl.gz").read_bytes()).splitlines()
    of_profile = defaultdict[int, list[dict[str, Any]]](list)
    for row in map(json.loads, file):
        if is_held_out(row["profile"]):
            of_profile[row["profile"]].append(row)
    for rows in of_profile.values():
        known, state = _named(rows), State()
        for row in rows:
            state = State() if row["turn"] == 1 else state
            kinds = tuple(
                _kind(row["text"], label, known, state, row["id"] in places)
                for label in row["label"]
            )
            yield Judged("held-out profiles", row["text"], kinds)
            made = [one for label in row["label"] for one in _composed(label, known, state)]
            state = _after(made[-1], state, known) if made else state
    for row in map(json.loads, SETS.read_text("utf-8").splitlines()):
        kind = "query" if row["right"] else "outside" if row["refused"] else "none"
        yield Judged("blind sets", row["text"], (kind,))


def _kind(text: str, label: dict[str, Any], known: Known, state: State, in_manual: bool) -> str:
    """Return what becomes of a label."""
    head = labels.head_of(label)
    if head == "manual":
        return "section" if in_manual or label.get("term") else "no section"
    return _kind_of(understand(text, known, state, NOW, Labelled(label)))


def _kind_of(found: Understood) -> str:
    if found.request is not None:
        return "query" if isinstance(found.request, Query) else "order"
    if found.refusal is not None:
        told = help_texts.refusal(found.refusal, _EN, found.verb)
        return "command" if "`" in told else f"refused {found.refusal.problem}"
    if found.declined.startswith("ask") and "`" not in help_texts.declined(found.declined, _EN):
        return "not measured"
    if found.declined.startswith("talk"):
        return "outside" if found.declined == "talk outside" else "talk"
    if found.declined == "order notify":
        return "command"
    if found.declined:
        return "command" if "`" in help_texts.declined(found.declined, _EN) else "outside"
    return "asked" if found.choices else "not understood"


def main() -> None:
    """Write a row for each set, and one for all."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.meanings")
    parser.add_argument("--misses", type=Path)
    parser.add_argument("--record", action="store_true")
    args = parser.parse_args()
    counts = defaultdict[str, Counter[str]](Counter)
    misses: list[str] = []
    for one in judged():
        worst = next((kind for kind in one.kinds if kind not in MEANINGS), one.kinds[0])
        for name in (one.set, "all"):
            counts[name].update(["requests", worst, *(["meant"] if one.meant else [])])
        if not one.meant:
            misses.append(f"{worst}: {one.text!r}")
    rows = [{"set": name, "requests": of["requests"], "meant": of["meant"],
             "share": f"{of['meant'] / of['requests']:.4f}",
             **{kind: of[kind] for kind in MEANINGS}} for name, of in counts.items()]  # fmt: skip
    for row in rows:
        print(row)
    print({kind: n for kind, n in counts["all"].items() if kind not in MEANINGS})
    if args.misses:
        args.misses.write_text("\n".join(sorted(misses)) + "\n", "utf-8")
    if args.record:
        about = context("CPU", ("numpy", "tokenizers"), ("assistant/intents", "assistant/query"))
        write("meanings", [row | about for row in rows])


if __name__ == "__main__":
    main()
