"""Build examples as the model meets them: a prompt of system and user, and the answer to learn."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from assistant.engine.prompts import prompt
from assistant.facts import Fact
from assistant.intents.normalize import plain
from assistant.intents.table import SYSTEM
from assistant.training import requests
from assistant.training.briefs import write_text
from assistant.training.phrasings import Part
from assistant.workloads import random_machines
from assistant.writing import compact

_QUESTIONS = 0.4
"""The share of texts that answer a question; the others are briefs."""
_GAPS = 0.4
"""The share of machines with missing facts: more than in reality, because models invent what is
missing.
"""
_TEXTS_OF_ONE = 8
"""The most texts about one machine, because gathering its facts takes longest: one for each of its
devices and jobs. Long texts, whose lines differ in their facts, are the hardest.
"""
_REQUESTS = 4
"""The average number of texts about a machine, so that the share of requests is kept."""


class Sample(NamedTuple):
    """Hold a prompt, and the text that should follow it."""

    prompt: str
    answer: str


def routing(random: Random, part: Part = "learnt") -> Sample:
    """Return a request, answered by role, tool and arguments."""
    found = requests.example(random, part)
    return Sample(prompt(SYSTEM, plain(found.request)), " " + found.route)


def writing(random: Random, facts: tuple[Fact, ...]) -> tuple[Sample, str | None]:
    """Return a brief of facts, or the answer to a question, which is returned as well."""
    question = (
        random_machines.random_question(random, facts) if random.random() < _QUESTIONS else None
    )
    known = compact.compact(facts, question)
    return Sample(prompt(compact.SYSTEM, known.text), " " + write_text(random, known)), question


def held_out(seed: int) -> Iterator[Sample]:
    """Yield requests that training does not contain, without end.

    Texts are judged by what they state, because no text is the only right one.
    """
    random = Random(seed)
    while True:
        yield routing(random, "combinations")
        yield routing(random, "templates")


def stream(seed: int, texts: float) -> Iterator[Sample]:
    """Yield samples without end: texts in this share, and requests otherwise."""
    random = Random(seed)
    while True:
        if random.random() < texts:
            facts = random_machines.random_facts(random, gaps=_GAPS)
            subjects = sum(fact.name.endswith((".label", ".state")) for fact in facts)
            for _ in range(min(max(1, subjects), _TEXTS_OF_ONE)):
                yield writing(random, facts)[0]
        else:
            for _ in range(_REQUESTS):
                yield routing(random)
