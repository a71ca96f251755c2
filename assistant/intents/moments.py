"""Read moments that are to come, and lengths of time, as the options of a job take them."""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import datetime, timedelta

from gpudeck.assistant.intents.number_words import tens_and_ones

NUMBERS = {
    word: number
    for words in (
        "a two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
        "sixteen seventeen eighteen nineteen twenty",
        "ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn "
        "sechzehn siebzehn achtzehn neunzehn zwanzig",
        "un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize "
        "dix-sept dix-huit dix-neuf vingt",
        "una dos tres cuatro cinco seis siete ocho nueve diez once doce trece catorce quince "
        "dieciséis diecisiete dieciocho diecinueve veinte",
    )
    for number, word in enumerate(words.split(), 1)
} | {"an": 1, "one": 1, "eine": 1, "einer": 1, "einen": 1, "einem": 1, "une": 1, "once": 1,
     "twice": 2, "both": 2, "beiden": 2, "beide": 2, "ambas": 2,
     "ambos": 2, "zweimal": 2, "dreimal": 3, "einmal": 1} | dict(tens_and_ones())  # fmt: skip
NUMBER = r"(?:\d+(?:[.,]\d+)?|" + "|".join(sorted(NUMBERS, key=len, reverse=True)) + ")"
_UNITS = {
    "s": r"s(?:ec(?:s|onds?)?|ek(?:unden?)?|econdes?|egundos?)?",
    "min": r"m(?:in(?:s|utes?|uten?|utos?)?)?",
    "h": r"h(?:(?:ou)?rs?|eures?|oras?)?|hours?|std|stunden?",
    "d": r"d(?:ays?|[ií]as?)?|tage?n?|jours?|j",
}
LENGTH = (
    rf"(?P<length>(?:half an hour|(?:eine )?halbe stunde|une demi[- ]heure|media hora"
    rf"|{NUMBER}\s?(?:{'|'.join(_UNITS.values())})))\b"
)
_HALF = re.compile(r"half|halbe|demi|media")
_DAYS = {
    1: r"tomorrow|morgen|demain|ma[nñ]ana",
    0: r"tonight|today|heute?|ce soir|cette nuit|aujourd'?hui|esta noche|hoy",
}
_WEEKDAYS = (
    "monday|montag|lundi|lunes", "tuesday|dienstag|mardi|martes",
    r"wednesday|mittwoch|mercredi|mi[eé]rcoles", "thursday|donnerstag|jeudi|jueves",
    "friday|freitag|vendredi|viernes", r"saturday|samstag|sonnabend|samedi|s[aá]bado",
    "sunday|sonntag|dimanche|domingo",
)  # fmt: skip
_POINTS = {"12:00": r"\b(?:noon|mittags?|midi|mediod[ií]a)\b",
           "00:00": r"\b(?:midnight|mitternacht|minuit|medianoche)\b"}  # fmt: skip
