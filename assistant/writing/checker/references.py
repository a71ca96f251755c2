"""Find whom a sentence means by `both GPUs`, `the alert about GPU 1`, `flash` or `A and B`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from gpudeck.assistant.writing.checker import lexicon
from gpudeck.assistant.writing.checker.alerts import with_alerts
from gpudeck.assistant.writing.checker.clauses import kind_of
from gpudeck.assistant.writing.checker.groups import (
    everyone,
    with_counted_names,
    with_described,
    with_equal,
    with_groups,
    with_lists,
    with_only_one,
    with_others,
    with_ranked,
    without_all,
    without_both,
)
from gpudeck.assistant.writing.checker.known import Known
from gpudeck.assistant.writing.checker.tokens import Token

_WHOLE = lexicon.words("all both every each the")
_NAMED_JOBS = {("job", 1), ("jobs", 1), ("jobs", 2)}
"""`the render jobs`: the noun after a name, and how many jobs have it, at most 2."""


def resolve(found: Sequence[Token], of: Known) -> list[Token]:
    """Return the tokens with groups and descriptions as subjects."""
    tokens = _with_names(_with_most(_without_denied_counts(list(found))))
    tokens = with_ranked(tokens, of)
    tokens = with_described(with_others(with_only_one(tokens, of), of), of)
    tokens = with_alerts(with_groups(_with_wholes(tokens, of)), of)
    tokens = with_equal(with_counted_names(tokens))
    for i, token in enumerate(tokens[1:-1], 1):
        if token.text == "but" and tokens[i - 1].kind == "subject" and tokens[i + 1].number:
            tokens[i] = Token("word", f"but {tokens[i + 1].text}")  # no word that can be checked
    return _with_pairs(_with_ranges(with_lists(without_both(without_all(tokens)))))


def _with_most(tokens: list[Token]) -> list[Token]:
    """Read `most of the jobs` as the word `majority`."""
    shown = list(tokens)
    for i in range(len(tokens) - 4, -1, -1):
        texts = [token.text for token in tokens[i : i + 4]]
        if texts[:3] == ["most", "of", "the"] and texts[3] in lexicon.NOUNS:
            shown[i : i + 4] = [Token("word", "majority")]
    return shown


def _without_denied_counts(tokens: list[Token]) -> list[Token]:
    """Read `not 2 but 3 jobs` as `3 jobs`; if both numbers are the same, as no word."""
    shown = list(tokens)
    for i in range(len(tokens) - 4, -1, -1):
        but = next((k for k in (i + 2, i + 3) if tokens[k].text == "but"), 0)
        counts = [t.number for t in (tokens[i + 1], *tokens[but + 1 : but + 2])]
        if tokens[i].text == "not" and but and len(counts) == 2 and None not in counts:
            same = counts[0] == counts[1]
            shown[i : but + 1] = [Token("word", "not but")] if same else []
    return shown


def _with_ranges(tokens: list[Token]) -> list[Token]:
    """Read `between V and W` and `from V to W` as the lowest value and the highest."""
    shown = list(tokens)
    for i in range(len(tokens) - 4, -1, -1):
        opener, low, joint, high = tokens[i : i + 4]
        pair = (opener.text, joint.text) in (("between", "and"), ("from", "to"))
        if pair and low.kind == high.kind == "value" and ":" not in low.text + high.text:
            words = (Token("word", "lowest"), low, Token("word", "and"), Token("word", "highest"))
            shown[i : i + 4] = [*words, high]
    return shown


def _with_wholes(tokens: list[Token], of: Known) -> list[Token]:
    """Replace `both GPUs`, `all three jobs` and `neither GPU`, where there are as many."""
    shown: list[Token] = []
    i = 0
    while i < len(tokens):
        taken, subjects = _whole(tokens, i, of)
        if taken:
            if tokens[i].text == "neither":
                shown.append(tokens[i])
            shown.append(Token("subject", tokens[i].text, subjects=subjects))
        else:
            shown.append(tokens[i])
        i += max(1, taken)
    return shown


def _whole(tokens: list[Token], i: int, of: Known) -> tuple[int, frozenset[str]]:
    """Return how many tokens mean a whole kind, and its members; 0 if these do not."""
    first = tokens[i].text
    before = [token.text for token in tokens[max(0, i - 2) : i]]
    if first not in _WHOLE | {"neither"} or before[-1:] in (["not"], ["at"]):
        return 0, frozenset()
    if before[-1:] == ["of"] and tokens[i - 2].number is not None:
        return 0, frozenset()
    rest = tokens[i + 1 : i + 4]
    skipped = [t for t in rest[:2] if t.text in ("of", "the") or t.number is not None]
    noun = rest[len(skipped)] if len(skipped) < len(rest) else None
    if noun is None or noun.text not in lexicon.NOUNS:
        return 0, frozenset()
    if noun.text.endswith("s") is (first in ("each", "every", "neither")):
        return 0, frozenset()
    members = everyone(of, lexicon.NOUNS[noun.text])
    count = (
        2 if first in ("both", "neither") else next((t.number for t in skipped if t.number), None)
    )
    if not members or (count is not None and count != len(members)):
        return 0, frozenset()
    return 2 + len(skipped), members


def _with_names(tokens: list[Token]) -> list[Token]:
    """Replace a backend by its job, and a model by its device, where none is named otherwise."""
    named = {kind_of(s) for t in tokens for s in t.subjects}
    shown = [
        Token("subject", t.text, t.facts, frozenset({t.facts[0].subject}))
        if _is_name(t, named)
        else t
        for t in tokens
    ]
    for i, (token, after) in enumerate(pairwise(tokens)):
        jobs = frozenset(f.subject for f in token.facts if kind_of(f.subject) == "job")
        if token.kind == "text" and (after.text, min(len(jobs), 2)) in _NAMED_JOBS:
            shown[i] = Token("subject", token.text, token.facts, jobs)
    return shown


def _is_name(token: Token, named: set[str]) -> bool:
    if token.kind != "text" or len(token.facts) != 1:
        return False
    fact = token.facts[0]
    kind = kind_of(fact.subject)
    field = "backend" if kind == "job" else "name"
    return kind not in ("", "alert") and kind not in named and fact.name.endswith(f".{field}")


def _with_pairs(tokens: list[Token]) -> list[Token]:
    """Put two that are compared before their values: `A is hotter than B: 4 °C against 3 °C`."""
    against = next((i for i, t in enumerate(tokens) if t.text == "against"), 0)
    compared = next((i for i, t in enumerate(tokens) if t.text in lexicon.COMPARATIVES), 0)
    if not 0 < compared < against < len(tokens) - 1:
        return tokens
    first = [t for t in tokens[:compared] if t.kind == "subject"]
    second = [t for t in tokens[compared:against] if t.kind == "subject"]
    values = tokens[against - 1].kind == tokens[against + 1].kind == "value"
    if len(first) != 1 or len(second) != 1 or not values:
        return tokens
    shown = list(tokens)
    shown.insert(against + 1, second[0])
    shown.insert(against - 1, first[0])
    return shown
