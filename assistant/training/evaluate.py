"""How good a trained model is on what it never saw: phrasings, hand-written requests, ways to say it, names and numbers. Judged by program.

python -m assistant.training.evaluate FOLDER

Greedy, at the first try: in the app a text that is refused is written anew. FOLDER then has evaluation.json and confusion.csv.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections import Counter
from pathlib import Path
from random import Random
from typing import NamedTuple

import msgspec
import torch

from assistant import compact, routes
from assistant.facts import Fact
from assistant.generate import Generation, read
from assistant.masks import masked
from assistant.model import RWKV7
from assistant.prompts import prompt
from assistant.sampling import Sampler
from assistant.tokenizer import Tokenizer
from assistant.tools.call import called
from assistant.tools.rules import by_rules
from assistant.training import decks, requests
from assistant.training.phrasings import Part
from assistant.verify import Refused, fill, verify

HANDWRITTEN = Path(__file__).parent / "handwritten.jsonl"
EVALUATION, CONFUSION = "evaluation.json", "confusion.csv"
_LONGEST = 500


class Asked(msgspec.Struct, frozen=True):
    """A request as a person typed it, and the route it needs."""

    request: str
    route: str
    language: str = "en"
    late: bool = False
    """Written after the grammar was last changed, and before any model of it was tried."""


class Reader(NamedTuple):
    """A model as the assistant uses it."""

    model: RWKV7
    tokenizer: Tokenizer

    @classmethod
    def load(cls, folder: Path, device: str) -> Reader:
        torch.set_num_threads(1)
        return cls(RWKV7.load(folder, device, torch.bfloat16 if device == "cuda" else torch.float32), Tokenizer.load(folder))

    def written(self, system: str, user: str) -> str:
        """What it writes, greedily."""
        after = read(self.model, self.tokenizer.encode(prompt(system, user)), None, lambda: False)
        return "".join(Generation(self.model, self.tokenizer, Sampler(), *after, limit=_LONGEST)).strip()


class Routing(NamedTuple):
    """A request as the model saw it, what it needs, and what the model said."""

    request: str
    wanted: str
    said: str
    language: str


def handwritten() -> list[Asked]:
    """The requests that people typed. None of them was among 60,000 that the generator made."""
    return [msgspec.json.decode(line, type=Asked) for line in HANDWRITTEN.read_bytes().splitlines()]


def evaluate(folder: Path, routings: int, texts: int, device: str = "cpu", seed: int = 99) -> dict[str, object]:
    """Shares, each of so many; with the counts, and the hand-written requests that were routed wrongly."""
    reader, random = Reader.load(folder, device), Random(seed)
    parts: tuple[Part, ...] = ("sentences", "wordings")
    held_out = {part: [_routed(reader, *requests.example(random, part), "") for _ in range(routings)] for part in parts}
    by_hand = [_routed(reader, masked(asked.request)[0], asked.route, asked.language) for asked in handwritten()]
    _confusion(folder / CONFUSION, [*held_out["sentences"], *held_out["wordings"], *by_hand])
    languages = sorted({one.language for one in by_hand})
    return {
        **{f"routing, held-out {part}": _right(found) for part, found in held_out.items()},
        "routing, hand-written": _right(by_hand),
        "routing, hand-written, those written last": _right([one for one, asked in zip(by_hand, handwritten(), strict=True) if asked.late]),
        "routing, hand-written, tool alone": sum(_tool(one.said) == _tool(one.wanted) for one in by_hand) / len(by_hand),
        "routing, hand-written, by the rules that a machine without a model uses": sum(map(_by_rules, handwritten())) / len(by_hand),
        "routing, hand-written, by language": {name: _right([one for one in by_hand if one.language == name]) for name in languages},
        **{f"texts, {name}": shares for name, shares in _texts(reader, random, texts).items()},
        "counts": {"held-out sentences and wordings each": routings, "hand-written": len(by_hand), "texts of each kind": texts},
        "hand-written, wrong": [one._asdict() for one in by_hand if one.said != one.wanted],
    }


def _routed(reader: Reader, request: str, wanted: str, language: str) -> Routing:
    return Routing(request, wanted, reader.written(routes.SYSTEM, request), language)


def _by_rules(asked: Asked) -> bool:
    """Whether the rules find the route: what a model has to be better than."""
    return by_rules(asked.request) == called(routes.parse(asked.route), masked(asked.request)[1])


def _right(found: list[Routing]) -> float:
    return sum(one.said == one.wanted for one in found) / len(found)


def _tool(route: str) -> str:
    return " ".join(route.split()[:2])


def _confusion(file: Path, found: list[Routing]) -> None:
    """A row a tool: how often it was wanted, how often routed right to the last argument, and what was said instead."""
    with file.open("w", newline="", encoding="utf-8") as out:
        rows = csv.writer(out)
        rows.writerow(("tool", "wanted", "right", "wrong arguments", "other tools"))
        for tool in sorted({_tool(one.wanted) for one in found}):
            mine = [one for one in found if _tool(one.wanted) == tool]
            exact = sum(one.said == one.wanted for one in mine)
            others = Counter(_tool(one.said) for one in mine if _tool(one.said) != tool)
            rows.writerow(
                (tool, len(mine), exact, len(mine) - exact - others.total(), "; ".join(f"{k} {n}" for k, n in others.most_common()))
            )


def _texts(reader: Reader, random: Random, count: int) -> dict[str, dict[str, float]]:
    """Briefs and answers, of random machines and of the recorded one, with names that no training example has."""
    kinds: dict[str, list[tuple[bool, bool]]] = {}
    while min((len(kinds.get(name, ())) for name in _KINDS), default=0) < count:
        recorded, asks = random.random() < 0.5, random.random() < 0.5
        kind = kinds.setdefault(_KINDS[2 * recorded + asks], [])
        if len(kind) < count:
            facts = decks.deck(random, decks.HELD_OUT_NAMES, recorded)
            kind.append(judged(reader, facts, decks.question(random, facts) if asks else None))
    return {
        name: {"faithful": sum(good for good, _ in found) / count, "faithful and complete": sum(both for _, both in found) / count}
        for name, found in kinds.items()
    }


_KINDS = ("briefs, random machines", "answers, random machines", "briefs, real telemetry", "answers, real telemetry")


def judged(reader: Reader, facts: tuple[Fact, ...], question: str | None) -> tuple[bool, bool]:
    """Whether what the model writes says nothing but the facts, and whether it says all that it must as well."""
    told = compact.compact(facts, question)
    text = reader.written(compact.SYSTEM, told.text)
    try:
        filled = fill(text, told.slots)
        verify(filled, facts)
    except Refused:
        return False, False
    return True, all(fact.said in filled for fact in told.needed)


def main() -> None:
    parser = argparse.ArgumentParser(description="Evaluate a trained model on what it never saw.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--routings", type=int, default=1000)
    parser.add_argument("--texts", type=int, default=300)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    found = evaluate(given.folder, given.routings, given.texts, given.device)
    text = json.dumps(found, indent=1, ensure_ascii=False)
    print(text)
    (given.folder / EVALUATION).write_text(text)


if __name__ == "__main__":
    main()
