"""Check claims that something is not known."""

from __future__ import annotations

from gpudeck.assistant.writing.checker import lexicon
from gpudeck.assistant.writing.checker.clauses import Clause, Refused, owners
from gpudeck.assistant.writing.checker.groups import everyone
from gpudeck.assistant.writing.checker.known import Known

_KNOWING = lexicon.words(
    "known unknown available data n/a value values supported measured reported"
)


def check_absence(clause: Clause, of: Known) -> None:
    """Check a claim that something is not known. Raises Refused."""
    texts = [token.text for token in clause.tokens]
    denied = [i for i, text in clause.words() if text in lexicon.NEGATIONS | {"no"}]
    free = [i for i in denied if i not in clause.used]
    fields = {f for _, t in clause.words() for f in lexicon.FIELD_WORDS.get(t, ())}
    stats = {lexicon.STAT_WORDS[t] for _, t in clause.words() if t in lexicon.STAT_WORDS}
    stats |= {"mean"} if clause.has({"historical", "history"}) else set()
    fields -= lexicon.FIELD_WORDS["available"]
    nothing = clause.has({"values", "data"}) and clause.has({"no"})
    if not ("unknown" in texts or (free and (fields or stats or nothing))):
        return
    following = clause.after
    if len(free) > 1 or (free and "unknown" in texts):
        raise Refused("it denies that something is not known, which cannot be checked")
    around = [clause, *([following] if following and following.opener == ":" else [])]
    if any(fact.value is None for at in around for t in at.tokens for fact in t.facts):
        clause.used |= set(free)
        return
    if before := clause.before:
        fields = fields or {bound.field for bound in before.values}
    who = frozenset[str]().union(*owners(clause, len(texts)).values()) or everyone(of, "device")
    ends = [f".{stat}" for stat in stats if stat != "now"] or [""]
    facts = [
        fact
        for subject in who
        for fact in of.facts
        if fact.subject == subject
        and any(fact.name == f"{subject}.{f}{end}" for f in fields or {"util"} for end in ends)
    ]
    vague = not facts and not any(text in _KNOWING for text in texts)
    if vague or any(fact.value is not None for fact in facts):
        raise Refused("it says that something is not known, which no fact says")
    clause.used |= set(free) | {
        i for i, text in clause.words() if text in {*lexicon.STRICT, *lexicon.STAT_WORDS}
    }