_EVENING = r"tonight|heute (?:abend|nacht)|ce soir|cette nuit|esta noche"
_PARTS = (
    r"(?:morning|evening|night|fr[uü]h|vormittag|nachmittag|abend|nacht|matin|soir"
    r"|apr[eè]s-midi|por la (?:ma[nñ]ana|tarde|noche)|de la (?:ma[nñ]ana|tarde|noche)"
    r"|(?:en|a) la (?:ma[nñ]ana|tarde|noche)|am (?:morgen|vormittag|nachmittag|abend)"
    r"|du matin|du soir|in the (?:morning|evening|afternoon)|at night)"
)
_LATE = re.compile(r"evening|night|abend|nacht|soir|nuit|noche|tarde|afternoon|nachmittag|apr[eè]s")
_DEEP = ("night", "nacht", "nuit", "noche")
_DAY = rf"(?P<day>{_EVENING}|{'|'.join((*_DAYS.values(), *_WEEKDAYS))})(?: {_PARTS})?"
_CLOCK = (
    r"(?<!\d)(?P<hour>\d{1,2})(?:(?:[:.]|\s?h\s?)(?P<minute>\d\d))?"
    r"\s?(?P<half>[ap]\.?m\.?|uhr|heures?|h|o'?clock|horas?)?(?![\w:])"
)
_MONTHS = (
    r"jan(?:uar[y]?|vier|\.)?|ene(?:ro)?", r"feb(?:ruar[y]?|rero|\.)?|f[eé]v(?:rier|\.)?",
    r"mar(?:ch|s|zo|\.)?|m[aä]rz", r"apr(?:il|\.)?|avr(?:il|\.)?|abr(?:il)?", r"ma[iy]o?",
    r"june?|juni|juin|junio", r"jul[iy]?|juillet|julio", r"aug(?:ust|\.)?|ao[uû]t|ago(?:sto)?",
    r"sep(?:t(?:ember|embre|iembre|\.)?|\.)?|setiembre", r"o[ck]t(?:ober|obre|ubre|\.)?",
    r"nov(?:ember|embre|iembre|\.)?", r"de[cz](?:ember|\.)?|d[eé]c(?:embre|\.)?|dic(?:iembre)?",
)  # fmt: skip
_NTH = r"(?P<{0}>\d{{1,2}})(?:st|nd|rd|th|er|\.)?"
_IN_YEAR = r"(?:,? (?:de |del )?(?P<{0}>20\d\d))?"
_DATE_FORMS = (
    r"(?P<y>20\d\d)-(?P<m>\d\d)-(?P<d>\d\d)",
    rf"{_NTH.format('d')} (?:of |de )?(?P<name>{'|'.join(_MONTHS)}){_IN_YEAR.format('y')}(?!\w)",
    rf"(?P<name>{'|'.join(_MONTHS)}) {_NTH.format('d')}{_IN_YEAR.format('y')}(?![\w:])",
    r"(?<!at )(?<!um )(?<!à )(?<!las )(?P<d>\d{1,2})\.(?P<m>0?[1-9]|1[0-2])\."
    r"(?P<y>20\d\d|\d\d(?!\d|:))?(?!\w)",
    r"(?P<d>\d{1,2})/(?P<m>\d{1,2})(?:/(?P<y>20\d\d))?(?![\w/])",
)
"""`2026-12-01`, `1 December 2026`, `December 1st`, `1.12.`, `1/12/2026`; not `at 8.10.`"""
_DATES = tuple(re.compile(rf"(?<![\w./])(?:(?:the|den|dem|le|el) )?{form}") for form in _DATE_FORMS)
_DAY_OF_MONTH = re.compile(
    r"(?<![\w./])(?:(?:the|zum|vom|am|den|dem|le|au|du|el|al|del) (?P<d>\d{1,2})"
    r"(?:st|nd|rd|th|er|\.)?|(?P<nth>\d{1,2})(?:st|nd|rd|th))"
    r"(?![\w:/-]|\.\d|\s?(?:h\b|uhr|o'?clock|heures?|horas?|[ap]\.?m))"
)
"""A day of this month or the next: `the 16th`, `am 16.`; hours have no such article."""
_WITH_YEAR = r"\d{1,2}/\d{1,2}/20\d\d(?![\w/])"
DATE = "(?:" + "|".join(
    (*(re.sub(r"\?P<\w+>", "?:", form) for form in _DATE_FORMS[:-1]), _WITH_YEAR)
) + ")"  # fmt: skip
"""A day of the calendar, as in `_DATE_FORMS`; `1/8` alone is more often a part."""
_AT = r"(?:at|um|gegen|[aà]|vers|a las?|las|around|by about)"
_SAID_DAY = _DAY.replace("?P<day>", "?:")
_TIME = r"\d{1,2}(?:(?:[:.]|\s?h\s?)\d\d)?\s?(?:[ap]\.?m\.?|uhr|heures?|h|o'?clock|horas?)?"
DATED = rf"{DATE}(?:,? {_AT} {_TIME}(?![\w:])|,?[ T]\d{{1,2}}[:h]\d\d(?!\d))?"
"""A date, and its time of the day where that cannot be the number of something else."""
MOMENT = (
    rf"(?P<moment>{DATE}(?:,?[ T](?:{_AT} )?{_TIME}(?![\w:]))?"
    rf"|(?:{_SAID_DAY},? )?(?:{_AT} )?{_TIME}(?![\w:])"
    rf"(?:,? (?:{_SAID_DAY}|{_PARTS}|(?:on |am |le |el )?(?:the )?{DATE}))?)"
)


