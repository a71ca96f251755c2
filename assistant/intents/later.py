"""Read what shall happen later: GPUs that are kept for a time, and news of what may happen.

Both are spoken of in the words of questions, and none of them may be answered as one.
"""

from __future__ import annotations

import re
from typing import Literal

from gpudeck.assistant.intents.moments import LENGTH, MOMENT, length_of, moment_of
from gpudeck.assistant.query.request import Order

_CARDS = (
    r"(?P<all>(?:(?:the|my|all|both|every|die|meine|alle|la|le|les|las|el|mes|toutes les|todas las)"
    r" )*(?:the |die |les |las )?)(?:gpus?|cards?|karten?|grafikkarten?|cartes?(?: graphiques?)?"
    r"|tarjetas?(?: gr[aá]ficas?)?)(?: (?P<gpus>\d+(?:(?:,| and| und| et| y) ?\d+)*))?"
)
_KEEP = (
    r"(?:keep|hold|leave|reserve|book|block|halte?|reservier\w*|blockier\w*|buche?|garde[rz]?"
    r"|r[eé]serve[rz]?|bloque[rz]?|mant[eé]n(?:er)?|reserva[r]?|guarda[r]?|deja[r]?)"
)
_FREE = (
    r"(?: (?:free|available|empty|clear|for (?:me|us)|frei|f[uü]r mich|libres?|pour moi"
    r"|para m[ií]))*"
)
_UNTIL = r"(?:until|till|til|to|bis|jusqu'[aà]|[aà]|hasta|-|–)"
_BEGIN, _END = (MOMENT.replace("<moment>", name) for name in ("<begin>", "<until>"))
_BOOK = re.compile(
    rf"(?:(?:please|bitte|can you|could you|kannst du|peux-tu|puedes|s'il te pla[iî]t),? )*{_KEEP}"
    rf"(?: me| mir| moi)? {_CARDS}{_FREE}"
    rf"(?: (?:from|von|ab|de|d[eè]s|desde|between|zwischen|entre) {_BEGIN})?"
    rf"(?:,? (?:{_UNTIL}|and|und|et|y) {_END}"
    rf"|,? (?:for|f[uü]r|pendant|pour|durante|por)(?: the next| die n[aä]chsten)? {LENGTH})"
    rf"{_FREE}(?: (?:freihalten|reservieren|please|bitte|por favor|frei))*[.! ]*",
    re.IGNORECASE,
)
_SAY = (
    r"(?:notify|ping|alert|warn|remind|email|mail|text|message|inform)\s+(?:me|us)\b"
    r"|let (?:me|us) know (?:when|once|if|as soon)"
    r"|(?:sag|gib|gebt)\w*(?: mir| uns)?(?: mal| bitte)* bescheid|benachrichtig\w*|melde? dich"
    r"|erinner\w* mich|warn\w* mich|pr[eé]viens|pr[eé]venez|avertis|avertissez"
    r"|avis[ea]-?(?:me|nos|moi)"
    r"|av[ií]same|av[ií]sanos|notif[ií]ca(?:me|nos)|notifie-moi"
)
_WHEN = (
    r"(?:when(?:ever)?|once|as soon as|if|sobald|wenn|falls|quand|d[eè]s qu[e']|si|lorsqu[e']"
    r"|cuando|en cuanto)"
)
_HAPPENS = (
    r"(?:fails|crashes|dies|breaks|finishes|ends|completes|stops"
    r"|is (?:done|finished|free|idle|over)"
    r"|starts|goes|gets|hits|reaches|drops|exceeds|becomes|fehlschl[aä]gt|scheitert|abst[uü]rzt"
    r"|fertig ist|durch ist|frei (?:ist|wird)|startet|endet|[eé]choue|plante|se termine|finit"
    r"|d[eé]marre|d[eé]passe|falla|termina|termine|falle|acaba|acabe|empieza|empiece|pase|supera)"
)
_TELL = r"(?:tell|sag\w*|dis|dites|di|dime|dinos)(?: me| us| mir| uns|-moi|-nous)?"
_NEWS = re.compile(rf"(?:{_SAY})|{_TELL},? {_WHEN}\b.*\b{_HAPPENS}(?!\w)", re.IGNORECASE)
_ASKS = re.compile(
    r"(?i)^\W*(?:how|can|could i|does|do|is it|wie|kann|kannst|comment|peut|c[oó]mo|puedo"
    r"|se puede)\b"
)


def read_later(request: str, now: float) -> Order | Literal["notify"] | None:
    """Return a booking, `notify` for news of what happens later, or None for anything else."""
    said = request.replace("’", "'").strip()
    if _ASKS.match(said):
        return None
    if (found := _BOOK.fullmatch(said)) is not None:
        try:
            return _booking(found, now)
        except ValueError:
            return None
    return "notify" if _NEWS.search(said) else None


def _booking(found: re.Match[str], now: float) -> Order:
    options = {"begin": moment_of(found["begin"], now)} if found["begin"] else {}
    if found["length"]:
        options["until"] = f"+{length_of(found['length'])}"
    else:
        options["until"] = moment_of(found["until"], now)
    devices = tuple(map(int, re.findall(r"\d+", found["gpus"] or "")))
    return Order("book", devices=devices, options=options)
