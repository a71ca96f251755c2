"""Evaluate a trained model on phrasings, hand-written requests, names and numbers it never saw.

python -m assistant.training.evaluate FOLDER

A program judges greedy texts: the first attempt, and what the app shows, which rewinds to before a
refused sentence. It writes evaluation.json and confusion.csv.
"""

from __future__ import annotations

import argparse
import csv
import json
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import NamedTuple, get_args

from assistant.engine.engine import Engine, EngineAuthor, TextPosition
from assistant.facts import Fact
from assistant.intents import table
from assistant.intents.masks import masked
from assistant.intents.model_routes import request_of
from assistant.intents.normalize import plain
from assistant.intents.parser import parse
from assistant.intents.router import SURE, WAYS
from assistant.intents.spots import Known
from assistant.intents.state import State
from assistant.training import requests
from assistant.training.handwritten import HandwrittenRequest, handwritten
from assistant.training.phrasings import Part, voices
from assistant.workloads import random_machines
from assistant.writing import compact
from assistant.writing.verify import Refused, fill, verify
from assistant.writing.writer import write

EVALUATION, CONFUSION = "evaluation.json", "confusion.csv"
_PARTS: tuple[Part, ...] = get_args(Part)[1:]


class Routing(NamedTuple):
    """Hold a request as the model saw it, the route it needs, and the model's route."""

    request: str
    wanted: str
    said: str
    language: str
    sure: bool
    """True if the route is so likely that the app would follow it without asking back."""


class Judged(NamedTuple):
    """Judge a text: the first attempt is faithful to the facts, it is also complete, and the app
    shows it.
    """

    faithful: bool
    complete: bool
    shown: bool


def written(engine: Engine, system: str, user: str) -> str:
    """Return what the model writes greedily."""
    author = EngineAuthor(engine, lambda: False)
    return _greedy(author, author.begin(system, user))


def _greedy(author: EngineAuthor, place: TextPosition) -> str:
    *_, last = author.write(place, 0)
    return last.text.strip()