_HOURS = NUMBERS | {"once": 11}
_NUMBER_WORDS = re.compile(
    rf"\b({'|'.join(sorted((one for one in _HOURS if len(one) > 2), key=len, reverse=True))})e?\b"
)
_QUARTERS = re.compile(
    r"\b(?P<before>halb|dreiviertel|viertel|half|(?:viertel|quarter|half) (?:nach|past)"
    r"|(?:viertel vor|quarter to)) ?(?P<hour>\d{1,2})e?\b"
    r"|\b(?P<hour_>\d{1,2})(?: ?h(?:eures?|oras?)?)? (?:et|y) "
    r"(?P<after>demie?|media|quart|cuarto)\b"
)
_PAST_HOUR = {"halb": -30, "dreiviertel": -15, "viertel": -45, "half": 30, "demi": 30, "demie": 30,
              "media": 30, "quart": 15, "cuarto": 15}  # fmt: skip


_HOUR_AND_MINUTE = re.compile(r"\b(\d{1,2}) ([1-5]\d)\b")
_FOUR_DIGITS = re.compile(r"(?<![\w-])(?!19|20)([01]\d|2[0-3])([0-5]\d)(?=\s*(?:h|uhr|$))")
"""A time of the clock without a mark, such as `2300`; no year, and no count of something."""


def is_to_come(text: str, now: float) -> bool:
    """Return whether a text names tomorrow, or a time of the clock that is still to come today."""
    said = text.casefold()
    if re.search(rf"\b(?:{_DAYS[1]})\b", said) and not _MORNING.search(said):
        return span_ahead(said, now) is not None
    if not (re.search(rf"\b(?:{_DAYS[0]})\b", said) and _IS_CLOCK.search(said)):
        return False
    found = span_ahead(said, now)
    today = datetime.fromtimestamp(now).date()
    return found is not None and datetime.fromtimestamp(found[0]).date() == today


def with_digits(text: str) -> str:
    """Return a text with its number words in digits: `the last 14 days`."""
    return _NUMBER_WORDS.sub(lambda match: str(_HOURS[match[1]]), text.casefold())


_LENGTHS = {"fortnight": "2 weeks", "quinzaine": "15 jours", "quincena": "15 días",
            "couple of": "2"}  # fmt: skip
"""Lengths of time that have a word of their own."""


def in_digits(text: str) -> str:
    """Return a text with its number words, its lengths of time and the quarters of its hours in
    digits: `in the past 2 weeks`, `since 2:30`."""
    said = text.casefold()
    for word, length in _LENGTHS.items():
        said = re.sub(rf"\b{word}\b", length, said)
    return _QUARTERS.sub(_in_digits, with_digits(said))


def _in_digits(match: re.Match[str]) -> str:
    """Return a time that is said by halves and quarters of an hour, such as `halb 4`, in digits."""
    said, hour = match["before"] or match["after"], int(match["hour"] or match["hour_"])
    first, _, behind = said.partition(" ")
    past = {"nach": 15, "past": 15, "vor": -15, "to": -15}.get(behind, _PAST_HOUR.get(first, 0))
    past = 30 if (first, behind) == ("half", "past") else past
    minutes = (hour * 60 + past) % (24 * 60)
    return f"{minutes // 60}:{minutes % 60:02d}"


_ZERO = frozenset({"zero", "zéro", "null", "cero"})
ARTICLES = frozenset({"a", "an", "ein", "eine", "einer", "einen", "einem", "un", "une", "una",
                       "once", "both", "beide", "beiden", "ambas", "ambos"})  # fmt: skip


def number_word(text: str) -> int | None:
    """Return the number that a word stands for, from zero on; an article and a count are none."""
    word = text.strip().casefold()
    return 0 if word in _ZERO else None if word in ARTICLES else NUMBERS.get(word)


def number_of(text: str) -> str:
    """Return a number in digits."""
    found = NUMBERS.get(text.casefold())
    return str(found) if found is not None else text.replace(",", ".")


def length_of(text: str) -> str:
    """Return a length of time as options take it, such as `4h`."""
    if _HALF.search(text.casefold()):
        return "30min"
    found = re.fullmatch(rf"({NUMBER})\s?(\S+)", text.strip(), re.IGNORECASE)
    if found is None:
        raise ValueError(text)
    unit = next(
        unit for unit, words in _UNITS.items() if re.fullmatch(words, found[2], re.IGNORECASE)
    )
    return f"{number_of(found[1])}{unit}"


def is_day(text: str) -> bool:
    """Return whether a text names a day, with a word such as `until` before it at most."""
    return re.fullmatch(rf"(?:[\w']+ )?{_DAY}", text.strip().casefold()) is not None


