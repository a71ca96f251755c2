"""What a person might write of a fact table, with slots instead of values: briefs and answers, in the ways of grammar/sayings.txt.

A text follows the lines of `assistant.writing.compact` one by one, so that nothing is left out and nothing added.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from random import Random

from assistant.training.phrasings import chosen
from assistant.writing.compact import Compact

_FILE = Path(__file__).parent / "grammar" / "sayings.txt"
_SLOT = re.compile(r"\{(!?)([\w.~]+)\}")
_SPACE = re.compile(r" +(?=[.,;])")
_TITLES = {
    "temp": ("temp", "temperature"),
    "power": ("power", "power"),
    "memory": ("mem_used", "memory in use"),
    "util": ("util", "utilisation"),
    "tflops": ("tflops", "compute rate"),
}
"""By topic: the field, and how it is called in a sentence."""
_WITH = {"mem_used": "mem_free"}
"""What a sentence about a field must tell, too, where it is asked for."""
_DECK = ("deck.devices", "deck.paused", "deck.notice0", "jobs.ran")


def told(random: Random, facts: Compact) -> str:
    """A text that mentions all that it must."""
    (kind, *about), *lines = (line.split() for line in facts.text.split("\n"))
    teller = _Teller(random, facts.required)
    said = [teller.line(kind, about, *line) for line in lines]
    jobs = any(line[0] == "j1" for line in lines)
    if "unknown" in about:
        said.append(teller.say(f"unknown {kind}", "", {}))
    elif kind in ("jobs", "brief") and not jobs:
        said.append(teller.say("no job" if kind == "brief" else "none of these", "", {}))
    return " ".join(filter(None, said))


class _Teller:
    def __init__(self, random: Random, required: Sequence[str]) -> None:
        self._random, self._required = random, set(required)

    def line(self, kind: str, about: list[str], subject: str, *words: str) -> str:
        """What is said of one line of the facts."""
        split = words.index("no") if "no" in words else len(words)
        first = 1 if re.fullmatch(r"j\d+", subject) else 0  # after the state of a job
        facts = dict.fromkeys(words[first:split], True) | dict.fromkeys(words[split + 1 :], False)
        if subject == "more":
            return self.say("more", "", {})
        if re.fullmatch(r"j\d+", subject):
            return self.say(
                "verdict" if facts.get("verdict") else words[0], subject, facts | {"state": True}
            )
        if re.fullmatch(r"d\d+", subject):
            return (
                self.say("device", subject, facts)
                if kind == "brief"
                else " ".join(self._topics(about, subject, facts))
            )
        if subject == "span":
            return self.say("span", subject, facts)
        return " ".join(
            self.say(name, subject, facts)
            for name in _DECK
            if name.partition(".")[2] in facts and name.startswith(subject)
        )

    def _topics(self, about: list[str], device: str, facts: dict[str, bool]) -> list[str]:
        """Of each topic that was asked for, a sentence."""
        sections = (
            f"ask {topic}" if f"ask {topic}" in _sayings() else "ask metric" for topic in about
        )
        return [
            self.say(section, device, facts, *_TITLES.get(topic, ()))
            for section, topic in zip(sections, about, strict=True)
        ]

    def say(
        self, section: str, subject: str, facts: dict[str, bool], field: str = "", title: str = ""
    ) -> str:
        """One of the ways whose facts there are, and which mention what must be."""
        ways = [way.replace("FIELD", field).replace("TITLE", title) for way in _sayings()[section]]
        needed = {
            name.partition(".")[2] for name in self._required if name.startswith(f"{subject}.")
        }
        if field:
            needed = {
                name
                for name in needed
                if name.partition(".")[0].partition("~")[0] in (field, _WITH.get(field))
            }
        elif section.startswith(("ask", "no data")):
            needed &= {section.partition(" ")[2]}
        able = [way for way in ways if _can(way, facts, needed)]
        if not able and section != "no data":
            return self.say("no data", subject, facts)
        way = _SPACE.sub("", chosen(self._random, self._random.choice(able)))
        return "" if way == "-" else _SLOT.sub(lambda slot: f"{{{subject}.{slot[2]}}}", way)


def _can(way: str, facts: dict[str, bool], needed: set[str]) -> bool:
    slots = {name: not absent for absent, name in _SLOT.findall(way)}
    return needed <= set(slots) and all(facts.get(name) is there for name, there in slots.items())


@cache
def _sayings() -> dict[str, list[str]]:
    sections: dict[str, list[str]] = {}
    for line in _FILE.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            at = sections[line.strip("[]")] = []
        elif line and not line.startswith("#"):
            at.append(line)
    return sections
