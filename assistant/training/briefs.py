"""Fact tables and the briefs that a person might write of them, with slots instead of values. Ways to say a thing are partly held out."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from assistant.facts import Fact, named
from assistant.writer import required_facts

_SAYINGS: dict[str, tuple[str, ...]] = {
    "queued": (
        "{called} ({name}) is {state}: {reason}.",
        "{called} ({name}) is {state}, as {reason}.",
        "{called} is {state} for {waiting}: {reason}.",
        "{called} ({name}) stays {state} because {reason}.",
    ),
    "running": (
        "{called} ({name}) is {state} for {running}.",
        "{called} ({name}) has been {state} for {running}.",
        "{called} is {state}.",
        "{called} ({name}) keeps {state}.",
    ),
    "measured": (
        "{called} ({name}) is {state} with verdict {verdict}: {tflops} with backend {backend}.",
        "{called} ({name}) is {state}: verdict {verdict}, backend {backend}, {tflops}.",
        "{called} ({name}) is {state}, and reached {tflops} with {backend}. Its verdict is {verdict}.",
        "{called} ({name}) got to {tflops} on backend {backend}, with verdict {verdict}, and is {state}.",
    ),
    "judged": (
        "{called} ({name}) is {state} with verdict {verdict}, backend {backend}.",
        "{called} ({name}) is {state}. Its verdict is {verdict} with {backend}.",
        "{called} ended with verdict {verdict} on {backend}, and is {state}.",
    ),
    "failed": (
        "{called} ({name}) {state} after {duration}: {reason}.",
        "{called} ({name}) {state}, as {reason}.",
        "{called} ({name}) {state}: {reason}.",
        "{called} ({name}) {state} because {reason}.",
    ),
    "ended": (
        "{called} ({name}) is {state} after {duration}.",
        "{called} ({name}) is {state}.",
        "{called} ({name}) is {state}, and took {duration}.",
        "{called} took {duration} and is {state}.",
    ),
    "lost": (
        "{called} ({name}) was {state}: {reason}.",
        "{called} ({name}) is {state}, as {reason}.",
        "{called} got {state} because {reason}.",
    ),
    "device": (
        "{label} is {use}, at {temp} and {power}.",
        "{label} is {use}.",
        "{label} is {use} with {mem_used} of memory in use.",
        "{label} draws {power}, and is {use}.",
    ),
    "nothing": (
        "No job waited, ran or ended.",
        "There was no job.",
        "No jobs at all.",
    ),
}
"""By how a job stands: what may be said, with slots by the last part of a fact's name. The last way is held out."""


def brief(random: Random, facts: Sequence[Fact], held_out: bool) -> str:
    """A text that mentions all that a brief must."""
    known = named(facts)
    jobs = [fact.subject for fact in known.values() if fact.name.endswith(".state")]
    devices = [fact.subject for fact in known.values() if fact.name.endswith(".label")]
    parts = [_say(random, known, job, _standing(known, job), held_out) for job in jobs]
    parts = parts or [_say(random, known, "", "nothing", held_out)]
    return " ".join([*parts, *(_say(random, known, device, "device", held_out) for device in devices[:1])])


def _standing(known: dict[str, Fact], job: str) -> str:
    if f"{job}.verdict" in known:
        return "measured" if f"{job}.tflops" in known else "judged"
    state = str(known[f"{job}.state"].value)
    return {"queued": "queued", "running": "running", "failed": "failed", "lost": "lost"}.get(state, "ended")


def _say(random: Random, known: dict[str, Fact], subject: str, standing: str, held_out: bool) -> str:
    """One of the ways, among those whose facts there are: a fact without a value is not said of a device."""
    ways = _SAYINGS[standing][-1:] if held_out else _SAYINGS[standing][:-1]
    able = [way for way in ways if all(_there(known, f"{subject}.{slot}") for slot in _slots(way))]
    way = random.choice(able) if able else min(_SAYINGS[standing], key=len)
    for slot in _slots(way):
        way = way.replace(f"{{{slot}}}", f"{{{subject}.{slot}}}")
    return way


def _there(known: dict[str, Fact], name: str) -> bool:
    return name in known and known[name].value is not None


def _slots(way: str) -> list[str]:
    return [part.split("}")[0] for part in way.split("{")[1:]]


def complete(text: str, facts: Sequence[Fact]) -> bool:
    """Whether a text with slots mentions all facts that a brief must."""
    return all(f"{{{name}}}" in text for name in required_facts(facts))
