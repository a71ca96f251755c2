"""Split a request into words, numbers, quantities, ranges and names, and normalize the words.

Invisible characters and letters of other scripts stay what they are, so that no word that only
looks like an order is one.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Literal, NamedTuple

Kind = Literal["word", "number", "range", "quantity", "quoted", "name", "time", "odd"]

JOIN = re.compile(r"(?:\s*(?:,|;|&|/|\+)\s*|\s+(?:and|und|et|y|e|or|oder|ou|o|sowie|plus)\s+)+")
"""What stands between the parts of a list."""
_UNITS = {
    "b": "B", "kb": "kB", "mb": "MB", "gb": "GB", "tb": "TB", "kib": "KiB", "mib": "MiB",
    "gib": "GiB", "tib": "TiB", "go": "GB", "mo": "MB", "ko": "kB",
    "kio": "KiB", "mio": "MiB", "gio": "GiB", "tio": "TiB", "octets": "B",
    "gig": "GB", "gigs": "GB", "gigas": "GB", "giga": "GB",
    "gigabyte": "GB", "gigabytes": "GB", "gigaoctets": "GB", "g": "GB", "terabytes": "TB",
    "megabytes": "MB", "gibibytes": "GiB", "gibibyte": "GiB", "mebibytes": "MiB",
    "j": "J", "kj": "kJ", "mj": "MJ", "wh": "Wh", "kwh": "kWh", "joule": "J", "joules": "J",
    "julios": "J", "kilowattstunden": "kWh", "kilowatt-hours": "kWh",
    "w": "W", "kw": "kW", "mw": "mW", "watt": "W", "watts": "W", "vatios": "W", "kilowatts": "kW",
    "kilowatt": "kW", "kilovatios": "kW", "kilovatio": "kW", "terabyte": "TB", "teraoctets": "TB",
    "megabyte": "MB", "megaoctets": "MB", "tebibytes": "TiB", "tebibyte": "TiB",
    "tebioctets": "TiB", "gibioctets": "GiB", "mebioctets": "MiB", "mebibyte": "MiB",
    "%": "%", "percent": "%", "prozent": "%",
    "°c": "°C", "°f": "°F", "°": "°C", "celsius": "°C", "fahrenheit": "°F", "degrees": "°C",
    "grad": "°C", "degres": "°C", "grados": "°C", "c": "°C", "f": "°F", "kelvin": "K",
    "mhz": "MHz", "ghz": "GHz", "tflops": "TFLOP/s", "tflop/s": "TFLOP/s", "gflops": "GFLOP/s",
    "pflops": "PFLOP/s",
    "s": "s", "sec": "s", "secs": "s", "second": "s", "seconds": "s", "sekunde": "s",
    "sek": "s", "segs": "s",
    "sekunden": "s", "seconde": "s", "secondes": "s", "segundo": "s", "segundos": "s",
    "m": "min", "min": "min", "mins": "min", "minute": "min", "minutes": "min", "minuten": "min",
    "minuto": "min", "minutos": "min",
    "h": "h", "hr": "h", "hrs": "h", "hour": "h", "hours": "h", "stunde": "h", "stunden": "h",
    "std": "h", "heure": "h", "heures": "h", "hora": "h", "horas": "h",
    "d": "d", "day": "d", "days": "d", "tag": "d", "tage": "d", "tagen": "d", "jour": "d",
    "jours": "d", "dia": "d", "dias": "d",
    "week": "week", "weeks": "week", "woche": "week", "wochen": "week", "semaine": "week",
    "semaines": "week", "semana": "week", "semanas": "week",
}  # fmt: skip
_NUMBER_WORDS = {
    word: number
    for words in (
        "two three four five six seven eight nine ten eleven twelve",
        "zwei drei vier fünf sechs sieben acht neun zehn elf zwölf",
        "deux trois quatre cinq six sept huit neuf dix onze douze",
        "dos tres cuatro cinco seis siete ocho nueve diez once doce",
    )
    for number, word in enumerate(words.split(), 2)
} | {"fifteen": 15, "twenty": 20, "thirty": 30, "forty": 40, "fünfzehn": 15, "quince": 15}
_PARTS = re.compile(
    r"(?P<quoted>\"[^\"\n]{1,400}\"|(?<!\w)'[^'\n]{1,400}'(?!\w)|`[^`\n]{1,400}`"
    r"|[“„][^“”\n]{1,400}[”“]|«[^»\n]{1,400}»)"
    r"|(?P<time>\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d)?|\b\d{1,2}:\d\d(?:\s?[ap]\.?m\b\.?)?"
    r"|\b\d{1,2}\s?[ap]\.?m\b\.?|\b\d{1,2}h\d\d\b"
    r"|\b\d{1,2}\s?(?:uhr|heures?(?= (?:et|du|à))|o'clock)\b)"
    r"|(?P<range>\d+\s?(?:-|–|\.\.)\s?\d+(?![\w.-]))"
    r"|(?P<quantity>\d+(?:[.,]\d+)?\s?(?:%|°[CF]?|[a-zA-Zé/-]+)(?![\w°%/']))"
    r"|(?P<number>#?\d+(?:[.,]\d+)?(?![\w/-]|\.\w))"
    r"|(?P<name>(?=[\w./~-]*[A-Za-z])(?:[\w~./-]*[\d_./~][\w./~-]*[\w/~])|--?\w[\w=.-]*)"
    r"|(?P<word>tflop/s|[^\W\d_]+(?:-[^\W\d_]+)*)"
    r"|(?P<odd>[^\s,.;:?!()\[\]¿¡'’‘\"…*&+/-])",
    re.IGNORECASE,
)
_PARAMETERS = re.compile(r"\d+(?:[.,]\d+)?[bB]")
"""A 70B is a model of 70 billion parameters, and is read as the bytes of its weights."""
_PRECISIONS = (
    (re.compile(r"(?i)\b(?:fp32|float32|f32)\b"), 4.0),
    (re.compile(r"(?i)\b(?:fp8|int8|q8|8[ -]?bits?)\b"), 1.0),
    (re.compile(r"(?i)\b(?:fp4|int4|nf4|q4|4[ -]?bits?)\b"), 0.5),
)
_LAST_ACCENT = "éó"
_NOT = re.compile(
    r"(?i)\b(do|does|did|is|are|was|were|has|have|had|ca|could|wo|would|should)n'?t\b"
)
_IS = re.compile(r"(?i)\b(what|who|where|when|why|how|which|that|there|he|she)s\b(?=\s)")
_SHORT = re.compile(
    r"(?i)\b(u|r|ur|pls|plz|whats|wats|wat|gimme|lemme|wanna|gonna|gotta|tho|thx)\b"
)
_LONG = {"u": "you", "r": "are", "ur": "your", "pls": "please", "plz": "please", "wat": "what",
         "wats": "what's", "whats": "what's", "gimme": "give me", "lemme": "let me",
         "wanna": "want to", "gonna": "going to", "gotta": "got to", "thx": "thanks",
         ">": "above", "<": "below", ">=": "above", "<=": "below"}  # fmt: skip
_SHORT = re.compile(rf"(?i)(?<!\S)({'|'.join(map(re.escape, _LONG))})(?=[\s.,!?]|$)")
_WHOLE = {"ca": "can", "wo": "will"}
_QUOTES = ('"', "`", "“")
_QUOTED = re.compile(r"(\"[^\"]*\"|`[^`]*`|“[^”]*”)")


class Token(NamedTuple):
    """Hold one part of a request."""

    kind: Kind
    text: str
    """As it was typed."""
    norm: str
    """Without capitals and accents."""
    value: float = 0.0
    """Of a number or a quantity; the first number of a range."""
    unit: str = ""
    last: int = 0
    """The last number of a range."""
    comma: bool = False
    """A comma is before it."""

    def whole_numbers(self) -> range:
        """Return the whole numbers that a number or a range names."""
        first = int(self.value)
        return range(first, (self.last if self.kind == "range" else first) + 1)


def tokens(request: str) -> list[Token]:
    """Return the parts of a request, in order."""
    text = request.replace("’", "'").replace("´", "'")
    text = "".join(
        part if part[:1] in _QUOTES else _spelled_out(part) for part in _QUOTED.split(text)
    )
    found: list[Token] = []
    end = 0
    for match in _PARTS.finditer(text):
        comma = "," in text[end : match.start()] or ";" in text[end : match.start()]
        end = match.end()
        read = _tokens(match)
        if found and found[-1].norm == "at" and match[0].casefold() == "once":
            read = [Token("word", match[0], "once")]  # not the Spanish eleven
        if _PARAMETERS.fullmatch(match[0]):
            read = [read[0]._replace(value=read[0].value * 1e9 * _bytes_of_one(request))]
        found += [one._replace(comma=comma) for one in read]
    return _with_spelt(found)


def _bytes_of_one(request: str) -> float:
    """Return the bytes of a parameter in the precision that a request names, else in 16 bits."""
    return next((size for names, size in _PRECISIONS if names.search(request)), 2.0)


def _with_spelt(found: list[Token]) -> list[Token]:
    """Return the tokens with `two minutes` as one quantity, as `2 minutes` is."""
    joined: list[Token] = []
    for token in found:
        before = joined[-1] if joined else None
        unit = _UNITS.get(unaccented(token.norm), "") if token.kind == "word" else ""
        spelt = before is not None and before.kind == "number" and before.text.isalpha()
        if before is not None and spelt and unit in ("s", "min", "h", "d", "week"):
            text, norm = f"{before.text} {token.text}", f"{before.norm} {token.norm}"
            joined[-1] = Token("quantity", text, norm, before.value, unit, comma=before.comma)
        else:
            joined.append(token)
    return joined


def _spelled_out(text: str) -> str:
    """Return a text with contractions and short forms in full: `whats` is `what's`."""
    text = _SHORT.sub(lambda found: _LONG[found[0].casefold()], text)
    text = _NOT.sub(lambda found: f"{_WHOLE.get(found[1].casefold(), found[1])} not", text)
    return _IS.sub(r"\1's", text)


def _tokens(match: re.Match[str]) -> list[Token]:
    kind, text = match.lastgroup, match[0]
    norm = normalized(text)
    if kind == "quoted":
        return [Token("quoted", text[1:-1].strip(), norm[1:-1].strip())]
    if kind == "range":
        first, last = re.findall(r"\d+", text)
        return [Token("range", text, norm, float(first), last=int(last))]
    if kind == "quantity":
        number, unit = re.match(r"(\d+(?:[.,]\d+)?)\s?(.*)", norm).groups()  # type: ignore[union-attr]
        unit = unit if unit in _UNITS else unaccented(unit)
        if unit in _UNITS:
            return [Token("quantity", text, norm, _number(number), _UNITS[unit])]
        if not re.match(r"\d+(?:[.,]\d+)?\s", text):
            return [Token("name", text, norm)]
        rest = text[len(re.match(r"\d+(?:[.,]\d+)?\s", text)[0]) :]  # type: ignore[index]
        more = [one for part in _PARTS.finditer(rest) for one in _tokens(part)]
        return [Token("number", number, number, _number(number)), *more]
    if kind == "number":
        return [Token("number", text, norm, _number(text.lstrip("#")))]
    if kind == "word" and text.casefold() in _NUMBER_WORDS:
        number = str(_NUMBER_WORDS[text.casefold()])
        return [Token("number", text, number, float(number))]
    if kind == "word" and norm.replace("-", " ") != norm:
        return [Token("word", text, part) for part in norm.split("-")]
    return [Token(kind, text, norm)]  # type: ignore[arg-type]


def unit_of(norm: str) -> str:
    """Return the unit that a word names, or an empty text."""
    return _UNITS.get(norm, "")


def _number(text: str) -> float:
    return float(text.replace(",", "."))


def normalized(text: str) -> str:
    """Return a text without capitals, and without accents but an acute one on a last letter.

    That one distinguishes *annulé* from *annule* and *canceló* from *cancelo*.
    """
    words = unicodedata.normalize("NFC", text.casefold()).split(" ")
    return " ".join(map(_unaccented, words))


def _unaccented(word: str) -> str:
    stem, last = word[:-1], word[-1:]
    if word.endswith(("és", "ée")) or word.endswith("ées"):
        cut = word.rindex("é")
        return _bare(word[:cut]) + word[cut:]
    return _bare(stem) + (last if last in _LAST_ACCENT else _bare(last))


def unaccented(word: str) -> str:
    """Return a normalized word without its last accents, as on a keyboard without them."""
    return _bare(word)


def _bare(text: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFD", text) if not unicodedata.combining(c))
