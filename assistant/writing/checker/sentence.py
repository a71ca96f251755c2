"""Check a sentence: divide it into clauses, and check every claim and word of each."""

from __future__ import annotations

import re

from gpudeck.assistant.facts import Fact
from gpudeck.assistant.writing.checker import lexicon
from gpudeck.assistant.writing.checker.amounts import check_existence, is_count, is_given
from gpudeck.assistant.writing.checker.clauses import (
    Clause,
    Refused,
    by_kind,
    divide,
    kind_of,
    last_owners,
    only_owners,
    owners,
)
from gpudeck.assistant.writing.checker.comparisons import check_comparisons, check_most
from gpudeck.assistant.writing.checker.known import Known
from gpudeck.assistant.writing.checker.quotes import check_cause, quoted
from gpudeck.assistant.writing.checker.references import everyone, resolve
from gpudeck.assistant.writing.checker.statements import check_states
from gpudeck.assistant.writing.checker.sums import check_sums
from gpudeck.assistant.writing.checker.tokens import Token, is_word, tokens
from gpudeck.assistant.writing.checker.values import bind, check_extreme, family_of

_BACK = lexicon.words("it its this they their")


_JOINING = lexicon.words("than before after by for until against with beside")
"""Words that tell one job from another in a clause."""
_PLAIN = lexicon.words("a an the of on for at in its")
_KNOWING = lexicon.words(
    "known unknown available data n/a value values supported measured reported"
)


def check_sentence(
    sentence: str, of: Known, slots: dict[str, Fact], previous: Clause | None
) -> Clause | None:
    """Check a sentence, and return its last clause. A sentence without a subject has that of the
    one before.
    """
    found = resolve(tokens(sentence, of, slots), of)
    named = any(token.kind == "subject" for token in found)
    goes_on = not named or any(token.text in _BACK for token in found[:4])
    before = previous if goes_on else None
    clauses = divide(found, only_owners(of) if before is None else last_owners(before), before)
    for clause in [clause for clause in clauses if not _check_clause(clause, of)]:
        _check_title(clause)
        _check_rest(clause, of)
    return clauses[-1] if clauses else previous


def _check_clause(clause: Clause, of: Known) -> bool:
    """Check the claims of a clause. Return True if it quotes a fact as a whole."""
    _check_subjects(clause, of)
    if clause.is_cause():
        check_cause(clause, of)
        return True
    who = owners(clause, len(clause.tokens))
    quote = quoted(clause, of, who)
    if quote is not None and not (quote.value is None and _is_title(clause)):
        return True
    for place, token in enumerate(clause.tokens):
        if token.kind == "value":
            clause.values += bind(clause, place, of)
        elif token.kind == "text":
            _check_text(clause, place, token, of)
    check_sums(clause, of)
    check_extreme(clause, of)
    check_states(clause, of)
    check_existence(clause, of)
    check_most(clause, of)
    check_comparisons(clause, of)
    _check_absence(clause, of)
    return False


def _check_subjects(clause: Clause, of: Known) -> None:
    named: dict[str, frozenset[str]] = {}
    for token in clause.tokens:
        if token.kind != "subject":
            continue
        if missing := token.subjects - of.subjects:
            raise Refused(f"it names {token.text!r}, which is in none of the facts: {min(missing)}")
        named |= by_kind(token.subjects)
    inherited = clause.inherited.get("job", frozenset())
    if clause.opener == "(" and inherited and not named.get("job", inherited) & inherited:
        raise Refused("it gives a job the name of another one")
    _check_name(clause)
    if "job" in named and clause.has({"by"}) and clause.has({"held"}):
        named = {**clause.inherited, **named}
    if "job" in named and "device" in named and not clause.has(set(lexicon.COMPARATIVES)):
        for job in named["job"]:
            for device in named["device"]:
                if not _related(of, job, device):
                    raise Refused(f"it connects {job} with {device}, which no fact does")


def _check_name(clause: Clause) -> None:
    """Check that a job is not called by the name of another one. Raises Refused."""
    jobs = frozenset[str]()
    joined = clause.has(_JOINING | set(lexicon.COMPARATIVES))
    for token in clause.tokens:
        here = by_kind(token.subjects).get("job", frozenset())
        if token.facts and jobs and here and not joined and not jobs & here:
            raise Refused("it gives a job the name of another one")
        jobs = here or jobs


