"""Check a sentence: divide it into clauses, and check every claim and word of each."""

from __future__ import annotations

from gpudeck.assistant.facts import Fact
from gpudeck.assistant.writing.checker import lexicon
from gpudeck.assistant.writing.checker.absence import check_absence
from gpudeck.assistant.writing.checker.amounts import check_existence, is_count, is_given
from gpudeck.assistant.writing.checker.causes import check_reason, check_until
from gpudeck.assistant.writing.checker.clauses import (
    Clause,
    Refused,
    divide,
    last_owners,
    only_owners,
    owners,
)
from gpudeck.assistant.writing.checker.comparisons import check_comparisons, check_most
from gpudeck.assistant.writing.checker.fillers import is_filler
from gpudeck.assistant.writing.checker.grades import check_grades
from gpudeck.assistant.writing.checker.groups import everyone
from gpudeck.assistant.writing.checker.known import Known
from gpudeck.assistant.writing.checker.quotes import quoted, quotes_reason, titled_facts
from gpudeck.assistant.writing.checker.references import resolve
from gpudeck.assistant.writing.checker.statements import check_states
from gpudeck.assistant.writing.checker.stats import check_extreme
from gpudeck.assistant.writing.checker.subjects import check_subjects, check_text
from gpudeck.assistant.writing.checker.sums import check_sums
from gpudeck.assistant.writing.checker.tokens import Token, is_word, tokens
from gpudeck.assistant.writing.checker.values import bind, family_of

_BACK = lexicon.words("it its this they their")


_FRONT = lexicon.words("at with in after")
_PLAIN = lexicon.words("a an the of on for at in its")


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
    _complete_front(clauses)
    for clause in [clause for clause in clauses if not _check_clause(clause, of)]:
        _check_title(clause, of)
        _check_rest(clause, of)
    for clause in clauses:
        check_reason(clause, of)
    return clauses[-1] if clauses else previous


def _complete_front(clauses: list[Clause]) -> None:
    """Give the subject and the tense of `at 67 °C, GPU 1 will be …` to its first part."""
    if len(clauses) < 2 or clauses[1].opener != "," or clauses[0].tokens[0].text not in _FRONT:
        return
    front, rest = clauses[:2]
    named = [t for t in front.tokens if t.kind == "subject"]
    subjects = [t for t in rest.tokens if t.kind == "subject"][:1]
    stats = [t for t in front.tokens if t.text in lexicon.STAT_WORDS]
    if stats and not any(t.kind == "value" for t in front.tokens):
        rest.tokens += stats[-1:]  # `at its peak, GPU 0 drew 700 W`
        front.used |= {i for i, t in enumerate(front.tokens) if t in stats}
    elif not named and subjects:
        tense = [Token("word", "will")] if rest.has(lexicon.FUTURE) else []
        front.tokens[:0] = [*subjects, *tense]
        rest.fronted = True


def _check_clause(clause: Clause, of: Known) -> bool:
    """Check the claims of a clause. Return True if it quotes a fact as a whole."""
    check_subjects(clause, of)
    if clause.opener == "until":
        check_until(clause, of)
        return True
    if clause.is_cause() and quotes_reason(clause, of):
        clause.quotes = True
        return True
    who = owners(clause, len(clause.tokens))
    quote = quoted(clause, of, who)
    if quote is not None and not (quote.value is None and _is_title(clause)):
        return True
    for place, token in enumerate(clause.tokens):
        if token.kind == "value":
            clause.values += bind(clause, place, of)
        elif token.kind == "text":
            check_text(clause, place, token, of)
    check_sums(clause, of)
    check_extreme(clause, of)
    check_states(clause, of)
    check_existence(clause, of)
    check_most(clause, of)
    check_grades(clause, of)
    _check_only(clause, of)
    check_comparisons(clause, of)
    check_absence(clause, of)
    return False


def _is_title(clause: Clause) -> bool:
    """Return True for `GPU 0 memory used: 217 W`: it does not say that there is no value."""
    after = clause.after
    return (
        after is not None and after.opener == ":" and any(t.kind == "value" for t in after.tokens)
    )


def _check_title(clause: Clause, of: Known) -> None:
    """Check that the words before a colon name the field of the value after it. Raises Refused."""
    after = clause.after
    if after is None or after.opener != ":" or not after.values or after.values[0].place > 1:
        return
    titled = titled_facts(clause, of)
    if titled and after.values[0].fact not in titled:
        raise Refused(f"it calls {after.tokens[0].text!r} what another fact is called")
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


def _is_judgement(clause: Clause, place: int) -> bool:
    """Return True for the `only` of `only 7 °C`, which says that it is little."""
    after = clause.tokens[place + 1 : place + 2]
    return not (after and after[0].text in lexicon.NOUNS)


def _check_only(clause: Clause, of: Known) -> None:
    """Check `GPU 1 is the only GPU above 80 °C`: of no other the bound holds. Raises Refused."""
    for place, text in clause.words():
        if text != "only" or _is_judgement(clause, place) or place in clause.used:
            continue
        noun = lexicon.NOUNS[clause.tokens[place + 1].text]
        who = owners(clause, place).get(noun, frozenset())
        if who == everyone(of, noun):
            clause.used.add(place)
        bounds = [b for b in clause.values if clause.tokens[b.place].bound != "="]
        for bound in bounds:
            above = {b.fact.subject for b in clause.values}
            token = clause.tokens[bound.place]
            names = {f"{s}.{bound.fact.name.partition('.')[2]}" for s in of.subjects - above}
            if any(fact.name in names for fact in of.within(token.text, token.bound)):
                raise Refused("it says 'only', which no fact says")
            clause.used.add(place)


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
        whole = i and clause.tokens[i - 1].text in ("the", "of", "all")
        kinds = ("job", "device", "alert") if whole else ()
        totals = {len(everyone(of, kind)) for kind in kinds}
        if token.number not in (None, 0, 1) and token.number not in totals:
            raise Refused(f"it counts {token.text!r}, which no fact counts")
        if not is_word(token.text) and not is_filler(token.text):
            raise Refused(f"it says {token.text!r}, which cannot be checked")
        quoting = token.text == "reached" and any(t.kind == "text" for t in clause.tokens)
        if lexicon.STAT_WORDS.get(token.text, "now") != "now" and not quoting:
            raise Refused(f"it says {token.text!r}, but not of what value")
        harmless = (
            (token.text == "each" and i > 0)
            or (token.text == "only" and _is_judgement(clause, i))
            or (token.text == "all" and i and clause.tokens[i - 1].text == "at")
        )
        claims = lexicon.NEGATIONS | lexicon.TOTAL | lexicon.STRICT | {"wait"}
        if token.text in claims and not harmless:
            raise Refused(f"it says {token.text!r}, which no fact says")
