"""Compute what the facts imply: shares of the memory, moments and lengths of time.

A sentence may say `88 % of the memory`, `idle since 02:01` or `it failed five minutes ago`, and
the facts give only the parts. What is computed here is bound and checked as any other fact.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpudeck.assistant.facts import Fact
from gpudeck.assistant.facts.phrases import clock
from gpudeck.assistant.writing.checker.lengths import in_base_unit

_SHARES = (
    ("mem_share", "mem_used", "mem_total"),
    ("free_share", "mem_free", "mem_total"),
    ("power_share", "power", "power_limit"),
)
_PASSED = (
    ("ended", "ago"), ("submitted", "ago"), ("started", "ago"), ("raised", "active"),
    ("cleared", "ago"),
)  # fmt: skip
"""The fields that are moments, and the field of the time that has passed since."""
_LASTING = (
    ("use", "idle_since", -1), ("running", "began", -1), ("waiting", "queued_at", -1),
    ("left", "expected", 1),
)  # fmt: skip
"""The fields that are lengths of time, with the moment at their other end and its direction."""


def derived(facts: Iterable[Fact]) -> Iterator[Fact]:
    """Yield the facts that follow from others of the same device, job or alert."""
    by_subject: dict[str, dict[str, Fact]] = {}
    doubled = set[str]()
    for fact in facts:
        subject, _, field = fact.name.partition(".")
        doubled |= {subject} if field in by_subject.setdefault(subject, {}) else set()
        by_subject[subject][field] = fact
    for subject, of in by_subject.items():
        if subject not in doubled:  # the sources agree
            yield from _shares(of)
            yield from _moments(of)


def _shares(of: dict[str, Fact]) -> Iterator[Fact]:
    if (done := _number(of.get("progress"))) is not None:
        yield _like(of["progress"], "left_share", 100 - done, "%", f"{100 - done:.0f} %")
    for name, part, whole in _SHARES:
        top, bottom = _number(of.get(part)), _number(of.get(whole))
        if top is not None and bottom:
            yield _like(of[part], name, 100 * top / bottom, "%", f"{100 * top / bottom:.0f} %")


def _moments(of: dict[str, Fact]) -> Iterator[Fact]:
    for name, passed in _PASSED:
        if (at := _number(of.get(name))) is not None:
            yield _like(of[name], name, at, "s", clock(at)[:5])
            if passed == "ago" or of["cleared"].value == "lasts":
                yield _length(of[name], passed, of[name].time - at)
    first, last = _number(of.get("submitted")), _number(of.get("ended"))
    if first is not None and last is not None:
        yield _length(of["ended"], "whole", last - first)
    begin, end = _number(of.get("raised")), _number(of.get("cleared"))
    if begin is not None and end is not None:
        yield _length(of["raised"], "lasted", end - begin)
    for name, other, sign in _LASTING:
        fact = of.get(name)
        length = in_base_unit(fact.said.removeprefix("idle for ")) if fact is not None else None
        if fact is not None and length is not None:
            at = fact.time + sign * length[0]
            yield _like(fact, other, at, "s", f"at {clock(at)}")
            yield _like(fact, other, at, "s", clock(at)[:5])


def _length(fact: Fact, name: str, seconds: float) -> Fact:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = ((hours, "h"), (minutes, "min"), (rest, "s"))
    said = " ".join(f"{count} {unit}" for count, unit in parts if count) or "0 s"
    return _like(fact, name, seconds, "s", said)


def _like(fact: Fact, name: str, value: float, unit: str, said: str) -> Fact:
    of = f"{fact.subject}.{name}"
    return Fact(of, value, unit, said, fact.source, fact.time, f"{of}: {said}")


def _number(fact: Fact | None) -> float | None:
    return float(fact.value) if fact is not None and isinstance(fact.value, int | float) else None
