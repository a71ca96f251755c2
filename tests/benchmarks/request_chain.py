"""Measure what becomes of whole requests: queries, orders, choices, refusals.

    python -m tests.benchmarks.request_chain [--misses FILE] [--sets people,first]

The requests are those of the profiles that were held out, with what was meant before them, and the
known sets of `held_out_requests.jsonl`. A request of a profile is compared with the request that
its label stands for. `right` and `wrong` count its kind, `same` all of its values. `offered` are
choices with the right kind, `asked` all else. A `bad order` is proposed where none was given, or
for other targets. The rows go to results/request_chain.csv.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from gpudeck.assistant import one_thread

one_thread.import_numpy()

import msgspec  # noqa: E402

from gpudeck.assistant.intents.composed import completing, compose  # noqa: E402
from gpudeck.assistant.intents.heads import head_of  # noqa: E402
from gpudeck.assistant.intents.names import Known  # noqa: E402
from gpudeck.assistant.intents.order_options import OrderOptions  # noqa: E402
from gpudeck.assistant.intents.state import State  # noqa: E402
from gpudeck.assistant.intents.understand import Understood, understand  # noqa: E402
from gpudeck.assistant.intents.values import Unread  # noqa: E402
from gpudeck.assistant.query.request import Order, Query, Request  # noqa: E402
from gpudeck.assistant.reader import labels  # noqa: E402
from gpudeck.assistant.reader.reading import Reader, Reading, shipped_reader  # noqa: E402
from gpudeck.assistant.training.requests import HELD_OUT, examples  # noqa: E402
from tests.benchmarks.rows import context, write  # noqa: E402

ROOT = Path(__file__).parents[2]
PROFILES = ROOT / "assistant" / "training" / "data" / "requests.jsonl.gz"
SETS = ROOT / "tests" / "integration" / "data" / "held_out_requests.jsonl"
NOW = datetime(2026, 11, 25, 15, 20).timestamp()
NAMES = Known(
    ("train", "oom", "nan", "fetch", "render", "finetune", "bench", "eval", "big", "nightly",
     "sweep"),
    ("sweep",), ("baseline",),
)  # fmt: skip
"""The world of the known sets."""
_MEASURES = {
    "temp": "temperature", "mem_used": "memory_used", "mem_free": "memory_free",
    "mem_total": "memory_total", "clock_sm": "clock", "throttle": "slowed", "tflops": "rate",
    "name": "model", "reason": "why_waiting", "failure": "why_failed", "estimate": "time_left",
    "log": "output", "stall": "stuck", "devices": "gpus",
}  # fmt: skip
"""What the encoder calls measures of the known sets."""
_OF_AMOUNTS = ("order edit", "order retry")
_LISTED = (13, 14, 15)
"""The jobs of an answer that listed jobs."""


class Case(NamedTuple):
    """Hold a request with its conversation, and what is right."""

    set: str
    language: str
    text: str
    known: Known
    state: State
    heads: tuple[str, ...]
    """The kinds that are right, `none` if it shall be refused."""
    right: tuple[tuple[Request, ...], ...]
    """The requests that are right; none if no request has the meaning."""
    opens: bool = False
    forbids: bool = False
    """A condition or another time, so that the order is not to be proposed."""
    near: bool = False
    """No order at all, one that is only supposed, or one that is not for now."""


def known_sets() -> Iterator[Case]:
    """Yield the turns of the known sets."""
    for line in SETS.read_text("utf-8").splitlines():
        row = json.loads(line)
        right = tuple(
            tuple(msgspec.convert(one, Request) for one in each if one != "plan")
            for each in row["right"]
        )
        heads = [head_of(each[0]) for each in right] + ["none"] * bool(row["refused"])
        state = _told(msgspec.convert(row["state"], State))
        yield Case(row["set"], row["language"], row["text"], NAMES, state, tuple(heads), right)


def _told(state: State) -> State:
    """Return a state of the known sets with its last request in the words of the encoder."""
    last = state.order or state.last
    if last is None:
        return state
    measure = last.measure if isinstance(last, Query) and " " not in last.measure else ""
    marks = [f"measure={_MEASURES.get(measure, measure)}"] if measure else []
    things = (("jobs", state.jobs), ("gpus", state.devices))
    said = labels.described(head_of(last), marks, (name for name, named in things if named))
    return msgspec.structs.replace(state, before=said)


def profiles(chosen: Mapping[str, Collection[int]] = HELD_OUT) -> Iterator[Case]:
    """Yield the requests of profiles, of those that were held out where no others are chosen."""
    rows = [json.loads(line) for line in gzip.decompress(PROFILES.read_bytes()).splitlines()]
    sets = {profile: name for name, profiles in chosen.items() for profile in profiles}
    befores = [one.before for one in examples(PROFILES) if one.profile in sets]
    rows = [row for row in rows if row["profile"] in sets]
    of_profile = defaultdict[int, list[dict[str, Any]]](list)
    for row in rows:
        of_profile[row["profile"]].append(row)
    named = {profile: _named(its) for profile, its in of_profile.items()}
    state = State()
    for row, before in zip(rows, befores, strict=True):
        known = named[row["profile"]]
        state = State() if row["turn"] == 1 else state
        first = row["label"][0]
        state = msgspec.structs.replace(state, before=before)
        made = [one for each in row["label"]
                for one in _composed(each, row["text"], known, state)]  # fmt: skip
        yield Case(sets[row["profile"]], row["language"], row["text"], known, state,
                   (labels.head_of(first),), (tuple(made),) if made else (),
                   row["turn"] == 1, bool({"if", "at"} & first.keys()),
                   any(map(is_near, row["label"])))  # fmt: skip
        state = _after(made[-1], state, known) if made else state


def is_near(meaning: Mapping[str, object]) -> bool:
    """Return whether a meaning forbids something, or is an order that is not for now."""
    return meaning.get("talk") == "no" or bool({"if", "at", "what_if"} & meaning.keys())


def _named(rows: list[dict[str, Any]]) -> Known:
    """Return the names that a person speaks of, as those of this machine."""
    spans = [span for row in rows for one in row["label"] for span in labels.spans_of(one)]

    def of(*fields: str) -> tuple[str, ...]:
        found = (text for field, text in spans if field in fields and not text[0].isdigit())
        return tuple(dict.fromkeys(found))

    return Known(of("jobs", "after"), of("group"), of("tag"), of("user"), "me")


def _composed(label: dict[str, Any], text: str, known: Known, state: State) -> list[Request]:
    """Return the requests of a label; the text says how an amount of an order is related."""
    head = labels.head_of(label)
    found = tuple(labels.spans_of(label))
    if label.get("what_if"):
        return []
    reading = Reading(((head, 1.0),), "", frozenset(labels.marks_of(label)), found,
                      tuple((0, 0) for _ in found), ())  # fmt: skip
    try:
        if head == "order submit":
            return [_submitted(reading, known, state)]
        made = compose(reading, head, known, state, NOW, text if head in _OF_AMOUNTS else "")
    except (Unread, ValueError, KeyError):
        return []
    return [completing(made.request, state), *made.also]


def _submitted(found: Reading, known: Known, state: State) -> Order:
    """Return the order for a new job. Raises Unread."""
    command = " ".join(letters for field, letters in found.spans if field == "command")
    options = OrderOptions(found, known, state, NOW, "").said_of_new_job()
    return Order("submit", command=command, options=options)


def _after(made: Request, state: State, known: Known) -> State:
    """Return what the conversation is about after the answer to a request."""
    ids = {name: 20 + i for i, name in enumerate(known.jobs)}
    jobs = tuple(job if isinstance(job, int) else ids.get(job, 7) for job in made.jobs)
    jobs = tuple(job for job in jobs if job > 0)
    if isinstance(made, Order):
        jobs = jobs or (_LISTED if made.states or made.group else ())
        return State(jobs, (), None, "job" if jobs else "", "en", made.group, made)
    if made.subject == "jobs" and not jobs:
        jobs = (7,) if made.extreme or made.limit == 1 else _LISTED
    devices = made.devices or ((2,) if made.extreme and made.subject == "devices" else ())
    about = "job" if jobs else "device" if devices else ""
    earlier = tuple(index for index in state.devices if index not in devices)
    return State(jobs, devices, made, about, "en", made.group, None, earlier)


def judged(found: Understood, case: Case) -> list[str]:
    """Return what a decision is worth."""
    made = () if found.request is None else (found.request, *found.also)
    order = isinstance(found.request, Order) and not found.plan
    bad = order and not any(_same_order(found.request, each) for each in case.right)
    worth = ["bad order"] if bad and (case.right or case.heads[0].split()[0] != "order") else []
    if made and _plain(made) in map(_plain, case.right):
        return [*worth, "same", "right"]
    if found.choices:
        offered = "offered" if set(map(head_of, found.choices)) & set(case.heads) else "asked"
        return [*worth, offered]
    if found.declined or found.refusal is not None:
        told = found.declined in case.heads or "none" in case.heads or case.forbids
        return [*worth, "right" if told else "asked"]
    if found.request is None:
        return [*worth, "right" if case.heads == ("none",) else "asked"]
    return [*worth, "right" if head_of(found.request) in case.heads else "wrong"]


def _plain(requests: tuple[Request, ...]) -> tuple[Request, ...]:
    """Return requests without differences that no answer shows."""
    same = {("devices", "use"): "", ("jobs", "failure"): "reason"}
    return tuple(
        msgspec.structs.replace(one, measure=same.get((one.subject, one.measure), one.measure))
        if isinstance(one, Query) else one
        for one in requests
    )  # fmt: skip


def _same_order(found: Request | None, right: tuple[Request, ...]) -> bool:
    return any(
        isinstance(one, Order) and isinstance(found, Order) and one.verb == found.verb
        and (one.jobs, one.states, one.group, one.devices, one.exclude)
        == (found.jobs, found.states, found.group, found.devices, found.exclude)
        for one in right
    )  # fmt: skip


def main() -> None:
    """Write a row for each set and language."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.request_chain")
    parser.add_argument("--misses", type=Path)
    parser.add_argument("--weights", type=Path, help="another folder of the reader")
    parser.add_argument("--sets", default="free,direct,new,talks,people,first,second,third")
    args = parser.parse_args()
    cases = [case for case in (*profiles(), *known_sets()) if case.set in args.sets.split(",")]
    reader = Reader.load(args.weights) if args.weights else shipped_reader()
    counts: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    spent, misses = list[float](), list[str]()
    for case in cases:
        began = time.process_time()
        found = understand(case.text, case.known, case.state, NOW, reader)
        spent.append(time.process_time() - began)
        worth = judged(found, case)
        for key in ((case.set, "all"), (case.set, case.language),
                    *([(f"{case.set} first", "all")] if case.opens else [])):  # fmt: skip
            counts[key].update(["requests", *worth, *(["with values"] if case.right else [])])
        if "right" not in worth or ("same" not in worth and case.right) or "bad order" in worth:
            misses.append(f"{case.set} {','.join(worth)}: {case.text!r}\n    is {_shown(found)}\n"
                          f"    not {'/'.join(case.heads)} {case.right[:1]}")  # fmt: skip
    rows = [
        {"set": name, "language": language, "requests": of["requests"],
         **{kind: f"{of[kind] / of['requests']:.3f}"
            for kind in ("right", "offered", "asked", "wrong")},
         "same": f"{of['same'] / max(of['with values'], 1):.3f}", "bad orders": of["bad order"]}
        for (name, language), of in sorted(counts.items())
    ]  # fmt: skip
    for one in rows:
        print(one)
    slow = sorted(spent)[int(len(spent) * 0.95)]
    print(f"CPU time: {1e3 * statistics.median(spent):.0f} ms, P95 {1e3 * slow:.0f} ms")
    if args.misses:
        args.misses.write_text("\n".join(misses) + "\n", "utf-8")
    about = context("CPU", ("numpy", "tokenizers"))
    write("request_chain", [one | about for one in rows])


def _shown(found: Understood) -> str:
    if found.choices:
        return f"choice of {found.choices}"
    why = found.declined or found.refusal or ""
    return f"{'plan ' * found.plan}{found.request} {found.also or ''} {why}"


if __name__ == "__main__":
    main()
