"""Check `all`, `no`, `only` and numbers of devices, jobs and alerts."""

from __future__ import annotations

import re

from gpudeck.assistant.writing.checker import lexicon
from gpudeck.assistant.writing.checker.clauses import Clause, Refused, by_kind, owners
from gpudeck.assistant.writing.checker.groups import everyone
from gpudeck.assistant.writing.checker.known import Known
from gpudeck.assistant.writing.checker.lengths import is_within
from gpudeck.assistant.writing.checker.states import holds
from gpudeck.assistant.writing.checker.tokens import Token

_STILL = lexicon.words("still already now currently just not")
_BOUNDS = {
    "no more than": "<=", "no fewer than": ">=", "no less than": ">=", "more than": ">",
    "fewer than": "<", "less than": "<", "over": ">", "under": "<", "at most": "<=",
    "at least": ">=",
}  # fmt: skip
"""The words that bound a count, and what they say of it."""
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
    bound, bounding = _bound_before(clause, found[-1]) if found else ("=", set[int]())
    found = [i for i in found if not _is_adverb(clause, i) and i not in bounding]
    if not found:
        return False
    clause.used |= bounding | set(found)
    kind = KINDS.get(claim, "job")
    text = clause.tokens[found[-1]].text
    domain, members = everyone(of, kind), _members(clause, kind, claim, of)
    denied = [i for i in found[:-1] if clause.tokens[i].text in ("no", "none", "nothing")]
    require(not denied, "it denies a count, which cannot be checked")
    refused = f"it says '{text} … {clause.tokens[place].text}', which no fact says"
    undecided = any(holds(of, s, claim) is None for s in domain)
    if text == "only":
        spoken = frozenset[str]().union(*(t.subjects for t in clause.tokens))
        if named := owners(clause, place).get(kind, frozenset()) & spoken:
            require(not undecided and (domain - members if negated else members) == named, refused)
        return bool(named)
    if text in ("all", "every", "each", "both"):
        require(text == "all" and negated, refused)  # others are subjects, see `references`
        require(0 < len(members) < len(domain) and not undecided, refused)
    elif text == "majority":
        require(not negated and 2 * len(members) > len(domain), refused)
    elif text in ("no", "none", "nothing"):
        require(not members and not undecided and not negated, refused)
        require(kind != "alert" or bool(domain), refused)
    elif claim == "ran" and clause.tokens[place - 1].text == "that":
        require(clause.tokens[found[-1]].number in _ran(of), refused)
    else:
        amount = _amount(clause, found, of, len(domain), refused)
        if negated:
            right = not undecided and amount.number == len(domain) - len(members)
        elif bound != "=":
            right = is_within(len(members), float(amount.number or 0), "", bound)
        else:
            right = _is_number(clause, amount, claim, members, of)
        require(right and not (negated and bound != "="), refused)
    return True


def _amount(clause: Clause, found: list[int], of: Known, whole: int, refused: str) -> Token:
    """Return the number of a count, of `two of three` the first; the other must be the whole."""
    amount = clause.tokens[found[-1]]
    if len(found) < 2 or clause.tokens[found[-2] + 1].text != "of":
        return amount
    require(amount.number in {whole, *_ran(of)}, refused)
    return clause.tokens[found[-2]]


def _ran(of: Known) -> set[object]:
    return {fact.value for fact in of.of("jobs", "ran")}


def _bound_before(clause: Clause, place: int) -> tuple[str, set[int]]:
    """Return what the words before a count say of it, and their places: `no more than 3`."""
    before = " ".join(token.text for token in clause.tokens[:place])
    for words, bound in _BOUNDS.items():
        if clause.tokens[place].number is not None and re.search(rf"(?:^| ){words}$", before):
            return bound, set(range(place - words.count(" ") - (words[:3] != "at "), place))
    return "=", set()


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
        if token.text == "no" and clause.has(set(lexicon.COMPARATIVES)):
            continue
        if place and clause.tokens[place - 1].text in ("needs", "need", "requires", "wants"):
            raise Refused(f"it says {token.text!r}, which no fact says")
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
