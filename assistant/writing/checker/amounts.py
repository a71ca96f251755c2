"""Check `all`, `no`, `only` and numbers of devices, jobs and alerts."""

from __future__ import annotations

import re

from gpudeck.assistant.writing.checker import lexicon
from gpudeck.assistant.writing.checker.clauses import Clause, Refused, by_kind, owners
from gpudeck.assistant.writing.checker.groups import everyone
from gpudeck.assistant.writing.checker.known import Known
from gpudeck.assistant.writing.checker.states import holds
from gpudeck.assistant.writing.checker.tokens import Token

_STILL = lexicon.words("still already now currently just not")
_COUNTED = lexicon.words("ran running starting queued done failed cancelled lost")
"""Claims of jobs whose numbers are facts; other numbers are those of the facts that fit."""
KINDS = {
    "idle": "device", "busy": "device", "held": "device",
    "raised": "alert", "cleared": "alert", "lasts": "alert",
    "paused": "queue", "empty": "queue",
}  # fmt: skip


def check_amount(clause: Clause, place: int, claim: str, negated: bool, of: Known) -> bool:
    """Check `all`, `no`, `only` or a number before a state. Return False if there is none."""
    found = [
        i
        for i, token in enumerate(clause.tokens[:place])
        if (token.kind == "word" and token.text in lexicon.TOTAL - {"neither"})
        or is_count(clause, i)
    ]
    found = [i for i in found if not _is_adverb(clause, i)]
    if not found:
        return False
    kind = KINDS.get(claim, "job")
    amount, text = clause.tokens[found[-1]], clause.tokens[found[-1]].text
    domain, members = everyone(of, kind), _members(clause, kind, claim, of)
    named = owners(clause, place).get(kind, frozenset()) & {
        s for t in clause.tokens for s in t.subjects
    }
    clause.used |= set(found)
    denied = [i for i in found[:-1] if clause.tokens[i].text in ("no", "none", "nothing")]
    require(not denied, "it denies a count, which cannot be checked")
    refused = f"it says '{text} … {clause.tokens[place].text}', which no fact says"
    undecided = any(holds(of, s, claim) is None for s in domain)
    if claim == "ran" and clause.tokens[place - 1].text == "that" and amount.number is not None:
        require(amount.number in {fact.value for fact in of.of("jobs", "ran")}, refused)
        return True
    if text == "only":
        if named:
            require(not undecided and (domain - members if negated else members) == named, refused)
        return bool(named)
    if text in ("all", "every", "each", "both"):
        require(text == "all" and negated, refused)  # others are subjects, see `references`
        require(0 < len(members) < len(domain) and not undecided, refused)
    elif text in ("no", "none", "nothing"):
        require(not members and not undecided and not negated, refused)
        require(kind != "alert" or bool(domain), refused)
    else:
        if len(found) > 1 and clause.tokens[found[-2] + 1].text == "of":
            totals = {len(domain), *(fact.value for fact in of.of("jobs", "ran"))}
            require(amount.number in totals, refused)
            amount = clause.tokens[found[-2]]
        rest = len(domain) - len(members)
        right = not undecided and amount.number == rest if negated else None
        require(_is_number(clause, amount, claim, members, of) if right is None else right, refused)
    return True


def _members(clause: Clause, kind: str, claim: str, of: Known) -> frozenset[str]:
    """Return whom a claim is true of, of jobs only those on the devices that a clause names."""
    members = having(of, kind, claim)
    if kind == "job" and (labels := _places(clause, of)):
        return frozenset(job for job in members if _is_on(of, job, labels))
    return frozenset(members)


def _places(clause: Clause, of: Known) -> list[str]:
    """Return the labels of the devices in `two jobs ran on GPU 0`."""
    devices = {s for t in clause.tokens for s in by_kind(t.subjects).get("device", ())}
    return [str(of.value(device, "label")) for device in devices] if clause.has({"on"}) else []