def is_whole_day(text: str) -> bool:
    """Return whether a text names a day and no part of it, with a word such as `for` at most."""
    days = "|".join((*_DAYS.values(), *_WEEKDAYS))
    said = text.strip().casefold()
    return re.fullmatch(rf"(?:[\w']+ )?(?:{days})", said) is not None and not is_evening(said)


def is_evening(text: str) -> bool:
    """Return whether a text names an evening or a night of today, which may be to come."""
    return re.search(_EVENING, text.casefold()) is not None


_NEXT_WEEK = re.compile(
    r"next week|(?:kommende|nächste)[nr]? woche|semaine (?:prochaine|qui vient)"
    r"|(?:próxima|proxima) semana|semana que viene"
)
_IS_CLOCK = re.compile(
    r"\d[:.]\d\d|\d\s?(?:h\b|uhr|heures|horas|[ap]\.?m|o'?clock)|\d{4}-\d\d"
    r"|\b(?:at|um|gegen|a las|à|vers|las|bis|by|before|until|avant|antes|vor|noon|midnight"
    r"|mittags?|mitternacht|midi|minuit|mediod[ií]a|medianoche)\b"
)
_EXACT_HOUR = re.compile(r"\d[:.]\d\d|\d\s?(?:uhr|heures|h\b|[ap]\.?m)|1[2-9]|2[0-4]|0\d")
_WEEKEND = re.compile(r"week-?end|wochenende|fin de semana|\bfinde\b")
_MORNING = re.compile(
    r"\b(?:heute?|(?:vor)?gestern|am|jeden|diesen|esta|la|ayer) (?:morgen|ma[nñ]ana)\b"
)
"""Mornings, whose word also stands for tomorrow."""
_PART_HOURS = ((6, 12), (12, 18), (18, 30))
"""The hours of a morning, an afternoon, and an evening or a night."""
_EARLY = re.compile(
    r"morning|fr[uü]h|vormittag|matin(?:ée)?|de la ma[nñ]ana|por la ma[nñ]ana|a\.?m\b"
)
_AFTERNOON = re.compile(r"afternoon|nachmittag|apr[eè]s-midi|por la tarde|de la tarde")


def span_ahead(text: str, now: float) -> tuple[float, float] | None:
    """Return the begin and the end of a time to come: a moment, a part of a day, a day, a week."""
    said = text.strip().casefold()
    today = datetime.fromtimestamp(now).replace(hour=0, minute=0, second=0, microsecond=0)
    if _NEXT_WEEK.search(said):
        monday = today + timedelta(days=7 - today.weekday())
        return monday.timestamp(), (monday + timedelta(days=7)).timestamp()
    if _WEEKEND.search(said):
        saturday = today + timedelta(days=(5 - today.weekday()) % 7)
        return max(saturday.timestamp(), now), (saturday + timedelta(days=2)).timestamp()
    try:
        if not (_IS_CLOCK.search(said) or re.search(_DAY, said)):
            raise ValueError(text)  # a number alone may count anything
        at = datetime.strptime(moment_of(said, now)[:16], "%Y-%m-%d %H:%M").timestamp()
    except ValueError:
        pass
    else:
        sooner = at - 12 * 3600.0  # said in the afternoon, "before 6" is before 18:00
        bare = not (re.search(_DAY, said) or _EXACT_HOUR.search(said) or _LATE.search(said))
        return (sooner, sooner) if bare and sooner > now else (at, at)
    named = re.search(_DAY, said)
    if named is None:
        return None
    day = today + timedelta(days=bool(re.fullmatch(_DAYS[1], named["day"])))
    for number, words in enumerate(_WEEKDAYS):
        if re.fullmatch(words, named["day"]):
            day = today + timedelta(days=(number - today.weekday()) % 7 or 7)
    part = 0 if _EARLY.search(said) else 1 if _AFTERNOON.search(said) else 2
    hours = _PART_HOURS[part] if part < 2 or _LATE.search(said) else (0, 24)
    begin, end = (day + timedelta(hours=hour) for hour in hours)
    return max(begin.timestamp(), now), end.timestamp()


_OF_DAY = re.compile(rf"\d|{_LATE.pattern}|{_EARLY.pattern}|{'|'.join(_POINTS.values())}")
"""A time of the day, or a part of it."""


