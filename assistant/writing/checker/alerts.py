"""Find which alert a sentence means."""

from __future__ import annotations

from gpudeck.assistant.writing.checker.groups import everyone
from gpudeck.assistant.writing.checker.known import Known
from gpudeck.assistant.writing.checker.tokens import Token

_RULES = {
    "hot": "temperature heat overheating thermal overheat hot",
    "memory": "memory ram vram",
    "throttled": "throttling throttle throttled slowdown",
    "failed": "failure failing failed fail",
}
"""How people call the rule of an alert that has a word."""
_MEANT = {name: word for word, names in _RULES.items() for name in names.split()}


def with_alerts(tokens: list[Token], of: Known) -> list[Token]:
    """Replace each `alert` by the one that the words beside it describe, if it is but one."""
    shown = list(tokens)
    for i in range(len(tokens) - 1, -1, -1):
        if tokens[i].text != "alert":
            continue
        start = i
        while start and tokens[start - 1].kind in ("word", "text") and start > i - 4:
            if not _describes(tokens[start - 1]):
                break
            start -= 1
        found = _alert(tokens, start, i, of)
        if len(found) == 1:
            rest = [t.text for t in tokens[i + 1 : i + 2]]
            rule = rest in (["for"], ["about"]) and any(
                _describes(t) for t in tokens[i + 2 : i + 3]
            )
            end = i + 1 + 2 * (rule and not any(t.text == "of" for t in tokens[i + 3 : i + 4]))
            shown[start:end] = [Token("subject", "alert", subjects=found)]
    return shown


def _describes(token: Token) -> bool:
    rule = any(fact.name.endswith(".rule") for fact in token.facts)
    return rule or token.text in _MEANT


def _alert(tokens: list[Token], start: int, place: int, of: Known) -> frozenset[str]:
    """Return the alerts that the words from a place on, and `about GPU 1` after them, describe."""
    plain = ("the", "this", "of")
    after = [t for t in tokens[place + 1 : place + 6] if t.text not in plain and not _describes(t)]
    beside = (len(after) > 1 and after[0].text in ("for", "on", "about", "from")) or (
        [t.text for t in tokens[place + 1 : place + 2]] == ["of"] and bool(after)
    )
    after = [Token("word", ""), *after] if after and after[0].kind == "subject" else after
    about = after[1].subjects if beside else frozenset[str]()
    if not about:
        about = frozenset(s for t in tokens for s in t.subjects)
    labels = {str(of.value(s, "label") or f"Job {s.removeprefix('job')}") for s in about}
    found = everyone(of, "alert")
    if labels:
        found = frozenset(a for a in found if of.value(a, "about") in labels)
    words = {_MEANT.get(w, w) for t in tokens[start:place] for w in t.text.split()}
    every = {_MEANT.get(word, word) for t in tokens for word in t.text.split()}
    rules = {a: set(str(of.value(a, "rule")).lower().split()) for a in found}
    if words:
        return frozenset(a for a in found if words & rules[a])
    return frozenset(a for a in found if every & rules[a]) or found
