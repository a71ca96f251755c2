"""Read points and spans of time in a request, in four languages and the person's time zone.

Days are those of the local calendar, so that a day in which the clocks change has 23 or 25 hours.
"""

from __future__ import annotations

import re
import time
from calendar import monthrange
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from gpudeck.assistant.intents.tokens import Token, tokens, unaccented
from gpudeck.assistant.query.request import Span

_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "week": 7 * 86400.0}
_CLOCK_FROM = 13
_AROUND_S = 1800.0
"""`Around 3` is half an hour before and after it."""
_DAYS = {
    0: "today|heute?|heutige[nrs]?|aujourd hui|hoy"
    "|(?:the day|den tag|la journee|el dia)(?! before| vor| d avant| anterior)",
    -1: "yesterday|gestern|gestrige[nrs]?|hier|ayer",
    -2: "(?:the )?day before yesterday|vorgestern|avant hier|anteayer|antes de ayer",
}
_WEEKDAYS = (
    "monday|montag|lundi|lunes", "tuesday|dienstag|mardi|martes",
    "wednesday|mittwoch|mercredi|miercoles", "thursday|donnerstag|jeudi|jueves",
    "friday|freitag|vendredi|viernes", "saturday|samstag|sonnabend|samedi|sabado",
    "sunday|sonntag|dimanche|domingo",
)  # fmt: skip
PARTS = {
    "morning": ((6, 12), "morning|morgen|fruh|vormittag|matin|manana"),
    "noon": ((12, 14), "midday|mittag|midi|mediodia"),
    "afternoon": ((12, 18), "afternoon|nachmittag|apres midi|tarde"),
    "evening": ((18, 24), "evening|abend|soir|tarde noche"),
    "night": ((20, 30), "night|nacht|nuit|noche"),
}
_POINTS = {
    "12:00": "noon|midday|lunch|lunchtime|lunch time|mittag|mittags|midi|mediodia|la comida",
    "00:00": "midnight|mitternacht|minuit|medianoche",
}
_THIS = {
    "morning": "this morning|heute? (?:morgen|fruh|vormittag)|ce matin|esta manana",
    "afternoon": "this afternoon|heute nachmittag|cet apres midi|esta tarde",
    "evening": "this evening|heute abend|ce soir",
    "night": "last (?:night|nite)|all night|tonight|overnight|over night|during the night"
    "|letzte nacht|die ganze nacht|heute? nacht|vergangene nacht|uber nacht|in der nacht|cette nuit"
    "|la nuit derniere|toute la nuit|la nuit|toda la noche|anoche"
    "|esta noche|la noche pasada|durante la noche|(?:en |de )?(?:la )?madrugada",
}
_LAST = (
    r"(?:(?:in|over|within|during|for|wahrend|innerhalb|pendant|durante|im|in|en|au cours)\s)?"
    r"(?:the |der |den |des |die |dem |les |la |le |l |las |los |el |de )*"
    r"(?:last|past|previous|letzte[nrsm]?|vergangene[nrsm]?|derniere?s?|ultim[oa]s?)"
)
_UNIT_WORDS = {
    60.0: "minute|minuto",
    3600.0: "hour|stunde|heure|hora",
    86400.0: "day|tag|jour|dia|24 hours",
    7 * 86400.0: "week|woche|semaine|semana",
    30 * 86400.0: "month|monat|mois|mes",
}
_ARTICLE = (
    r"(?:the |at |on |um |am |a las |a la |a l |las |la |los |el |les |le |l |den |der |dem |des "
    r"|a |de )*"
)


class Reading(NamedTuple):
    """Hold the time that a request names, and which of its tokens name it."""

    span: Span
    used: frozenset[int]


