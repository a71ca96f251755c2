"""Join subjects to groups: `the idle GPUs`, `the other jobs`, `GPU 0 and GPU 1`."""

from __future__ import annotations

import re
from itertools import pairwise

from gpudeck.assistant.writing.checker import lexicon
from gpudeck.assistant.writing.checker.clauses import kind_of
from gpudeck.assistant.writing.checker.known import Known
from gpudeck.assistant.writing.checker.states import holds
from gpudeck.assistant.writing.checker.tokens import Token

_LABELS = {"job": "state", "device": "label", "alert": "rule"}


def everyone(of: Known, kind: str) -> frozenset[str]:
    """Return all devices, jobs or alerts that there are facts about."""
    label = _LABELS[kind]
    return frozenset(s for s in of.subjects if kind_of(s) == kind and of.of(s, label))


def with_lists(tokens: list[Token]) -> list[Token]:
    """Put each of several subjects before its value: `GPU 0 and GPU 1 are at 4 °C and 5 °C`."""
    subjects = [(i, t) for i, t in enumerate(tokens) if t.kind == "subject" and len(t.subjects) > 1]
    if len(subjects) != 1:
        return tokens
    at, group = subjects[0]
    kind = re.sub(r"\d", "", min(group.subjects))
    numbers = re.findall(r"\d+", group.text) or sorted(s.removeprefix(kind) for s in group.subjects)
    ordered = [f"{kind}{number}" for number in numbers]
    values = [i for i, t in enumerate(tokens) if t.kind == "value" and i > at]
    listed = len(values) == len(ordered) and all(
        [t.text for t in tokens[i + 1 : j]] in ([","], ["and"], [",", "and"])
        for i, j in pairwise(values)
    )
    if not listed or set(ordered) != group.subjects:
        return tokens
    shown = list(tokens)
    for i, subject in reversed(list(zip(values, ordered, strict=True))):
        shown[i:i] = [Token("subject", subject, subjects=frozenset({subject}))]
    return shown


def without_all(tokens: list[Token]) -> list[Token]:
    """Drop the `all` of `GPU 5 and GPU 6 are all idle`."""
    return [
        token
        for i, token in enumerate(tokens)
        if not (
            token.text == "all"
            and i > 1
            and tokens[i - 1].text in ("are", "were", "have")
            and len(tokens[i - 2].subjects) > 1
        )
    ]


def without_both(tokens: list[Token]) -> list[Token]:
    """Drop `both` where it means the two subjects before it."""
    shown: list[Token] = []
    for i, token in enumerate(tokens):
        following = [t for t in tokens[i + 1 : i + 2] if t.kind == "subject"]
        last = next((t for t in (*following, *reversed(shown)) if t.kind == "subject"), None)
        if token.text != "both" or token.kind != "word" or last is None or len(last.subjects) != 2:
            shown.append(token)
    return shown


def with_groups(tokens: list[Token]) -> list[Token]:
    """Join `GPU 0 and GPU 1` and `GPU 0, GPU 1 and GPU 2` to one subject."""
    shown: list[Token] = []
    for token in tokens:
        shown.append(token)
        while len(shown) > 2 and _is_group(*shown[-3:]):
            first, joint, last = shown[-3:]
            both = first.subjects | last.subjects
            shown[-3:] = [Token("subject", f"{first.text} {joint.text} {last.text}", subjects=both)]
    return shown


def _is_group(first: Token, joint: Token, last: Token) -> bool:
    if first.kind != "subject" or last.kind != "subject" or not are_alike(first, last):
        return False
    return joint.text in ("and", "or", "nor") or (joint.text == "," and "and" in last.text)


def are_alike(one: Token, other: Token) -> bool:
    return {kind_of(s) for s in one.subjects} == {kind_of(s) for s in other.subjects}


def with_only_one(tokens: list[Token], of: Known) -> list[Token]:
    """Replace `the job` and `this GPU` where there is but one."""
    shown = list(tokens)
    for i in range(len(tokens) - 2, -1, -1):
        first, noun = tokens[i : i + 2]
        kind = lexicon.NOUNS.get(noun.text, "")
        members = everyone(of, kind) if kind in ("job", "device") else frozenset()
        gpu = noun.text in ("gpu", "card") and members == {"cpu"}
        definite = first.text in ("the", "this") and not noun.text.endswith("s")
        if definite and noun.kind == "word" and len(members) == 1 and not gpu:
            shown[i : i + 2] = [Token("subject", noun.text, subjects=members)]
    return shown


_DESCRIBED = re.compile(r"[a-z]+ [a-z]+$|[a-z]+\d+ and ")
"""The text of subjects that a sentence describes instead of naming them."""
_DETERMINERS = lexicon.words("the all both its these those")
_ADJECTIVES = {
    "idle": "idle", "busy": "busy", "running": "running", "failed": "failed", "lost": "lost",
    "cancelled": "cancelled", "cleared": "cleared", "successful": "succeeded",
    "free": "idle", "unused": "idle", "active": "lasts", "open": "lasts", "finished": "done",
    "completed": "done", "waiting": "queued", "queued": "queued",
}  # fmt: skip


