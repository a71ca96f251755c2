"""Measure which parts of labelled questions have a place in the queries that are made of them.

    python -m tests.benchmarks.composed_questions [--profiles 401-432] [--misses FILE] [--record]

The reading of each labelled question is its label, as if the reader had made no mistake; what `it`
stands for is followed through the conversation. A question is `whole` if queries are made of it
that would be others without any one of its parts (a measure, a name, a time, a grouping), `in part`
if some part changes nothing, and `none` if no query is made of it. `told` are those of which an
answer says in a sentence what nobody here measures or can tell. The rows go to
results/composed_questions.csv.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from gpudeck.assistant import one_thread

one_thread.import_numpy()

import msgspec  # noqa: E402

from gpudeck.assistant.intents.composed import Composed, compose  # noqa: E402
from gpudeck.assistant.intents.names import Known  # noqa: E402
from gpudeck.assistant.intents.questions import DEVICE_FIELDS, JOB_FIELDS  # noqa: E402
from gpudeck.assistant.intents.state import State  # noqa: E402
from gpudeck.assistant.intents.values import STATES, Unknown, Unread  # noqa: E402
from gpudeck.assistant.query.request import Query, Request  # noqa: E402
from gpudeck.assistant.query.table import check  # noqa: E402
from gpudeck.assistant.reader import labels  # noqa: E402
from gpudeck.assistant.reader.reading import Reading  # noqa: E402
from gpudeck.scheduler.protocol.errors import UserError  # noqa: E402
from tests.benchmarks.request_chain import _after, _named  # noqa: E402
from tests.benchmarks.rows import context, write  # noqa: E402

PROFILES = Path(__file__).parents[2] / "assistant" / "training" / "data" / "requests.jsonl.gz"
NOW = datetime(2026, 11, 26, 15, 20).timestamp()
_IMPLIED = {
    ("gpus", "measure=use"), ("gpus", "gpus=@all"),
    ("jobs", "measure=state"), ("jobs", "jobs=@all"),
    ("users", "measure=jobs"), ("users", "measure=activity"), ("alerts", "combine=count"),
    ("bookings", "combine=count"), ("alerts", "measure=list"),
    ("queue", "measure=state"), ("queue", "measure=length"), ("queue", "measure=order"),
    ("queue", "measure=groups"), ("models", "measure=installed"), ("capacity", "count=a"),
    ("capacity", "when=True"), ("bookings", "when=True"), ("actions", "when=True"),
    ("alerts", "when=True"),
}  # fmt: skip
"""What an answer without it says, too: the state of jobs, and all GPUs."""
_NOW = ("=now", "=jetzt", "=maintenant", "=ahora", "=grad")

Label = dict[str, Any]


class Verdict(NamedTuple):
    """Say what became of a labelled question."""

    kind: str
    """`whole`, `in part`, `told` or `none`."""
    lost: tuple[str, ...] = ()
    """The parts that change nothing, or why no query is made."""


def questions(profiles: range, file: Path) -> Iterator[tuple[dict[str, Any], Label, Known, State]]:
    """Yield each labelled question with its row, the names its person knows, and what was said."""
    rows = [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]
    rows = [row for row in rows if row["profile"] in profiles]
    for _, group in groupby(rows, key=lambda row: row["profile"]):
        told = list(group)
        known, state = _named(told), State()
        for row in told:
            state = State() if row["turn"] == 1 else state
            for label in row["label"]:
                if "ask" in label:
                    yield row, label, known, state
            made = _composed(row["label"][0], known, state)
            if isinstance(made, Composed):
                state = _after(made.request, state, known)


def judged(label: Label, known: Known, state: State) -> Verdict:
    """Return what becomes of a labelled question."""
    made = _composed(label, known, state)
    if isinstance(made, Unknown):
        return Verdict("told")
    if isinstance(made, Exception):
        return Verdict("none", (f"{type(made).__name__} {made}",))
    lost = []
    for name, rest in _without_one(label):
        other = _composed(rest, known, state)
        same = isinstance(other, Composed) and _all(other) == _all(made)
        if same and (label["ask"], name) not in _IMPLIED:
            lost.append(name)
    lost = [one for one in lost if not _is_held(made, one, label) and not one.endswith(_NOW)]
    untold = [one for one in lost if one.partition("=")[0] not in _told(made)]
    kind = "in part" if untold else "told" if _told(made) else "whole"
    return Verdict(kind, tuple(untold))


def _is_held(made: Composed, name: str, label: Label) -> bool:
    """Return whether queries have a part although they would be the same without it.

    A sum of energy, for example, or the state of jobs whose reason for waiting is asked for. Rows
    of several things stand below one another, so that each is compared with the others. Where no
    GPU was spoken of, the card is any card.
    """
    field, _, value = name.partition("=")
    asked = [one for one in _all(made) if isinstance(one, Query)]
    table = DEVICE_FIELDS if label["ask"] == "gpus" else JOB_FIELDS
    return any(
        (field == "combine" and one.aggregate == value)
        or (field == "states" and {*STATES.get(value, (value,))} <= {*one.states})
        or (field == "measure" and one.measure and one.measure == table.get(value))
        or (field == "states" and one.measure == f"{value}_time")
        or (name == "which=newest" and one.limit > 0)
        or (name == "compare=before" and "time2" in label)
        or (name == "user=@me" and one.by == "user")
        or (name == "compare=each" and len(one.jobs or one.devices) != 1)
        or (name in ("gpus=@it", "gpus=@them") and not one.devices)
        for one in asked
    )  # fmt: skip


def _told(made: Composed) -> set[str]:
    """Return the fields of which the answer says that it leaves them out."""
    return {field for field, _ in made.left}


def _all(made: Composed) -> tuple[Request, ...]:
    return (made.request, *made.also)


def _without_one(label: Label) -> Iterator[tuple[str, Label]]:
    """Yield each part of a label with the label without it."""
    for field, value in label.items():
        if field == "ask":
            continue
        rest = {name: one for name, one in label.items() if name != field}
        if not isinstance(value, list):
            yield f"{field}={value}", rest
            continue
        for one in value:
            kept = [other for other in value if other != one]
            yield f"{field}={one}", {**rest, field: kept} if kept else rest


def _composed(label: Label, known: Known, state: State) -> Composed | Exception:
    head = labels.head_of(label)
    if head == "order submit" or label.get("what_if"):
        return Unread("order")
    found = tuple(labels.spans_of(label))
    reading = Reading(((head, 1.0),), "", frozenset(labels.marks_of(label)), found,
                      tuple((0, 0) for _ in found), ())  # fmt: skip
    try:
        made = compose(reading, head, known, state, NOW)
        for one in _all(made):
            if isinstance(one, Query):
                check(one)
    except (Unread, UserError, ValueError, KeyError) as e:
        return e
    return made


def main() -> None:
    """Write a row for each subject, and one for all."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.composed_questions")
    parser.add_argument("--profiles", default="401-432")
    parser.add_argument("--file", type=Path, default=PROFILES)
    parser.add_argument("--misses", type=Path)
    parser.add_argument("--record", action="store_true")
    args = parser.parse_args()
    first, _, last = args.profiles.partition("-")
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    causes: Counter[str] = Counter()
    misses: list[str] = []
    for row, label, known, state in questions(range(int(first), int(last) + 1), args.file):
        verdict = judged(label, known, state)
        for subject in ("all", label["ask"]):
            counts[subject].update(["questions", verdict.kind])
        causes.update(f"{label['ask']} {verdict.kind} {one.partition('=')[0]}"
                      for one in verdict.lost)  # fmt: skip
        if verdict.kind in ("in part", "none"):
            misses.append(f"{label['ask']} {verdict.kind}: {', '.join(verdict.lost)}: "
                          f"{row['text']!r} {msgspec.json.encode(label).decode()}")  # fmt: skip
    rows = [
        {"profiles": args.profiles, "subject": name, "questions": of["questions"],
         **{kind: f"{of[kind] / of['questions']:.3f}"
            for kind in ("whole", "told", "in part", "none")}}
        for name, of in counts.items()
    ]  # fmt: skip
    for one in rows:
        print(one)
    for cause, number in causes.most_common(40):
        print(number, cause)
    if args.misses:
        args.misses.write_text("\n".join(sorted(misses)) + "\n", "utf-8")
    if args.record:
        write("composed_questions", [one | context("CPU", ()) for one in rows])


if __name__ == "__main__":
    main()
