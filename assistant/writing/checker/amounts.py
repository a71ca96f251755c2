"""Check `all`, `no`, `only` and numbers of devices, jobs and alerts."""

from __future__ import annotations

import re

from gpudeck.assistant.writing.checker import lexicon
from gpudeck.assistant.writing.checker.clauses import Clause, Refused, owners
from gpudeck.assistant.writing.checker.known import Known
from gpudeck.assistant.writing.checker.references import everyone
from gpudeck.assistant.writing.checker.states import holds
from gpudeck.assistant.writing.checker.tokens import Token

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
    if not found:
        return False
    kind = KINDS.get(claim, "job")
    amount = clause.tokens[found[-1]]
    domain, members = everyone(of, kind), having(of, kind, claim)
    named = owners(clause, place).get(kind, frozenset()) & {
        s for t in clause.tokens for s in t.subjects
    }
    clause.used |= set(found)
    refused = f"it says '{amount.text} … {clause.tokens[place].text}', which no fact says"
    undecided = [s for s in domain if holds(of, s, claim) is None]
    text = amount.text
    if text == "only" and named:
        rest = frozenset(domain) - frozenset(members)
        require(not undecided and (rest if negated else frozenset(members)) == named, refused)
    elif text in ("all", "every", "each", "both"):
        require(text == "all" and negated, refused)  # others are subjects, see `references`
        require(bool(members) and len(members) < len(domain) and not undecided, refused)
    elif text in ("no", "none", "nothing"):
        require(not members and not undecided and not negated, refused)
        require(kind != "alert" or bool(domain), refused)
    elif text == "only":
        return False
    else:
        if len(found) > 1 and clause.tokens[found[-2] + 1].text == "of":
            totals = {len(domain), *(fact.value for fact in of.of("jobs", "ran"))}
            require(amount.number in totals, refused)
            amount = clause.tokens[found[-2]]
        count = amount.number
        counted = {fact.value for fact in of.of("jobs", claim)} if kind == "job" else set()
        if negated:
            require(count == len(domain) - len(members) and not undecided, refused)
        else:
            require(count in counted or (claim not in _COUNTED and count == len(members)), refused)
    return True


def is_count(clause: Clause, place: int) -> bool:
    """Return True if a number counts devices, jobs or alerts."""
    token = clause.tokens[place]
    if token.number is None:
        return False
    rest = [t.text for t in clause.tokens[place + 1 : place + 3]]
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