def with_described(tokens: list[Token], of: Known) -> list[Token]:
    """Replace `the three idle GPUs`, `both waiting jobs` and `the running job`.

    `GPU 3 is the only idle GPU` becomes `GPU 3 is only idle`.
    """
    shown = list(tokens)
    for i in range(len(tokens) - 2, 0, -1):
        adjective, noun = tokens[i : i + 2]
        claim, kind = _ADJECTIVES.get(adjective.text), lexicon.NOUNS.get(noun.text, "")
        if claim is None or not kind:
            continue
        members = frozenset(s for s in everyone(of, kind) if holds(of, s, claim))
        start, count = i, 1 if not noun.text.endswith("s") else 0
        if tokens[start - 1].text == "only" and count:
            the = start > 1 and tokens[start - 2].text == "the"
            shown[start - 1 - the : i + 2] = [Token("word", "only"), adjective]
            continue
        if tokens[start - 1].number is not None:
            start, count = start - 1, tokens[start - 1].number or 0
            if count == len(members) and (not start or tokens[start - 1].text in ("with", "are")):
                name = f"{adjective.text} {noun.text}"
                shown[start : i + 2] = [Token("subject", name, subjects=members)]
                continue
        first = tokens[start - 1].text
        count = 2 if first == "both" else count
        if first not in _DETERMINERS or not members or count not in (0, len(members)):
            continue
        denied = [t.text for t in tokens[max(0, start - 3) : start - 1]] in (
            ["none", "of"],
            ["neither", "of"],
        )
        subject = Token("subject", f"{adjective.text} {noun.text}", subjects=members)
        shown[start - 1 - 2 * denied : i + 2] = [
            *([Token("word", "neither")] if denied else []),
            subject,
        ]
    return shown


def with_ranked(tokens: list[Token], of: Known) -> list[Token]:
    """Replace `the two hottest GPUs` by these, the hottest first."""
    shown = list(tokens)
    for i in range(len(tokens) - 4, -1, -1):
        first, one, other, noun = tokens[i : i + 4]
        count, rank = (one, other) if one.number is not None else (other, one)
        kind = lexicon.NOUNS.get(noun.text, "")
        how = lexicon.SUPERLATIVES.get(rank.text)
        if first.text != "the" or count.number is None or how is None or not kind:
            continue
        values = {s: of.value(s, field) for s in everyone(of, kind) for field in how.fields}
        known = {s: how.sign * v for s, v in values.items() if isinstance(v, int | float)}
        best = sorted(known, key=lambda s: -known[s])
        number = count.number
        if len(known) == len(values) > number and known[best[number - 1]] > known[best[number]]:
            name = " and ".join(best[:number])
            shown[i : i + 4] = [Token("subject", name, subjects=frozenset(best[:number]))]
    return shown


def with_equal(tokens: list[Token]) -> list[Token]:
    """Read `the idle GPUs are GPU 5 and GPU 6` as the GPUs, or as no word if these are others."""
    shown = list(tokens)
    for i in range(len(tokens) - 3, -1, -1):
        first, verb, second = tokens[i : i + 3]
        described = first.kind == "subject" and bool(_DESCRIBED.match(first.text))
        if described and verb.text in ("is", "are") and are_alike(first, second):
            equal = first.subjects == second.subjects
            shown[i : i + 3] = [second] if equal else [Token("word", "unequal")]
    return shown


def with_others(tokens: list[Token], of: Known) -> list[Token]:
    """Replace `the other GPUs` by those that are not named before."""
    shown = list(tokens)
    for i in range(len(tokens) - 3, 0, -1):
        kind = lexicon.NOUNS.get(tokens[i + 2].text, "")
        named = frozenset(s for t in tokens[:i] for s in t.subjects if kind_of(s) == kind)
        rest = everyone(of, kind) - named if kind and named else frozenset[str]()
        plural = tokens[i + 2].text.endswith("s") or len(rest) == 1
        if [t.text for t in tokens[i : i + 2]] == ["the", "other"] and rest and plural:
            shown[i : i + 3] = [Token("subject", "other", subjects=rest)]
    return shown


def with_counted_names(tokens: list[Token]) -> list[Token]:
    """Read `one job, warmup, failed` as `only warmup failed`."""
    shown = list(tokens)
    for i in range(len(tokens) - 4, -1, -1):
        count, noun, opened, names, closed = (*tokens[i : i + 5], Token("mark", ""))[:5]
        listed = opened.text in (",", "(") and closed.text in (",", ")")
        if not listed or count.number is None or count.number != len(names.subjects):
            continue
        kinds = {kind_of(s) for s in names.subjects}
        if kinds == {lexicon.NOUNS.get(noun.text)}:
            start = i - (i > 0 and tokens[i - 1].text == "only")
            shown[start : i + 5] = [Token("word", "only"), names]
    return shown