def evaluate(
    folder: Path, routings: int, texts: int, device: str = "cpu", seed: int = 99
) -> dict[str, object]:
    """Return shares with their counts, and the hand-written requests that were routed wrongly."""
    engine, random = Engine(str(folder), device), Random(seed)
    held_out = {
        part: [_routed(engine, *requests.example(random, part), "") for _ in range(routings)]
        for part in _PARTS
    }
    each = -(-routings // 4)
    by_voice = {
        name: [_routed(engine, *requests.held_out(random, name, "en"), "") for _ in range(each)]
        for name in voices("en")
    }
    by_hand = [
        _routed(engine, masked(asked.request)[0], asked.route, asked.language)
        for asked in handwritten()
    ]
    _confusion(
        folder / CONFUSION, [*(one for found in held_out.values() for one in found), *by_hand]
    )
    languages = sorted({one.language for one in by_hand})
    return {
        **{f"routing, held-out {part}": _right(found) for part, found in held_out.items()},
        **{
            f"routing, held-out {part}, where it is sure": _of_sure(found)
            for part, found in held_out.items()
        },
        "routing, held-out phrasings in English, by who speaks or of what": {
            name: _right(found) for name, found in by_voice.items()
        },
        "routing, hand-written": _right(by_hand),
        "routing, hand-written, tool alone": sum(
            _tool(one.said) == _tool(one.wanted) for one in by_hand
        )
        / len(by_hand),
        "routing, hand-written, by the rules that a machine without a model uses": sum(
            map(_by_rules, handwritten())
        )
        / len(by_hand),
        "routing, hand-written, by language": {
            name: _right([one for one in by_hand if one.language == name]) for name in languages
        },
        **{f"texts, {name}": shares for name, shares in _texts(engine, random, texts).items()},
        "counts": {
            "held-out of each part": routings,
            "held-out of each voice": each,
            "hand-written": len(by_hand),
            "texts of each kind": texts,
        },
        "hand-written, wrong": [one._asdict() for one in by_hand if one.said != one.wanted],
    }


def _routed(engine: Engine, request: str, wanted: str, language: str) -> Routing:
    author = EngineAuthor(engine, lambda: False)
    place = author.begin(table.SYSTEM, plain(request))
    ways = author.continuations(place, WAYS)
    return Routing(
        request, wanted, _greedy(author, place), language, bool(ways) and ways[0].chance >= SURE
    )


def _by_rules(asked: HandwrittenRequest) -> bool:
    """Return the share of requests that the rules route: the baseline for a model."""
    now = time.time()
    wanted = request_of(table.parse(asked.route), masked(asked.request)[1], now)
    return parse(asked.request, Known(), State(), now).request == wanted


def _right(found: list[Routing]) -> float:
    return sum(one.said == one.wanted for one in found) / len(found)


def _of_sure(found: list[Routing]) -> dict[str, float]:
    sure = [one for one in found if one.sure]
    return {"sure": len(sure) / len(found), "right of these": _right(sure) if sure else 0.0}


def _tool(route: str) -> str:
    return " ".join(route.split()[:2])


def _confusion(file: Path, found: list[Routing]) -> None:
    """Return a row for each tool: how often it was wanted, how often it was right, and the
    mistakes.
    """
    with file.open("w", newline="", encoding="utf-8") as out:
        rows = csv.writer(out)
        rows.writerow(("tool", "wanted", "right", "wrong arguments", "other tools"))
        for tool in sorted({_tool(one.wanted) for one in found}):
            mine = [one for one in found if _tool(one.wanted) == tool]
            exact = sum(one.said == one.wanted for one in mine)
            others = Counter(_tool(one.said) for one in mine if _tool(one.said) != tool)
            rows.writerow(
                (
                    tool,
                    len(mine),
                    exact,
                    len(mine) - exact - others.total(),
                    "; ".join(f"{k} {n}" for k, n in others.most_common()),
                )
            )


def _texts(engine: Engine, random: Random, count: int) -> dict[str, dict[str, float]]:
    """Return the shares of good texts about random and recorded machines, with held-out names."""
    kinds: dict[str, list[Judged]] = {}
    while min((len(kinds.get(name, ())) for name in _KINDS), default=0) < count:
        recorded, asks = random.random() < 0.5, random.random() < 0.5
        kind = kinds.setdefault(_KINDS[2 * recorded + asks], [])
        if len(kind) < count:
            facts = random_machines.random_facts(random, random_machines.HELD_OUT_NAMES, recorded)
            kind.append(
                judged(
                    engine, facts, random_machines.random_question(random, facts) if asks else None
                )
            )
    shares = {
        "faithful": "faithful",
        "complete": "faithful and complete",
        "shown": "shown as the model's",
    }
    return {
        name: {
            share: sum(getattr(one, field) for one in found) / count
            for field, share in shares.items()
        }
        for name, found in kinds.items()
    }


_KINDS = (
    "briefs, random machines",
    "answers, random machines",
    "briefs, real telemetry",
    "answers, real telemetry",
)


def judged(engine: Engine, facts: tuple[Fact, ...], question: str | None) -> Judged:
    """Judge the model's text about a machine."""
    prompt_facts = compact.compact(facts, question)
    try:
        text = written(engine, compact.SYSTEM, prompt_facts.text)
        filled = fill(text, prompt_facts.slots)
        verify(text, facts, slots=prompt_facts.slots)
        faithful, complete = True, all(fact.said in filled for fact in prompt_facts.needed)
    except Refused:
        faithful = complete = False
    return Judged(
        faithful,
        complete,
        complete
        or write(facts, question, EngineAuthor(engine, lambda: False)).writer != "template",
    )


def main() -> None:
    """Evaluate the model in a folder, and store the results there."""
    parser = argparse.ArgumentParser(description="Evaluate a trained model on what it never saw.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--routings", type=int, default=600)
    parser.add_argument("--texts", type=int, default=200)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    found = evaluate(given.folder, given.routings, given.texts, given.device)
    text = json.dumps(found, indent=1, ensure_ascii=False)
    print(text)
    (given.folder / EVALUATION).write_text(text)


if __name__ == "__main__":
    main()