def dated(text: str, now: float) -> tuple[datetime | None, str]:
    """Return the midnight of the date that a text names, and the text without it.

    A date without a year is the next one, today included; of two numbers the first is the day,
    unless it is none. Raises ValueError for a day that there is not, or that is past.
    """
    said = text.strip().casefold()
    today = datetime.fromtimestamp(now).replace(hour=0, minute=0, second=0, microsecond=0)
    for pattern in _DATES:
        if (found := pattern.search(said)) is None:
            continue
        part = found.groupdict()
        day, month = int(part["d"]), int(part.get("m") or 0)
        if name := part.get("name"):
            month = next(n for n, words in enumerate(_MONTHS, 1) if re.fullmatch(words, name))
        if month > 12 >= day:  # 12/25 is in the order of the United States
            day, month = month, day
        year = int(part.get("y") or today.year)
        at = datetime(year + 2000 * (year < 100), month, day)
        if not part.get("y") and at < today:
            at = datetime(year + 1, month, day)
        if at < today:
            raise ValueError(text)
        return at, f"{said[: found.start()]} {said[found.end() :]}"
    if (found := _DAY_OF_MONTH.search(said)) is None:
        return None, said
    return (_next_day(int(found["d"] or found["nth"]), today),
            f"{said[: found.start()]} {said[found.end() :]}")  # fmt: skip


def of_same_month(text: str, later: str, now: float) -> str:
    """Return a moment whose day has no month with that of a later date: `du 4` before `le 6 mai`.

    Raises ValueError as `dated` does.
    """
    found = _DAY_OF_MONTH.search(text.casefold())
    at, _ = dated(later, now) if found is not None else (None, "")
    day = int(found["d"] or found["nth"]) if found is not None else 0
    if found is None or at is None or not 1 <= day <= at.day:
        return text
    return f"{text[: found.start()]}{at.replace(day=day):%Y-%m-%d}{text[found.end() :]}"


def _next_day(day: int, today: datetime) -> datetime:
    """Return the next day of that number. Raises ValueError if no month has it."""
    months = (divmod(today.year * 12 + today.month - 1 + ahead, 12) for ahead in range(3))
    found = (datetime(year, month + 1, day) for year, month in months
             if 1 <= day <= monthrange(year, month + 1)[1])  # fmt: skip
    at = next((one for one in found if one >= today), None)
    if at is None:
        raise ValueError(day)
    return at


def moment_of(text: str, now: float) -> str:
    """Return the next moment that a text names, such as `2026-12-01 08:00`, in local time.

    A date alone stays one, such as `2026-12-01`. Raises ValueError if it is none.
    """
    date, said = dated(text, now)
    if date is not None and not _OF_DAY.search(said):
        return f"{date:%Y-%m-%d}"
    for clock_time, words in _POINTS.items():
        said = re.sub(words, clock_time, said)
    in_numbers = with_digits(said)
    if in_numbers != said:  # "nine thirty"
        in_numbers = _HOUR_AND_MINUTE.sub(r"\1:\2", in_numbers)
    said = _QUARTERS.sub(_in_digits, in_numbers)
    if not _IS_CLOCK.search(said):
        said = _FOUR_DIGITS.sub(r"\1:\2", said)
    day = re.search(_DAY, said)
    clock = re.search(_CLOCK, re.sub(_DAY, " ", said))
    if clock is None:
        raise ValueError(text)
    hour, minute, half = int(clock["hour"]), int(clock["minute"] or 0), clock["half"] or ""
    late = _LATE.search(said)
    deep = late is not None and late[0] in _DEEP and hour < 6  # two at night is in the morning
    afternoon = half.startswith("p") or (late is not None and not deep and 1 <= hour < 12)
    morning = half.startswith("a") and hour == 12
    hour = hour + 12 if afternoon and hour < 12 else 0 if morning else hour
    local = datetime.fromtimestamp(now)
    at = local.replace(hour=hour % 24, minute=minute, second=0, microsecond=0)
    at += timedelta(days=hour // 24)
    if date is not None:
        return f"{at.replace(year=date.year, month=date.month, day=date.day):%Y-%m-%d %H:%M}"
    named = day["day"] if day is not None else ""
    weekday = next((i for i, words in enumerate(_WEEKDAYS) if re.fullmatch(words, named)), None)
    if weekday is not None:
        at += timedelta(days=(weekday - at.weekday()) % 7)
        return (at if at > local else at + timedelta(days=7)).strftime("%Y-%m-%d %H:%M")
    if re.fullmatch(_DAYS[1], named) or at <= local:
        at += timedelta(days=1)
    return at.strftime("%Y-%m-%d %H:%M")
