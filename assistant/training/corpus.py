"""Examples as the model meets them in the assistant: a prompt of system and user, and the answer that is learnt."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from assistant import compact
from assistant.facts import Fact
from assistant.prompts import prompt
from assistant.routes import SYSTEM
from assistant.training import decks, requests
from assistant.training.briefs import told

_QUESTIONS = 0.4
"""Share of the texts that answer a question; the others are briefs."""
_TEXTS_OF_ONE = 4
"""Texts that are written of one machine, as gathering its facts takes the longest."""


class Sample(NamedTuple):
    """A prompt, and the text that should follow it."""

    prompt: str
    answer: str


def routing(random: Random, held_out: bool = False) -> Sample:
    """A request, and role, tool and arguments."""
    found = requests.example(random, "sentences" if held_out else "learnt")
    return Sample(prompt(SYSTEM, found.request), " " + found.route)


def machine(random: Random, held_out: bool = False) -> tuple[Fact, ...]:
    """Facts of a random machine; held out are names and numbers."""
    return decks.deck(random, decks.HELD_OUT_NAMES if held_out else decks.NAMES)


def writing(random: Random, facts: tuple[Fact, ...], held_out: bool = False) -> tuple[Sample, str | None]:
    """A brief of facts, or the answer to a question (which is returned, too); held out are ways to say it."""
    question = decks.question(random, facts) if random.random() < _QUESTIONS else None
    known = compact.compact(facts, question)
    return Sample(prompt(compact.SYSTEM, known.text), " " + told(random, known, held_out)), question


def stream(seed: int, texts: float, held_out: bool = False) -> Iterator[Sample]:
    """Samples without end: texts in this share, the others requests."""
    random = Random(seed)
    while True:
        if random.random() < texts:
            facts = machine(random, held_out)
            for _ in range(_TEXTS_OF_ONE):
                yield writing(random, facts, held_out)[0]
        else:
            for _ in range(_TEXTS_OF_ONE):
                yield routing(random, held_out)
