"""Write texts about a table of facts, with slots instead of values, as in grammar/sayings.txt.

A text follows the lines of `assistant.writing.compact` one by one, so that nothing is left out and
nothing added.
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
"""By topic: the field, and its name in a sentence."""
_WITH = {"mem_used": "mem_free"}
"""The field that a sentence about another must also mention, if it is requested."""
_DECK = ("deck.devices", "deck.paused", "deck.notice0", "jobs.ran")


def write_text(random: Random, facts: Compact) -> str:
    """Return a text that mentions everything required."""
    (kind, *about), *lines = (line.split() for line in facts.text.split("\n"))
    writer = _Writer(random, facts.required)
    said = [writer.line(kind, about, *line) for line in lines]
    jobs = any(line[0] == "j1" for line in lines)
    if "unknown" in about:
        said.append(writer.phrase(f"unknown {kind}", "", {}))
    elif kind in ("jobs", "brief") and not jobs:
        said.append(writer.phrase("no job" if kind == "brief" else "none of these", "", {}))
    return " ".join(filter(None, said))


class _Writer:
    def __init__(self, random: Random, required: Sequence[str]) -> None:
        self._random, self._required = random, set(required)

    def line(self, kind: str, about: list[str], subject: str, *words: str) -> str:
        """Return the sentence for one line of the facts."""
        split = words.index("no") if "no" in words else len(words)
        first = 1 if re.fullmatch(r"j\d+", subject) else 0  # after the state of a job
        facts = dict.fromkeys(words[first:split], True) | dict.fromkeys(words[split + 1 :], False)
        if subject == "more":
            return self.phrase("more", "", {})
        if re.fullmatch(r"j\d+", subject):
            return self.phrase(
                "verdict" if facts.get("verdict") else words[0], subject, facts | {"state": True}
            )
        if re.fullmatch(r"d\d+", subject):
            return (
                self.phrase("device", subject, facts)
                if kind == "brief"
                else " ".join(self._topics(about, subject, facts))
            )
        if subject == "span":
            return self.phrase("span", subject, facts)
        return " ".join(
            self.phrase(name, subject, facts)
            for name in _DECK
            if name.partition(".")[2] in facts and name.startswith(subject)
        )

    def _topics(self, about: list[str], device: str, facts: dict[str, bool]) -> list[str]:
        """Return a sentence for each requested topic."""
        sections = (
            f"ask {topic}" if f"ask {topic}" in _sayings() else "ask metric" for topic in about
        )
        return [
            self.phrase(section, device, facts, *_TITLES.get(topic, ()))
            for section, topic in zip(sections, about, strict=True)
        ]

    def phrase(
        self, section: str, subject: str, facts: dict[str, bool], field: str = "", title: str = ""
    ) -> str:
        """Return one of the phrasings whose facts exist and which mention what is required."""
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
            return self.phrase("no data", subject, facts)
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