class _Text:
    """Hold a request as one string in which numbers are marks that lead back to their tokens."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens = tokens
        words = [_mark(i, token) for i, token in enumerate(tokens)]
        self.string = " ".join(words)
        self._starts = [0]
        for word in words:
            self._starts.append(self._starts[-1] + len(word) + 1)

    def used(self, match: re.Match[str]) -> frozenset[int]:
        return frozenset(
            i for i in range(len(self.tokens)) if match.start() <= self._starts[i] < match.end()
        )


def _mark(number: int, token: Token) -> str:
    mark = {"number": "n", "quantity": "q", "time": "t"}.get(token.kind)
    if mark == "t" and "-" in token.norm:
        mark = "d"
    return f"{mark}#{number}" if mark else unaccented(token.norm) or "?"


_DAY = (
    "(?P<day{0}>(?:(?:on|am|le|el|last|letzten?|den|dem|this|diesen|the|vom|du|del) )*(?:"
    + "|".join([*_DAYS.values(), *_WEEKDAYS, "d#\\d+"])
    + r")(?: (?:dernier|pasado))?(?: s\\b)?)"
)
_PART = (
    r"(?:(?:in the|at|por la|de la|en la|am|au|dans la) )?(?P<part{0}>"
    + "|".join(words for _, words in PARTS.values())
    + ")"
)
_CLOCK = (
    "(?P<clock{0}>"
    + "|".join(_POINTS.values())
    + r"|[ntq]#\d+(?: (?:uhr|heures|horas|o clock|h|am|pm)\b)?)"
    + r"(?P<half{0}> (?:in the|de la|du|am|por la) (?:morning|afternoon|evening|night|manana|tarde"
    r"|noche|matin|soir)| nachts| morgens| fruh| abends| nachmittags| vormittags)?"
)


def _moment(name: str) -> str:
    """Return a pattern of a moment: a day, a part of a day, a time of day, or several of these."""
    day, clock, part = _DAY.format(name), _CLOCK.format(name), _PART.format(name)
    this = "|".join(f"(?:{words})" for words in _THIS.values())
    return (
        rf"{_ARTICLE}(?:(?P<this{name}>{this})|{day}(?: {part})?"
        rf"(?: {_ARTICLE}{clock})?|{clock.replace(f'{name}>', f'{name}_>')}"
        rf"(?: (?:of |von |de |d )?{_ARTICLE}{day.replace(f'{name}>', f'{name}_>')}"
        rf"(?: {part.replace(f'{name}>', f'{name}_>')})?)?)"
    )


_SINCE = re.compile(
    rf"\b(?:since|from|starting|after|seit|ab|von|nach|depuis|a partir de|apres|desde|a partir de)"
    rf" {_moment('a')}(?! (?:to|until|till|bis|a|au|jusqu|hasta) )"
)
_BETWEEN = re.compile(
    rf"(?:(?:{_DAY.format('d')}) )?\b(?:between|from|zwischen|von|vom|entre|de|del|du|desde)"
    rf" {_moment('a')}"
    rf" (?:and|to|until|till|und|bis|zum|auf|et|a|au|al|y|jusqu a|hasta) {_moment('b')}"
)
_NIGHT_TO = re.compile(
    rf"\b(?:night|nacht|nuit|noche) (?:(?:from|of|von|vom|de|du|del) )*{_DAY.format('a')}"
    rf" (?:to|and|auf|zum?|au|a|al|y) {_DAY.format('b')}"
)
"""A night that is named by both its days."""
_LAST_N = re.compile(
    rf"\b(?:{_LAST} q#(?P<q>\d+)|q#(?P<q2>\d+) (?:derniere?s?|ultim[oa]s?)"
    rf"|(?P<n>n#\d+) (?:derniere?s?|ultim[oa]s?)"
    r" (?P<unit>heures?|minutes?|jours?|horas?|minutos?|dias?)"
    r"|(?:since|seit|depuis|desde hace|for|these|diesen?|ces|estas|estos) q#(?P<q3>\d+))"
)
_LAST_ONE = re.compile(
    rf"\b{_LAST} (?P<unit>{'|'.join(_UNIT_WORDS.values())})(?!n?ende?\b)"
    r"|\b(?P<unit2>heure|semana|semaine|mes|mois|hora) (?:derniere?|pasad[oa]|passee?)"
)
_THIS_WEEK = re.compile(
    r"\b(?:(?P<week>this week|the week|diese[rn]? woche|die woche|c(?: ?t|ett)e semaine|la semaine"
    r"|esta semana|la semana)(?! (?:last|past|before|ago|davor|zuvor|derniere|passee|pasada"
    r"|anterior))"
    r"|\b(?P<month>laufenden monat|dieses monats|this month|the month|diesen monat"
    r"|diesem monat|im monat|ce mois(?: ci)?"
    r"|este mes|al mes|du mois|del mes|des monats|of the month|mtd"
    r"|monatsanfang|monatsbeginn|desde principios de mes)(?! (?:before|davor|anterior))"
    r"|\b(?P<weekend>(?:(?:at|on|over|am|over|last|letztes|ce|este|el|le|the|this|dieses) )*"
    r"(?:weekend|wochenende|week end|fin de semana|finde)(?: (?:dernier|pasado))?"
    r"(?: (?:of|vom|du|del) (?:the )?(?P<of>d#\d+))?)"
    r"|\b(?P<ever>ever|of all time|all time|(?<!year )(?<!month )(?<!week )so far(?! this)"
    r"|jemals|uberhaupt|de tout temps|jamas visto"
    r"|de todos los tiempos|since ever)"
    r"|(?P<boot>(?:since|seit|depuis|desde) (?:(?:the|dem|der|le|la|el) )?(?:last |letzten )?"
    r"(?:startup|start up|boot|reboot|restart|start|neustart|systemstart|hochfahren|demarrage"
    r"|redemarrage|arranque|reinicio|encendido)))\b"
)
_MONTHS = (
    "january|januar|janvier|enero", "february|februar|fevrier|febrero|feb",
    "march|marz|mars|marzo", "april|avril|abril|apr", "may|mai|mayo", "june|juni|juin|junio",
    "july|juli|juillet|julio", "august|aout|agosto|aug",
    "september|septembre|septiembre|setiembre|sep|sept", "october|oktober|octobre|octubre|oct|okt",
    "november|novembre|noviembre|nov", "december|dezember|decembre|diciembre|dec|dez",
)  # fmt: skip
_HALF_YEAR = "semester|semestre|halbjahr|half year"
_SEASONS = {
    3: "spring|fruhling|fruhjahr|printemps|primavera", 6: "summer|sommer|ete|verano",
    9: "autumn|fall|herbst|automne|otono", 12: "winter|hiver|invierno",
}  # fmt: skip
"""Seasons by their first month."""
_SEASON = re.compile(
    r"\b(?:(?P<since>since|seit|depuis|desde) )?(?:(?:the|this|last|im|in|letzten?|diesen?|dem|der"
    r"|dernier|cet|cette|l|le|la|el|en|este|pasad[oa]) )+"
    rf"(?P<season>{'|'.join(_SEASONS.values())})\b"
)
_HALF = re.compile(
    r"\b(?:in |im |en |todo |el |le |la |au |ce |du )*(?P<which>this|the|dieses|diesem|ce|este|el"
    rf"|last|letzte[sn]?|vorige[sn]|dernier)? ?(?:{_HALF_YEAR})(?P<past> (?:dernier|pasado))?\b"
)
_LASTS = re.compile(r"last|letzte|vorige|dernier|pasado")
_MONTH, _ORDINAL = re.compile("|".join(_MONTHS)), re.compile(r"(\d\d?)(?:st|nd|rd|th|er|eme)")
_CALENDAR = re.compile(
    r"\b(?:(?P<since>since|seit|depuis|desde) )?(?P<led>(?:(?:in|during|for|im|fur|den|dem|en|au|le"
    r"|mois|de|d|the|month|of|this|last|letzten|diesen|pasado|mes|el) )*)"
    rf"(?:(?P<name>{'|'.join(_MONTHS)})|(?P<quarter>(?:(?:this|dieses|diesem|ce|este|le|el) "
    r"(?:quarter|quartal|trimestre)))|(?P<before>(?:last|previous|letztes|letzten|vergangenen"
    r"|dernier|ultimo) (?:quarter|quartal|trimestre)|(?:trimestre) (?:dernier|pasado|anterior))"
    r"|q n#(?P<number>\d+)|(?P<year>(?:this|dies|dieses|diesem|cette|este|laufenden)"
    r" (?:year|jahr|annee|ano)|heuer|ytd|jahresbeginn|year to date"
    r"|(?:the )?(?:start|beginning) of (?:the|this) year|(?:le )?debut de (?:l )?annee"
    r"|(?:principios|inicios|comienzos) de(?:l)? ano|que empezo el ano)"
    r"|(?P<past>(?:last|previous|letzte[sn]|vorige[sn]|vergangene[sn]) (?:year|jahr)"
    r"|(?:l )?(?:an|annee) (?:derniere?|passee?)|(?:el )?ano pasado|vorjahr))\b"
)
_AGO = re.compile(
    r"\b(?:q#(?P<q>\d+) (?:ago|before now)|(?:an?|one) (?P<one>minute|hour|day|week) ago"
    r"|vor q#(?P<q2>\d+)|(?:il y a) q#(?P<q3>\d+)|hace q#(?P<q4>\d+)"
    r"|(?:vor einer|hace una?|il y a une) (?P<one2>stunde|hora|heure|woche|semana|semaine|minute"
    r"|minuto))"
)
_NEAR = re.compile(
    r"\b(?<!what )(?<!how )(?:around|about|approximately|roughly|near|gegen"
    r"|ungefahr um|etwa um|vers|aux alentours de"
    rf"|sobre|hacia|alrededor de) {_moment('a')}"
)
_AT = re.compile(rf"(?<!\w)(?:\b(?:at|um|a|a las|a la|as of|on|am|le|el) )?{_moment('a')}")

_ONE_THING = re.compile(
    r"(?<!\w)(?:la|le|el|die|der|den|dem) n#(\d+)\b(?! (?:uhr|heures|horas|o clock|h|am|pm)\b)"
)
"""A number behind a singular article is a thing; hours are in the plural or have none."""


_COUNTED = re.compile(
    r"gpus|cards|karten|grafikkarten|cartes|tarjetas|graficas|placas|jobs|tasks|runs|auftragen?"
    r"|taches|tareas|trabajos|users|groups|gruppen|groupes|grupos|prozessen?|processes"
)
"""What a number counts, so that it is no hour."""


def read_time(tokens: Sequence[Token], now: float) -> Reading | None:
    """Return the time that a request names, or None."""
    text = _Text(_dated(tokens, now))
    for pattern, resolve in _FORMS:
        match = pattern.search(text.string)
        while match is not None:
            if _names_cards(match, text):
                match = pattern.search(text.string, match.start() + 1)
                continue
            span = resolve(match, text, now)
            if span is not None and span.since < span.until + 1 and span.since <= now:
                return Reading(_until(span, now), text.used(match))
            # what begins with a number, as in "gpu 1 yesterday", may be a time from the next word
            match = pattern.search(text.string, match.start() + 1)
    return None


def words_of_time(text: str, now: float) -> tuple[str, ...]:
    """Return the words of a text that name a time; none if none do."""
    parts = tokens(text)
    found = read_time(parts, now)
    return tuple(parts[i].text for i in sorted(found.used)) if found is not None else ()


_PERIODS = {
    1 / 24: "hourly|stundlich",
    1: r"daily|tages\w|taglich|quotidien|journalier|diari[oa]",
    7: r"weekly|wochen(?!ende)\w|wochentlich|hebdo|semanal",
    30: r"monthly|monats\w|monatlich|mensuel|mensual",
    91: r"quarterly|quartals\w|vierteljahr|trimestriel|trimestral",
    365: r"yearly|annual|jahres\w|jahrlich|annuel|anual",
}
"""The words that say how long a time a report covers, by its days."""


def read_period(text: str, now: float) -> Span | None:
    """Return the time that a weekly, monthly or other regular report covers, or None."""
    said = unaccented(text.casefold())
    for days, words in _PERIODS.items():
        if re.search(rf"\b(?:{words})", said):
            return Span(now - days * _SECONDS["d"], now)
    return None


def _dated(tokens: Sequence[Token], now: float) -> list[Token]:
    """Return the tokens with dates in place of days of a month: `3 November`, `the 14th`."""
    found = list(tokens)
    for i, token in enumerate(tokens):
        ordinal = _ORDINAL.fullmatch(token.norm)
        day = int(ordinal[1]) if ordinal else int(token.value) if token.kind == "number" else 0
        month = next((at for at in (i + 1, i + 2, i - 1) if 0 <= at < len(tokens)
                      and _MONTH.fullmatch(tokens[at].norm)
                      and (at != i + 2 or tokens[i + 1].norm in ("of", "de"))), None)  # fmt: skip
        if not ordinal and (month is None or tokens[month].norm == "may"):
            continue  # "job 3 may start"
        date = _date(day, tokens[month].norm if month is not None else "", now)
        if date is not None:
            first, last = sorted((i, i if month is None else month))
            year = tokens[last + 1] if last + 1 < len(tokens) else None
            if year is not None and year.kind == "number" and 2000 <= year.value < 2100:
                date = _of_year(date, int(year.value))
                found[last + 1] = year._replace(kind="word", norm="den")
            _date_before(found, i, date)
            found[first:last] = [token._replace(kind="word", norm="den")] * (last - first)
            found[last] = token._replace(kind="time", norm=f"{date:%Y-%m-%d}")
    return found


def _of_year(date: datetime, year: int) -> datetime:
    """Return the same day of another year; 28 February where it has no 29th."""
    return date.replace(year=year, day=min(date.day, monthrange(year, date.month)[1]))


_TO = frozenset({"to", "bis", "zum", "au", "al", "until", "hasta", "and", "und", "et", "y", "auf"})


def _date_before(found: list[Token], number: int, end: datetime) -> None:
    """Put a date in place of the first day of `13 to 26 November`, whose month stands behind."""
    words = [at for at in range(number - 1, -1, -1) if found[at].norm not in ("den", "the", "le")]
    if len(words) < 2 or found[words[0]].norm not in _TO or found[words[1]].kind != "number":
        return
    day = int(found[words[1]].value)
    if 1 <= day < end.day:
        date = end.replace(day=day)
        found[words[1]] = found[words[1]]._replace(kind="time", norm=f"{date:%Y-%m-%d}")


def _date(day: int, month: str, now: float) -> datetime | None:
    """Return the newest day of that number, in a month if it is named."""
    today = _midnight(now)
    number = next((n for n, names in enumerate(_MONTHS, 1) if month in names.split("|")), 0)
    for back in range(12):
        at = (today.year * 12 + today.month - 1) - back
        year, of_year = divmod(at, 12)
        if number in (0, of_year + 1) and 1 <= day <= monthrange(year, of_year + 1)[1]:
            found = today.replace(year=year, month=of_year + 1, day=day)
            if found <= today:
                return found
    return None


def _names_cards(match: re.Match[str], text: _Text) -> bool:
    """Return whether its bare numbers name or count GPUs: `de la 4 a la 7`, `las ocho tarjetas`."""
    for found in _ONE_THING.finditer(match[0]):
        if text.tokens[int(found[1])].value != 1:  # "la 1" is an hour, too
            return True
    last = max(text.used(match), default=0) + 1
    behind = text.tokens[last].norm if last < len(text.tokens) else ""
    if behind in ("que", "mas") and re.fullmatch(r"las n#\d+", match[0]):
        return True  # "las dos que más se calientan"
    for i in text.used(match):
        behind = text.tokens[i + 1].norm if i + 1 < len(text.tokens) else ""
        counts = text.tokens[i].kind == "number" and behind.endswith(("s", "en"))
        if counts and _COUNTED.fullmatch(behind):
            return True
    return False


def _until(span: Span, now: float) -> Span:
    """Return the span without what has not happened yet."""
    return span if span.point else Span(span.since, min(span.until, now))


def _between(match: re.Match[str], text: _Text, now: float) -> Span | None:
    clocks = f"{_clock(match, 'a')} {_clock(match, 'b')}"
    if re.match(r"(?:du|del|vom) ", match[0]) and re.fullmatch(r"n#\d+ n#\d+", clocks):
        return None  # days of the month; hours have a sign behind these words
    outer = match.group("dayd")
    first = _resolve(match, "a", text, now, outer)
    last = _resolve(match, "b", text, now, outer)
    if first is None or last is None:
        return None
    if _clock(match, "a") is None and _clock(match, "b") is None:
        return Span(first.since, last.until)
    day = _has_day(match, "a") or _has_day(match, "b") or bool(outer)
    start, end = _pair(match, text, now, outer)
    if end <= start:  # over midnight
        end += timedelta(days=1)
    while not day and start.timestamp() > now:
        start, end = start - timedelta(days=1), end - timedelta(days=1)
    return Span(start.timestamp(), end.timestamp())


def _pair(
    match: re.Match[str], text: _Text, now: float, outer: str | None
) -> tuple[datetime, datetime]:
    """Return both ends; `between 2 and 4pm` has an afternoon for both."""
    day_a = _day(_named(match, "day", "a") or _named(match, "day", "b") or outer, text, now)
    day_b = _day(_named(match, "day", "b") or _named(match, "day", "a") or outer, text, now)
    hour_a, minute_a, half_a = _hour(_clock(match, "a"), text)
    hour_b, minute_b, half_b = _hour(_clock(match, "b"), text)
    for name in ("b", "a"):
        part = _named(match, "part", name) or _named(match, "half", name)
        if part and re.search(r"afternoon|evening|nachmittag|abend|soir|tarde|apres", part):
            half_a, half_b = half_a or "p", half_b or "p"
            hour_b += 12 if hour_b < 12 else 0
            break
    if (half_b and not half_a and hour_a < 12 and hour_b >= 12 and hour_a + 12 < hour_b) or (
        half_b == "p" and half_a == "p" and hour_a < 12
    ):
        hour_a += 12
    return (
        day_a + timedelta(hours=hour_a, minutes=minute_a),
        day_b + timedelta(hours=hour_b, minutes=minute_b),
    )


def _night_to(match: re.Match[str], text: _Text, now: float) -> Span | None:
    return _part(_day(match["daya"], text, now), "night")


def _since(match: re.Match[str], text: _Text, now: float) -> Span | None:
    found = _resolve(match, "a", text, now)
    return None if found is None else Span(found.since, now)


def _last_n(match: re.Match[str], text: _Text, now: float) -> Span | None:
    if (named := match.group("n")) is not None:
        count = text.tokens[int(named[2:])].value
        seconds = next(s for s, words in _UNIT_WORDS.items() if re.match(words, match["unit"]))
        return Span(now - count * seconds, now)
    token = text.tokens[int(match["q"] or match["q2"] or match["q3"])]
    if match[0].startswith("depuis") and token.unit == "h" and token.value >= _CLOCK_FROM:
        at = _midnight(now) + timedelta(hours=token.value)  # "depuis 22h" is a time of the clock
        return Span((at - timedelta(days=at.timestamp() > now)).timestamp(), now)
    return Span(now - token.value * _SECONDS[token.unit], now) if token.unit in _SECONDS else None


def _last_one(match: re.Match[str], text: _Text, now: float) -> Span | None:
    unit = match["unit"] or match["unit2"]
    seconds = next(s for s, words in _UNIT_WORDS.items() if re.match(words, unit))
    return Span(now - seconds, now)


def _this(match: re.Match[str], text: _Text, now: float) -> Span | None:
    midnight = _midnight(now)
    if match["ever"]:
        return Span(0.0, now)
    if match["boot"]:
        return Span(now - time.clock_gettime(time.CLOCK_BOOTTIME), now)
    if match["week"]:
        return Span((midnight - timedelta(days=midnight.weekday())).timestamp(), now)
    if match["month"]:
        return Span(midnight.replace(day=1).timestamp(), now)
    midnight = _day(match["of"], text, now)
    saturday = midnight - timedelta(days=(midnight.weekday() - 5) % 7)
    return Span(saturday.timestamp(), (saturday + timedelta(days=2)).timestamp())


_RECENTLY = re.compile(
    r"\b(?:lately|recently|these days|the last few days|in letzter zeit|neulich|kurzlich"
    r"|die letzten tage|ces derniers temps|ces derniers jours|recemment|dernierement"
    r"|the other day|neulich|l autre jour|el otro dia"
    r"|ultimamente|recientemente|estos dias|los ultimos dias)\b"
)
_OF_LAST_WEEK = re.compile(
    rf"\b(?P<weekday>{'|'.join(_WEEKDAYS)})s?(?: (?:of|der|de|del|la))*"
    r" (?:last week|(?:letzte|vorige|vergangene)[rn]? woche|semaine (?:derniere|passee)"
    r"|semana pasada)\b"
)


def _recently(match: re.Match[str], text: _Text, now: float) -> Span | None:
    """Return the last week, which is what recent times are taken for."""
    return Span(now - _SECONDS["week"], now)


def _of_last_week(match: re.Match[str], text: _Text, now: float) -> Span | None:
    midnight = _midnight(now)
    number = next(i for i, words in enumerate(_WEEKDAYS) if match["weekday"] in words.split("|"))
    return _whole(midnight - timedelta(days=midnight.weekday() + 7 - number))


def _calendar(match: re.Match[str], text: _Text, now: float) -> Span | None:
    """Return a month, a quarter or a year that has begun: the last one of its name."""
    today = _midnight(now).replace(day=1)
    if match["name"]:
        if match["name"] == "may" and not (match["led"] or match["since"]):
            return None  # a verb
        month = 1 + next(i for i, names in enumerate(_MONTHS) if match["name"] in names.split("|"))
        length = 1
    else:
        month, length = (today.month - 1) // 3 * 3 + 1, 3
        if match["year"] or match["past"]:
            month, length = 1, 12
            today = today.replace(year=today.year - bool(match["past"]))
        elif match["number"]:
            month = int(text.tokens[int(match["number"])].value) * 3 - 2
            if not 1 <= month <= 10:
                return None
        elif match["before"]:
            month -= 3
    year = today.year - (month < 1 or month > today.month)
    begin = today.replace(year=year, month=(month - 1) % 12 + 1)
    last = begin.month + length
    end = begin.replace(year=begin.year + (last > 12), month=(last - 1) % 12 + 1)
    return Span(begin.timestamp(), now if match["since"] else end.timestamp())


def _season(match: re.Match[str], text: _Text, now: float) -> Span | None:
    """Return the newest season of its name that has begun: three months."""
    first = next(month for month, words in _SEASONS.items() if match["season"] in words.split("|"))
    today = _midnight(now).replace(day=1)
    begin = today.replace(month=first)
    begin = begin.replace(year=today.year - (begin.timestamp() > now))
    end = (begin + timedelta(days=95)).replace(day=1)
    return Span(begin.timestamp(), now if match["since"] else end.timestamp())


def _half(match: re.Match[str], text: _Text, now: float) -> Span | None:
    """Return this half of the year, or the last one."""
    today = _midnight(now).replace(day=1)
    begin = today.replace(month=1 if today.month < 7 else 7)
    past = _LASTS.match(match["which"] or "") or match["past"]
    if not past:
        return Span(begin.timestamp(), now)
    before = (begin - timedelta(days=1)).replace(day=1)
    before = before.replace(month=1 if before.month < 7 else 7)
    return Span(before.timestamp(), begin.timestamp())


def _ago(match: re.Match[str], text: _Text, now: float) -> Span | None:
    if word := match["one"] or match["one2"]:
        back = next(s for s, words in _UNIT_WORDS.items() if re.match(words, word))
    else:
        token = text.tokens[int(match["q"] or match["q2"] or match["q3"] or match["q4"])]
        if token.unit not in _SECONDS:
            return None
        back = token.value * _SECONDS[token.unit]
    if back < _SECONDS["d"]:
        return Span(now - back, now - back, point=True)
    day = _midnight(now - back)  # who counts days does not mean this minute of the day
    around = timedelta(days=back >= 2 * _SECONDS["week"])
    return Span((day - around).timestamp(), (day + timedelta(days=1) + around).timestamp())


def _near(match: re.Match[str], text: _Text, now: float) -> Span | None:
    found = _resolve(match, "a", text, now)
    if found is None:
        return None
    if found.point:
        return Span(found.since - _AROUND_S, found.since + _AROUND_S)
    return found


def _at(match: re.Match[str], text: _Text, now: float) -> Span | None:
    clock = _clock(match, "a")
    bare = clock is not None and clock[:2] in ("n#", "q#")
    behind_day = match["daya"] is not None
    led = r"(?:at|um|a las|a la|las) |a q#"
    if bare and not (
        re.search(rf" (?:{led})", match[0]) if behind_day else re.match(led, match[0])
    ):
        return None
    if bare and clock is not None and clock.startswith("q#"):
        token = text.tokens[int(clock.split()[0][2:])]
        if token.unit != "h":
            return None
    if bare and clock is not None and clock.startswith("n#") and not _is_hour(clock, text):
        return None
    first = min(text.used(match), default=0)
    if bare and not behind_day and first and text.tokens[first - 1].kind == "number":
        return None  # the end of a list, as in: de 2 a 5
    return _resolve(match, "a", text, now)


def _is_hour(clock: str, text: _Text) -> bool:
    value = text.tokens[int(clock.split(maxsplit=1)[0][2:])].value
    return value == int(value) and 0 <= value <= 24


_FORMS = (
    (_OF_LAST_WEEK, _of_last_week),
    (_RECENTLY, _recently),
    (_LAST_N, _last_n),
    (_NIGHT_TO, _night_to),
    (_BETWEEN, _between),
    (_AGO, _ago),
    (_NEAR, _near),
    (_SINCE, _since),
    (_LAST_ONE, _last_one),
    (_THIS_WEEK, _this),
    (_CALENDAR, _calendar),
    (_SEASON, _season),
    (_HALF, _half),
    (_AT, _at),
)


def _named(match: re.Match[str], kind: str, name: str) -> str | None:
    groups = match.groupdict()
    return groups.get(f"{kind}{name}") or groups.get(f"{kind}{name}_")


def _clock(match: re.Match[str], name: str) -> str | None:
    return _named(match, "clock", name)


def _has_day(match: re.Match[str], name: str) -> bool:
    return bool(_named(match, "day", name) or _named(match, "this", name))


def _resolve(
    match: re.Match[str], name: str, text: _Text, now: float, outer: str | None = None
) -> Span | None:
    """Return the span or the point that a moment names; a clock alone is the last such time."""
    this, clock = _named(match, "this", name), _clock(match, name)
    if this:
        return _part_of_today(this, now)
    named = _named(match, "day", name) or outer
    if clock is None:
        if named is None:
            return None
        day, part = _day(named, text, now), _named(match, "part", name)
        token = _time_token(named, text)
        if token is not None and len(token.norm) > 10:
            at = datetime.fromisoformat(token.norm.replace(" ", "T").upper())
            return Span(at.timestamp(), at.timestamp(), point=True)
        return _part(day, part) if part else _whole(day)
    try:
        hour, minute, half = _hour(clock, text)
    except ValueError:
        return None
    part = _named(match, "part", name) or _named(match, "half", name) or ""
    later = re.search(r"afternoon|evening|night|nachmittag|abend|soir|tarde|noche|apres", part)
    if later and hour < 12 and not half:
        hour += 12
    day = _day(named, text, now)
    at = day + timedelta(hours=hour, minutes=minute)
    while not named and at.timestamp() > now:
        at -= timedelta(days=1)
    return Span(at.timestamp(), at.timestamp(), point=True)


def _time_token(mark: str, text: _Text) -> Token | None:
    found = re.search(r"d#(\d+)", mark)
    return text.tokens[int(found[1])] if found else None


def _hour(clock: str | None, text: _Text) -> tuple[int, int, str]:
    """Return hour, minute and the half of the day, `a` or `p`, if it is named."""
    if clock is None:
        return 0, 0, ""
    for fixed, words in _POINTS.items():
        if re.fullmatch(words, clock):
            return int(fixed[:2]), 0, "p" if fixed == "12:00" else "a"
    mark, _, more = clock.partition(" ")
    token = text.tokens[int(mark[2:])]
    if token.kind in ("number", "quantity"):
        hour, half = int(token.value), more[:1] if more in ("am", "pm") else ""
        minute = 0
    else:
        found = re.match(r"(\d{1,2})(?:[:h](\d\d))?\s?([ap])?", token.norm)
        if found is None or "-" in token.norm:
            raise ValueError("a day is no time of day")
        hour, minute, half = int(found[1]), int(found[2] or 0), found[3] or ""
    if hour > 24 or minute > 59:
        raise ValueError("there is no such time")
    if half:
        hour = hour % 12 + (12 if half == "p" else 0)
    return hour, minute, half


def _midnight(now: float) -> datetime:
    return datetime.fromtimestamp(now).replace(hour=0, minute=0, second=0, microsecond=0)


def _day(named: str | None, text: _Text, now: float) -> datetime:
    """Return the midnight at which a day begins; today's without a name."""
    midnight = _midnight(now)
    if not named:
        return midnight
    for offset, words in sorted(_DAYS.items()):
        if re.search(rf"\b(?:{words})\b", named):
            return midnight + timedelta(days=offset)
    for number, words in enumerate(_WEEKDAYS):
        if re.search(rf"\b(?:{words})\b", named):
            return midnight - timedelta(days=(midnight.weekday() - number) % 7 or 7)
    token = _time_token(named, text)
    if token is not None and "-" in token.norm:
        return datetime.fromisoformat(token.norm[:10])
    return midnight


def _whole(day: datetime) -> Span:
    return Span(day.timestamp(), (day + timedelta(days=1)).timestamp())


def _part(day: datetime, words: str) -> Span:
    for (first, last), names in PARTS.values():
        if re.search(rf"(?:{names})$", words):
            begin, end = day + timedelta(hours=first), day + timedelta(hours=last)
            return Span(begin.timestamp(), end.timestamp())
    return _whole(day)


def _part_of_today(words: str, now: float) -> Span:
    midnight = _midnight(now)
    for name, pattern in _THIS.items():
        if re.fullmatch(pattern, words):
            first, last = PARTS[name][0]
            day = midnight - timedelta(days=1) if name == "night" else midnight
            begin, end = day + timedelta(hours=first), day + timedelta(hours=last)
            if begin.timestamp() > now:
                begin = midnight  # "this morning" before six
            return Span(begin.timestamp(), end.timestamp())
    return _whole(midnight)