def _is_number(
    clause: Clause, amount: Token, claim: str, members: frozenset[str], of: Known
) -> bool:
    """Return True if so many fit; the numbers of jobs in a state are facts of their own."""
    job, count = KINDS.get(claim, "job") == "job", amount.number
    judged = claim == "failed" and clause.has({"check", "checks"})
    if judged or (job and _places(clause, of)):
        return count == len(members)
    counted = job and count in {fact.value for fact in of.of("jobs", claim)}
    return counted or (claim not in _COUNTED and count == len(members))


def _is_on(of: Known, job: str, labels: list[str]) -> bool:
    said = " ".join(fact.said for fact in of.of(job, "devices"))
    return all(re.search(rf"{re.escape(label)}\b", said) for label in labels)


def _is_adverb(clause: Clause, place: int) -> bool:
    """Return True for the `only` of `it had only run for 18 s`."""
    after = clause.tokens[place + 1]
    value = any(t.kind == "value" and t.number is None for t in clause.tokens[place:])
    counts = after.kind == "subject" or after.number is not None or after.text in lexicon.NOUNS
    return clause.tokens[place].text == "only" and value and not counts


def is_count(clause: Clause, place: int) -> bool:
    """Return True if a number counts devices, jobs or alerts."""
    token = clause.tokens[place]
    if token.number is None:
        return False
    rest = [t.text for t in clause.tokens[place + 1 : place + 4] if t.text not in _STILL][:2]
    after = clause.tokens[place + 2 : place + 3]
    if token.number == 1 and (
        (place and clause.tokens[place - 1].text == "on") or _is_pronoun(rest, after)
    ):
        return False
    others = {"got", "more", "of", "them", "other", "further"}
    verbs = lexicon.PRESENT | lexicon.PAST | set(lexicon.STATES)
    return any(r in lexicon.NOUNS for r in rest) or (bool(rest) and rest[0] in verbs | others)


def _is_pronoun(rest: list[str], after: list[Token]) -> bool:
    """Return True for `one of 270 W`."""
    return (
        rest[:1] == ["of"] and bool(after) and after[0].kind == "value" and after[0].number is None
    )


def check_existence(clause: Clause, of: Known) -> None:
    """Check `no jobs` and `two alerts` without a state: that many must there be. Raises Refused."""
    for place, token in enumerate(clause.tokens[:-1]):
        noun = lexicon.NOUNS.get(clause.tokens[place + 1].text, "")
        counts = token.number is not None or token.text == "no"
        if (
            not counts
            or place in clause.used
            or not noun
            or (noun == "alert" and token.text == "no")
        ):
            continue
        members = everyone(of, noun)
        if clause.tokens[place + 1].text.startswith("gpu"):
            members -= {"cpu"}
        if is_given(clause, place, of):
            continue
        if place and clause.tokens[place - 1].text == "on" and clause.has({"running", "run"}):
            members = frozenset(having(of, "device", "held"))
        if len(members) != (token.number or 0):
            raise Refused(f"it counts {token.text!r}, which no fact counts")
        clause.used.add(place)


def is_given(clause: Clause, place: int, of: Known) -> bool:
    """Return True for the `4` of `waits for 4 GPUs` and the `temperature` of an alert about it."""
    text = clause.tokens[place].text
    who = owners(clause, place)
    named = [(job, "reason") for job in who.get("job", ())]
    named += [(a, field) for a in who.get("alert", ()) for field in ("rule", "text")]
    said = [fact.said.lower() for subject, field in named for fact in of.of(subject, field)]
    said += ["temperature" for text_of in said if "°c" in text_of]
    number = clause.tokens[place].number
    on = [fact.said for job in who.get("job", ()) for fact in of.of(job, "devices")]
    if number is not None and on and all(text.count("GPU") == number for text in on):
        return True
    after = clause.tokens[place + 1 : place + 2]
    if number is not None:  # it is given with what it counts
        if not after or after[0].text not in lexicon.NOUNS:
            return False
        text = f"{number} {after[0].text}"
    return len(text) < 12 and any(re.search(rf"\b{re.escape(text)}\b", s) for s in said)


def having(of: Known, kind: str, claim: str) -> list[str]:
    return [s for s in everyone(of, kind) if holds(of, s, claim)]


def require(true: bool, reason: str) -> None:
    if not true:
        raise Refused(reason)
