"""Compose examples: a request, what was said before it, and what it means."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate
from random import Random
from typing import NamedTuple

from gpudeck.assistant.training import quantities
from gpudeck.assistant.training.phrases import (
    LANGUAGES,
    POINTER,
    SLOT,
    Phrases,
    Rule,
    numbered,
    phrases,
)
from gpudeck.assistant.training.symbols import AND, Part, canonical, joined, parts

_FOLLOWS, _TWO, _ORDERED = 0.2, 0.07, 0.03
"""The shares of follow-ups, of two questions and of two orders at once."""
_FREE = frozenset({"overview", "help", "settings", "manual", "conversion", "capacity", "queue",
                   "models", "debris", "report", "plan", "no:negated", "no:condition", "no:cannot",
                   "do:pause", "do:resume", "do:undo", "do:submit", "do:set"})  # fmt: skip
"""What means the same whatever was asked before."""
_ALONE = ("no:", "do:", "plan", "help", "conversion", "manual")
"""What is not asked together with another question."""
_LASTING = ("devices", "jobs", "processes", "alerts", "overview", "capacity")
_ORDERS = tuple(f"do:{verb}" for verb in ("cancel", "hold", "release", "retry"))
_SPELT = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue"})
_AGGREGATES = ("sum", "mean", "max", "min")
_MEASURES = ("temp", "power", "util", "mem_used", "mem_free", "clock_sm", "tflops")
_SIZES = ("GB", "MiB", "GiB", "MB", "TB")
_UNITS = {"temp": ("°F", "K"), "power": ("kW",), "energy": ("kWh", "Wh"), "mem_used": _SIZES,
          "mem_free": _SIZES, "mem_total": _SIZES}  # fmt: skip


class Example(NamedTuple):
    """Hold a request with slots, the meaning of the one before, and its own."""

    before: str
    request: str
    meaning: str


class Composer:
    """Compose examples in all languages, always the same ones for a seed.

    Args:
        seed: The seed.
        fillers: Words that mean nothing here, which are put between others.
        languages: English comes twice as often as each of the others.
    """

    def __init__(
        self, seed: int, fillers: Sequence[str] = (), languages: Sequence[str] = LANGUAGES
    ) -> None:
        self.random, self._fillers = Random(seed), fillers
        self.languages = [phrases(name) for name in languages]
        self._weights = [2.0, *[1.0] * (len(self.languages) - 1)]
        self._rules = {id(one): _weights(one.rules) for one in self.languages}

    def example(self) -> Example:
        """Return the next example."""
        while True:
            language = self.random.choices(self.languages, self._weights)[0]
            way = self.random.random()
            if way < _FOLLOWS:
                found = self._follow_up(language)
            elif way < _FOLLOWS + _TWO:
                found = self._two(language)
            elif way < _FOLLOWS + _TWO + _ORDERED:
                found = self._two_orders(language)
            else:
                found = self._one(language)
            if found is not None:
                return found

    def _rule(self, language: Phrases) -> Rule:
        weights = self._rules[id(language)]
        return self.random.choices(language.rules, cum_weights=weights)[0]

    def _one(self, language: Phrases) -> Example | None:
        random, rule = self.random, self._rule(language)
        meaning = rule.meaning
        text = quantities.typed(random, language.say(random, rule), meaning)
        text, meaning = self._in_units(language, text, meaning)
        before = ""
        if "prev" in meaning.split():
            before = self._context(language, meaning)
        elif meaning != "no:unclear" and random.random() < 0.35:
            free = "@" in meaning or meaning.split()[0] in _FREE
            before = self._before(language, bare=not free)
        made = numbered(self._around(language, text, meaning), meaning)
        return Example(before, *made) if made else None

    def _in_units(self, language: Phrases, text: str, meaning: str) -> tuple[str, str]:
        """Return some questions about devices with one or two units that are asked for."""
        random, kinds = self.random, meaning.partition(f" {AND} ")[0].split()
        measure = kinds[1].removeprefix("m=") if len(kinds) > 1 else ""
        if kinds[0] != "devices" or measure not in _UNITS or random.random() > 0.05:
            return text, meaning
        if {"cost", AND} & {*meaning.split()} or "ahead" in meaning:
            return text, meaning
        wanted = random.sample(_UNITS[measure], min(len(_UNITS[measure]), random.choice((1, 1, 2))))
        named = [language.one(random, f"unit_{unit}") for unit in wanted]
        joined_by = f" {language.one(random, 'unit_and')} "
        said = f"{text} {language.one(random, 'unit_in')} {joined_by.join(named)}"
        return said, canonical(f"{meaning} to={wanted[0]}")

    def _around(self, language: Phrases, text: str, meaning: str) -> str:
        """Return a request with what people say around it, and with words nobody expected."""
        random = self.random
        if random.random() < 0.05 and not meaning.startswith(_ALONE):
            text = f"{language.one(random, 'aside')} {text}"
        elif random.random() < 0.1 and not meaning.startswith(_ALONE):
            text = f"{language.one(random, 'ask2')} {text}"
        if random.random() < 0.3:
            text = f"{language.one(random, 'hey')} {text}"
        if random.random() < 0.06:
            text = f"{language.one(random, 'story')} {text}"
        if random.random() < 0.25:
            text = f"{text} {language.one(random, 'bye')}"
        found = self._short(language, text).split()
        if self._fillers and random.random() < 0.2:
            for _ in range(random.choice((1, 1, 2, 3))):
                found.insert(random.randrange(len(found) + 1), random.choice(self._fillers))
        if random.random() < 0.1 and len(found) > 4 and not meaning.startswith("no:"):
            place = random.randrange(len(found))
            if len(found[place]) < 4:
                del found[place]
        return " ".join(found)

    def _short(self, language: Phrases, text: str) -> str:
        """Return a request with some words as people shorten them, or without umlauts."""
        random = self.random
        if random.random() < 0.15:
            text = text.translate(_SPELT)
        if random.random() < 0.1:
            text = text.replace("'", random.choice((" ", "")))
        if "short" not in language.names or random.random() > 0.2:
            return text
        text = f" {text} "
        for change in language.names["short"]:
            word, _, other = change.partition(">")
            if random.random() < 0.5:
                text = text.replace(f" {word} ", f" {other} ")
        return text.strip()

    # ---- what came before

    def _before(self, language: Phrases, bare: bool) -> str:
        """Return a random earlier request; a bare one named nothing that `it` could be."""
        while True:
            meaning = self._rule(language).meaning
            if meaning.startswith(("no:", "plan")) or "prev" in meaning:
                continue
            said = described(meaning)
            if not bare:
                return self._answered(said)
            if not said.startswith(("jobs", "do:")) and "dev:" not in said:
                return said

    def _context(self, language: Phrases, meaning: str) -> str:
        """Return an earlier request that named what the meaning is about."""
        random = self.random
        many = any(part in meaning for part in (" o", "last:", "first:"))
        while True:
            earlier = self._rule(language).meaning
            subject, said = earlier.split()[0], described(earlier)
            if earlier.startswith(("no:", "plan")) or "prev" in earlier:
                continue
            if "group: prev" in meaning:
                if "group:" in said:
                    return self._answered(said)
            elif "dev: prev" in meaning:
                if subject == meaning.split(maxsplit=1)[0] or subject in ("processes", "alerts"):
                    return f"{said} ; {random.choice(('one gpu', 'gpus'))}"
            elif subject == "jobs" or _has_targets(said):
                several = many or random.random() < (0.7 if _describes(said) else 0.2)
                return f"{said} ; {'jobs' if several else 'one job'}"

    def _answered(self, said: str) -> str:
        """Return an earlier request with what its answer named."""
        subject, random = said.split(maxsplit=1)[0], self.random
        if subject == "jobs" or _has_targets(said):
            if "job:" in said:
                return f"{said} ; {'one job' if random.random() < 0.8 else 'jobs'}"
            return f"{said} ; jobs" if "a=count" not in said or random.random() < 0.7 else said
        if subject in ("devices", "processes", "alerts") and "dev:" in said:
            return f"{said} ; {random.choice(('one gpu', 'gpus'))}"
        return f"{said} ; one gpu" if subject == "devices" and "who" in said.split() else said

    # ---- follow-ups and two questions at once

    def _follow_up(self, language: Phrases) -> Example | None:
        """Return a request that changes one part of the last one."""
        random = self.random
        meaning = self._rule(language).meaning
        subject = meaning.split()[0]
        if subject not in (*_LASTING, *_ORDERS):
            return None
        if any(part in meaning for part in ("prev", AND, "ahead")):
            return None
        before = self._answered(described(meaning))
        change = _order_change if subject in _ORDERS else _query_change
        text, new = change(random, language, subject, parts(meaning), before)
        if random.random() < 0.15:
            text = f"{language.one(random, 'hey')} {text}"
        if random.random() < 0.1:
            text = f"{text} {language.one(random, 'bye')}"
        made = numbered(text, new)
        return Example(before, *made) if made else None

    def _two(self, language: Phrases) -> Example | None:
        """Return two questions at once; the second may be about the job of the first."""
        random = self.random
        first, second = self._rule(language), self._rule(language)
        if random.random() < 0.35:
            first = self._among(language, lambda m: m.startswith("jobs") and m.endswith("@J1"))
            second = self._among(language, lambda m: m.startswith("jobs") and m.endswith("prev"))
        one, two = first.meaning, second.meaning
        if AND in one or AND in two:
            return None
        if one.startswith(_ALONE) or two.startswith(_ALONE) or "prev" in one or one == two:
            return None
        texts = [
            quantities.typed(random, language.say(random, r), r.meaning) for r in (first, second)
        ]
        if "prev" in two:
            if "job: @J1" not in one or "job: prev" not in two:
                return None
            two = two.replace("prev", "@J1")
        else:
            texts[1] = SLOT.sub(lambda slot: f"<{slot[1]}:{slot[2]}b>", texts[1])
            two = POINTER.sub(lambda name: f"@{name[1]}b", two)
        text = f" {language.one(random, 'and')} ".join(texts)
        if random.random() < 0.3:
            text = f"{language.one(random, 'hey')} {text}"
        made = numbered(text, f"{one} {AND} {two}")
        return Example("", *made) if made else None

    def _two_orders(self, language: Phrases) -> Example | None:
        """Return two orders at once; the second may be for the job of the first."""
        random = self.random
        first = self._among(language, _is_plain_order)
        follows, goes_on = random.random() < 0.6, random.random() < 0.2
        if goes_on:  # both are for the job that was spoken of
            first = self._among(language, _is_order_for_it)
        second = self._among(language, _is_order_for_it if follows or goes_on else _is_plain_order)
        one, two = first.meaning, second.meaning
        if one == two and (follows or goes_on):
            return None
        before = self._context(language, one) if goes_on else ""
        texts = [
            quantities.typed(random, language.say(random, r), r.meaning) for r in (first, second)
        ]
        if follows and not goes_on:
            if "job: @J1" not in one:
                return None
            two = two.replace("job: prev", "job: @J1")
        texts[1] = SLOT.sub(lambda slot: f"<{slot[1]}:{slot[2]}b>", texts[1])
        two = POINTER.sub(lambda name: f"@{name[1]}b" if name[1] != "J1" or not follows else
                          name[0], two)  # fmt: skip
        text = f" {language.one(random, 'and')} ".join(texts)
        for around in ("hey", "please"):
            text = f"{language.one(random, around)} {text}" if random.random() < 0.15 else text
        made = numbered(self._short(language, text), f"{one} {AND} {two}")
        return Example(before, *made) if made else None

    def _among(self, language: Phrases, fits: object) -> Rule:
        rules = [rule for rule in language.rules if fits(rule.meaning)]  # type: ignore[operator]
        return self.random.choice(rules)


def described(meaning: str) -> str:
    """Return a meaning without its slots, as what came before is given to the model."""
    first = canonical(meaning).partition(f" {AND} ")[0]
    kept = (word for word in first.split() if word[0] != "@" and word != "prev")
    return " ".join(kept)


def _is_plain_order(meaning: str) -> bool:
    """Return whether a meaning is an order that names what it is for."""
    plain = meaning.startswith("do:") and AND not in meaning and "prev" not in meaning
    return plain and not meaning.startswith(("do:submit", "do:set", "do:undo", "do:note"))


def _is_order_for_it(meaning: str) -> bool:
    """Return whether a meaning is an order for the job that was named before."""
    return meaning.startswith("do:") and "job: prev" in meaning and not any(
        part in meaning for part in (" o", "last:", "first:", "exc:", "mem:")
    )  # fmt: skip


def _has_targets(said: str) -> bool:
    """Return whether an order was for jobs."""
    return said.startswith("do:") and any(kind in said for kind in ("job:", "s=", "group:"))


def _describes(said: str) -> bool:
    return "group:" in said or "s=" in said


def _order_change(
    random: Random, language: Phrases, subject: str, found: list[Part], before: str
) -> tuple[str, str]:
    """Return a correction of an order, and what it means."""
    if random.random() < 0.5:
        return language.one(random, "f_keep"), f"{subject} job: prev exc: @J1"
    other = random.choice([order for order in _ORDERS if order != subject])
    text = language.one(random, "f_instead", V=other.removeprefix("do:"))
    return text, f"{other} job: prev"


def _query_change(
    random: Random, language: Phrases, subject: str, found: list[Part], before: str
) -> tuple[str, str]:
    """Return a question that changes one part of the last one, and what it means."""
    kinds = dict(found)
    ways = {"devices": ["dev", "time", "since"], "processes": ["dev"], "jobs": ["job"],
            "alerts": ["dev", "time", "since"], "overview": ["time"],
            "capacity": ["amount"]}[subject]  # fmt: skip
    if subject == "devices" and "m" in kinds:
        ways += ["agg", "mea", "unit"] if kinds["m"] in _UNITS else ["agg", "mea"]
    way = random.choice(ways)
    text = _change_text(random, language, way, kinds)
    if way == "amount":
        return text[0], "capacity amount: @D1"
    kept = [(kind, "prev" if value.startswith("@") else value) for kind, value in found
            if kind not in _DROPPED[way] | {"dev:", "vs", "limit:"}]  # fmt: skip
    if way == "dev" and "time:" not in kinds:
        kept = [(kind, value) for kind, value in kept if kind != "a"]
    if way == "job":
        kept = [(kind, value) for kind, value in kept if kind == "m"]
    if way == "mea":
        name = text[1]
        kept = [(kind, name if kind == "m" else value) for kind, value in kept]
    pointed = "gpu" in before.rpartition(";")[2] and way != "dev" and subject != "overview"
    new = [*kept, *_new_parts(way, text[1]), *([("dev:", "prev")] if pointed else [])]
    return text[0], joined(subject, new)


_DROPPED = {
    "dev": {"s", "above:", "below:", "who"}, "job": set[str](), "time": {"time:", "since", "s"},
    "since": {"time:", "since", "s"}, "agg": {"a", "who", "when", "sort", "above:", "below:"},
    "mea": {"above:", "below:"}, "unit": set[str](),
}  # fmt: skip
"""The parts that do not outlast a change."""


_TEXT_OF = {"amount": "dev"}
"""A change that is asked for in the words of another one."""


def _change_text(
    random: Random, language: Phrases, way: str, kinds: dict[str, str]
) -> tuple[str, str]:
    """Return the words of a change, and the new value if there is one."""
    if way == "agg":
        name = random.choice(_AGGREGATES)
        return language.one(random, f"f_{name}"), name
    if way == "mea":
        name = random.choice(_MEASURES)
        return language.one(random, "f_mea_{M}", M=name), name
    if way == "unit":
        name = random.choice(_UNITS[kinds["m"]])
        words = [language.one(random, part) for part in ("unit_in", f"unit_{name}")]
        return " ".join(words), name
    text = language.one(random, f"f_{_TEXT_OF.get(way, way)}")
    if way == "amount" and random.random() < 0.6:
        text = text.replace("<n:D1>", "<q:D1> (size)")
    return text, ""


def _new_parts(way: str, value: str) -> list[Part]:
    return {
        "dev": [("dev:", "@D1")], "job": [("job:", "@J1")], "time": [("time:", "@T1")],
        "since": [("since", "")], "agg": [("a", value)], "mea": [], "unit": [("to", value)],
    }[way]  # fmt: skip


def _weights(rules: Sequence[Rule]) -> list[float]:
    """Return cumulative weights of rules.

    A meaning with many requests comes more often, one of many values of a parameter less often.
    """
    shapes = [re.sub(r"=\S+", "", rule.meaning) for rule in rules]
    return list(
        accumulate(
            rule.ends[-1] ** 0.5 / shapes.count(shape) ** 0.6
            for rule, shape in zip(rules, shapes, strict=True)
        )
    )
