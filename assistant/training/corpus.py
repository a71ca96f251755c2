"""Examples as the model meets them in the assistant: a prompt of system and user, and the answer that is learnt."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from assistant.facts import Fact
from assistant.generate import prompt
from assistant.training import decks, requests
from assistant.training.briefs import brief
from assistant.writer import SYSTEM, request


class Sample(NamedTuple):
    """A prompt, and the text that should follow it."""

    prompt: str
    answer: str


def routing(random: Random, held_out: bool = False) -> Sample:
    """A request, and role, tool and arguments."""
    found = requests.example(random, held_out)
    return Sample(prompt(requests.SYSTEM, found.request), " " + found.route)


def writing(random: Random, held_out: bool = False) -> tuple[Sample, tuple[Fact, ...]]:
    """Facts, and a brief of them with slots; held out are ways to say it, names and numbers."""
    facts = decks.deck(random, decks.HELD_OUT_NAMES if held_out else decks.NAMES)
    return Sample(prompt(SYSTEM, request(facts, None)), " " + brief(random, facts, held_out)), facts


def stream(seed: int, briefs: float, held_out: bool = False) -> Iterator[Sample]:
    """Samples without end: texts in this share, the others requests."""
    random = Random(seed)
    while True:
        yield writing(random, held_out)[0] if random.random() < briefs else routing(random, held_out)
