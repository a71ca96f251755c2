"""Read the times that are said in a word or two: nights, weeks, days of the month, quarters.

They are so short that only letters of which the encoder knows that they name a time are read like
this; elsewhere `le 12` is a job.
"""

from __future__ import annotations

import re

from gpudeck.assistant.intents.tokens import unaccented

_LED = (
    r"(?:(?:in|im|on|at|per|pro|par|por|each|all|whole|for|over|since|sur|seit|depuis|desde|hace|en"
    r"|the|this|an?|one|ganzen?|eine[rmn]?|ner?|tout|toute|todo|toda|una?|une|der|die|das|den|dem|des"
    r"|de|da|d|le|la|les|el|los|las|del|du|a|am|aux?) )*"
)
_UNITS = {
    "last hour": "hour|hr|stunde?|heure|hora",
    "last 24 hours": "24 ?h|24 ?hours|24 ?stunden|24 ?heures|24 ?horas",
    "last week": "week|wk|woche?|wocha|semaine|semana",
    "last month": "month|monat|mois|mes",
    "last 365 days": "year|jahr|joahr|annee|an|ano",
    "last weekend": "weekends?|wochenenden?|we|fins? de semaine|fine?s? de semana",
    "last night": "nights?|nite|nachts?|nocht|nuits?|noches?",
    "this morning": "mornings?|morge[ns]?|fruh|vormittags?|matin",
    "this afternoon": "afternoons?|nachmittags?|tarde|tardes",
    "today": "heit|heut|heia|journee|jornada",
}
_BARE = {said: re.compile(_LED + f"(?:{words})") for said, words in _UNITS.items()}
_QUARTER = re.compile(
    r"(?:[a-z]+ )*(?:(first|erste|premier|primer)|(second|zweite|deuxieme|segundo)"
    r"|(third|dritte|troisieme|tercer)|(fourth|vierte|quatrieme|cuarto))\w*"
    r" (?:quarter|quartal|trimestre)"
)
_BESIDE = (
    "am|vom|du|le|el|al|au|del|auf|dem|den|zum|bis|the|on|from|to|and|between|since|und|seit|von"
    "|zwischen|et|depuis|entre|y|desde|hasta"
)
_DAYS = re.compile(rf"(?:(?:{_BESIDE}) )+\d{{1,2}}(?: (?:(?:{_BESIDE}) )+\d{{1,2}})?")


def bare_time(letters: str) -> str:
    """Return a longer text for the same time, or an empty text if it is no time of this kind."""
    said = " ".join(re.findall(r"[^\W_]+", unaccented(letters.casefold())))
    for known, pattern in _BARE.items():
        if pattern.fullmatch(said):
            return known
    if quarter := _QUARTER.fullmatch(said):
        return f"q {next(n for n, found in enumerate(quarter.groups(), 1) if found)}"
    return re.sub(r"\d+", r"\g<0>th", said) if _DAYS.fullmatch(said) else ""
