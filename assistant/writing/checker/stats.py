"""Find which value over time a clause means: now, the mean, the highest or the lowest."""

from __future__ import annotations

from gpudeck.assistant.facts import FIELDS_SPAN, Fact
from gpudeck.assistant.writing.checker import lexicon
from gpudeck.assistant.writing.checker.clauses import Clause, kind_of
from gpudeck.assistant.writing.checker.known import Known
from gpudeck.assistant.writing.checker.lengths import DENIED
from gpudeck.assistant.writing.checker.tokens import Token

_STATS = (".mean", ".max", ".min")
_EXTREMES = ("used.memory", "used.share")


def field_of(fact: Fact) -> str:
    """Return the field of a fact: `temp` for gpu0.temp.mean, `process` for gpu0.process1."""
    name = fact.name.partition(".")[2].partition("~")[0]
    for stat in _STATS:
        name = name.removesuffix(stat) if name.removesuffix(stat) in FIELDS_SPAN else name
    return name.rstrip("0123456789") if name.startswith(("process", "check", "notice")) else name


def stat_of(fact: Fact) -> str:
    """Return mean, max or min for a value over the span; now for others that have these."""
    name = fact.name.partition(".")[2].partition("~")[0]
    if field_of(fact) not in FIELDS_SPAN or kind_of(fact.subject) != "device":
        return ""
    last = name.rpartition(".")[2]
    return last if f".{last}" in _STATS else "now"


def extreme_of(clause: Clause, token: Token) -> str:
    """Return which extreme a bound that was kept for a time is about; empty if it was not."""
    if token.bound not in DENIED or not clause.has(lexicon.LASTING):
        return ""
    above = (token.bound[0] == ">") is not clause.has({"never"})
    return "min" if above else "max"


def stat_at(clause: Clause, place: int) -> str:
    """Return which value over time is meant: now, mean, max or min; empty if that is not clear."""
    found = [
        (abs(i - place), i, lexicon.STAT_WORDS[text])
        for i, text in clause.words()
        if text in lexicon.STAT_WORDS and not is_best(clause, i) and not _apart(clause, i, place)
    ]
    if found:
        clause.stat = min(found)[2]
        clause.used |= {i for _, i, stat in found if stat in (clause.stat, "now")}
        return clause.stat
    if clause.has(lexicon.PRESENT):
        clause.stat = "now"
    elif clause.before is not None:
        clause.stat = clause.before.stat
    elif not clause.has(lexicon.PAST):
        clause.stat = "now"
    return clause.stat


def _apart(clause: Clause, one: int, other: int) -> bool:
    """Return True if a comparing word stands between two places."""
    between = clause.tokens[min(one, other) + 1 : max(one, other)]
    return any(token.text in lexicon.COMPARATIVES for token in between)


def _reached(clause: Clause | None) -> bool:
    """Return True if it is a result that was reached, not a highest value over time."""
    return clause is not None and (clause.has({"reached", "reaching"}) or _reached(clause.before))


def is_best(clause: Clause, place: int) -> bool:
    """Return True for the `most` of `draws the most power`, which compares devices, not times."""
    texts = [token.text for token in clause.tokens[max(0, place - 2) : place]]
    if clause.tokens[place].text not in ("highest", "most", "lowest", "least") or len(texts) < 2:
        return False
    return texts[1] == "the" and texts[0] in lexicon.PRESENT | lexicon.PAST | {
        "reached",
        "achieved",
    }


def is_timed(fact: Fact, stat: str, clause: Clause) -> bool:
    known = stat_of(fact)
    if fact.name.partition(".")[2] in _EXTREMES:
        return stat not in ("min", "mean")
    if fact.name.endswith(".used.util"):
        return stat not in ("min", "max")
    if kind_of(fact.subject) == "job" and not field_of(fact).startswith("used."):
        return stat not in ("mean", "max", "min") or _reached(clause)
    return not known or known == (stat or "now")


def check_extreme(clause: Clause, of: Known) -> None:
    """Check `its highest value` without a number: that of the clause before is meant.

    A clause before the one with the value, such as `at most`, selects that one's value.
    """
    stats = [
        (i, lexicon.STAT_WORDS[text])
        for i, text in clause.words()
        if text in lexicon.STAT_WORDS and not is_best(clause, i)
    ]
    if not stats or any(token.kind in ("value", "text") for token in clause.tokens):
        return
    clause.stat = stats[-1][1]
    if len(clause.tokens) < 4 and clause.after is not None and not clause.has(lexicon.PRESENT):
        clause.used |= {i for i, _ in stats}
    for bound in clause.before.values if clause.before is not None else ():
        selected = of.of(bound.fact.subject, f"{bound.field}.{clause.stat}")
        if any(fact.said == bound.fact.said for fact in selected):
            clause.used |= {i for i, _ in stats}
