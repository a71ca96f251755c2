"""Read the price of a kWh, and for how long from now on its cost is asked for."""

from __future__ import annotations

import re

from gpudeck.assistant.intents.moments import NUMBER, number_of
from gpudeck.assistant.intents.tokens import unaccented

_PRICE = re.compile(rf"(?<!\w)(?P<amount>\d+(?:[.,]\d+)?|{NUMBER})\s?(?P<unit>[^\W\d_]+|[$€£])?")
_HUNDREDTHS = re.compile(r"c|ct|cts|cents?|centimes?|centimos?|cennes?|pence|penny|p|rappe?n?")
_HOURS = {
    1: r"hours?|h|stunden?|heures?|horas?",
    24: r"days?|tage?n?|tag|jours?|dias?",
    12: r"nights?|nacht|nachte|nuits?|noches?",
    48: r"week-?ends?|wochenenden?|fins? de semaine|(?:el )?(?:fin|fines) de semana|finde",
    7 * 24: r"weeks?|wochen?|semaines?|semanas?",
    30 * 24: r"months?|monate?n?|mois|mes|meses",
    365 * 24: r"years?|jahre?n?|ans?|annees?|anos?",
}
_AHEAD = re.compile(
    rf"(?:(?P<amount>\d+(?:[.,]\d+)?|{NUMBER})\s?)?"
    rf"(?<![^\W\d_])(?P<unit>{'|'.join(_HOURS.values())})\b"
)


def price_of(letters: str) -> float | None:
    """Return the price of a kWh in the currency that is named: 0.31 for `31 cents`."""
    found = _PRICE.search(letters.casefold())
    if found is None:
        return None
    amount = float(number_of(found["amount"]))
    small = _HUNDREDTHS.fullmatch(unaccented(found["unit"] or ""))
    return amount / 100 if small else amount


def seconds_ahead(letters: str) -> float | None:
    """Return the seconds of a length of time that is to come: `per month`, `24h`, `une nuit`."""
    found = _AHEAD.search(unaccented(letters.casefold()))
    if found is None:
        return None
    hours = next(n for n, words in _HOURS.items() if re.fullmatch(words, found["unit"]))
    return float(number_of(found["amount"] or "1")) * hours * 3600.0