def _related(of: Known, job: str, device: str) -> bool:
    label = str(of.value(device, "label") or device).lower()
    texts = [fact.said.lower() for f in ("devices", "reason") for fact in of.of(job, f)]
    if any(re.search(rf"\b{re.escape(label)}\b", text) for text in texts):
        return True
    number = job.removeprefix("job")
    uses = [fact.said for f in ("holder", "use") for fact in of.of(device, f)]
    return any(re.search(rf"\b{number}\b", text) for text in uses)


def _check_text(clause: Clause, place: int, token: Token, of: Known) -> None:
    """Check that quoted words are those of their owner."""
    who = owners(clause, place)
    labels = {str(of.value(s, "label") or f"Job {s[3:]}") for named in who.values() for s in named}
    named = by_kind(frozenset[str]().union(*(t.subjects for t in clause.tokens)))
    jobs = named.get("job", frozenset()) if "device" not in named else frozenset()
    for fact in token.facts:
        if of.value(fact.subject, "about") in labels:
            return  # an alert is about it
        kind = kind_of(fact.subject)
        if kind == "device" and not all(_related(of, job, fact.subject) for job in jobs):
            continue
        if not kind or fact.subject in who.get(kind, frozenset()) or clause.names_nobody():
            return
    raise Refused(f"it says {token.text!r}, which no fact says of what it names")


def _is_title(clause: Clause) -> bool:
    """Return True for `GPU 0 memory used: 217 W`: it does not say that there is no value."""
    after = clause.after
    return (
        after is not None and after.opener == ":" and any(t.kind == "value" for t in after.tokens)
    )


def _check_title(clause: Clause) -> None:
    """Check that the words before a colon name the field of the value after it. Raises Refused."""
    after = clause.after
    if after is None or after.opener != ":" or not after.values or after.values[0].place > 1:
        return
    field = after.values[0].field
    family = family_of((after.values[0].fact,))
    words = [
        (i, text)
        for i, text in clause.words()
        if text not in _PLAIN and text not in lexicon.STAT_WORDS and i not in clause.used
    ]
    claims = lexicon.PRESENT | lexicon.PAST | set(lexicon.STATES) | set(lexicon.COMPARATIVES)
    if not family or not words or clause.has(claims - {"used"}):  # `memory used` is a title
        return
    named = frozenset[str]().union(*(lexicon.FIELD_WORDS.get(text, ()) for _, text in words))
    if "memory" in (text for _, text in words) and "mem_used" in family:
        return  # any amount of memory
    if field not in named:
        raise Refused(f"it calls {after.tokens[0].text!r} what no fact calls it")


def _check_absence(clause: Clause, of: Known) -> None:
    """Check a claim that something is not known. Raises Refused."""
    texts = [token.text for token in clause.tokens]
    denied = [i for i, text in clause.words() if text in lexicon.NEGATIONS | {"no"}]
    free = [i for i in denied if i not in clause.used]
    fields = {f for _, t in clause.words() for f in lexicon.FIELD_WORDS.get(t, ())}
    stats = {lexicon.STAT_WORDS[t] for _, t in clause.words() if t in lexicon.STAT_WORDS}
    if not ("unknown" in texts or (free and (fields or stats))):
        return
    following = clause.after
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


def _check_rest(clause: Clause, of: Known) -> None:
    """Check that every word is known, and every value and claim was checked."""
    bound = {b.place for b in clause.values}
    for i, token in enumerate(clause.tokens):
        if token.kind == "value" and i not in bound | clause.used and not is_given(clause, i, of):
            raise Refused(f"it says {token.text!r}, which no fact says there")
        if token.kind != "word" or i in clause.used:
            continue
        if is_given(clause, i, of):
            continue
        if is_count(clause, i):
            raise Refused(f"it counts {token.text!r}, which no fact counts")
        if not is_word(token.text):
            raise Refused(f"it says {token.text!r}, which cannot be checked")
        quoting = token.text == "reached" and any(t.kind == "text" for t in clause.tokens)
        if lexicon.STAT_WORDS.get(token.text, "now") != "now" and not quoting:
            raise Refused(f"it says {token.text!r}, but not of what value")
        harmless = (
            (token.text in ("only", "each") and i > 0)
            or token.text == "only"
            or (token.text == "all" and i and clause.tokens[i - 1].text == "at")
        )
        claims = lexicon.NEGATIONS | lexicon.TOTAL | lexicon.STRICT | {"wait"}
        if token.text in claims and not harmless:
            raise Refused(f"it says {token.text!r}, which no fact says")
