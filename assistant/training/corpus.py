"""Examples as the model meets them in the assistant: a prompt of system and user, and the answer that is learnt."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from assistant.engine.prompts import prompt
from assistant.facts import Fact
from assistant.intents.normalize import plain
from assistant.intents.table import SYSTEM
from assistant.training import requests
from assistant.training.briefs import told
from assistant.training.phrasings import Part
from assistant.workloads import random_machines
from assistant.writing import compact

_QUESTIONS = 0.4
"""Share of the texts that answer a question; the others are briefs."""
_GAPS = 0.4
"""Share of the machines some of whose facts are missing: far more than there are, as what models invent is what is missing."""
_TEXTS_OF_ONE = 8
"""Texts that are written of one machine at most, as gathering its facts takes the longest: one for each of its devices and jobs. What
fails is above all a long text, where a line has other facts than the one before it."""
_REQUESTS = 4
"""As many as the texts of a machine are on the average, so that their share is what it should be."""


class Sample(NamedTuple):
    """A prompt, and the text that should follow it."""

    prompt: str
    answer: str


def routing(random: Random, part: Part = "learnt") -> Sample:
    """A request, and role, tool and arguments."""
    found = requests.example(random, part)
    return Sample(prompt(SYSTEM, plain(found.request)), " " + found.route)


def writing(random: Random, facts: tuple[Fact, ...]) -> tuple[Sample, str | None]:
    """A brief of facts, or the answer to a question (which is returned, too)."""
    question = (
        random_machines.random_question(random, facts) if random.random() < _QUESTIONS else None
    )
    known = compact.compact(facts, question)
    return Sample(prompt(compact.SYSTEM, known.text), " " + told(random, known)), question


def held_out(seed: int) -> Iterator[Sample]:
    """Requests without end that training has not. Texts are judged by what they say: none is the only right one."""
    random = Random(seed)
    while True:
        yield routing(random, "combinations")
        yield routing(random, "templates")


def stream(seed: int, texts: float) -> Iterator[Sample]:
    """Samples without end: texts in this share, the others requests."""
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
