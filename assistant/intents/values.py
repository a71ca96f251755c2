"""Give the letters that the encoder found their values: jobs, GPUs, times, sizes and numbers.

A time, a job or a number that cannot be read makes it no request at all: nothing is answered for
another time, and nothing is proposed for another target.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from gpudeck.assistant.intents.bare_times import bare_time
from gpudeck.assistant.intents.moments import (
    LENGTH,
    in_digits,
    length_of,
    moment_of,
    number_of,
    number_word,
    with_digits,
)
from gpudeck.assistant.intents.names import Known, introduced, named
from gpudeck.assistant.intents.priorities import is_priority, priority_of
from gpudeck.assistant.intents.setting_words import find_setting
from gpudeck.assistant.intents.state import State
from gpudeck.assistant.intents.times import PARTS, read_period, read_time
from gpudeck.assistant.intents.tokens import Token, tokens, unaccented
from gpudeck.assistant.query.conversion import convert, kind_of
from gpudeck.assistant.query.request import NEWEST, Span, Target
from gpudeck.assistant.reader.reading import Reading
from gpudeck.language.languages import LANGUAGES

_MOST_GPUS = 64
STATES = {
    "running": ("running", "starting"), "queued": ("queued",), "done": ("done",),
    "failed": ("failed", "lost", "rejected"), "cancelled": ("cancelled",), "lost": ("lost",),
    "held": ("held",),
}  # fmt: skip
_ORDINALS = {"@first": 0, "@second": 1, "@third": 2}
_LISTED = (*_ORDINALS, "@last")
_TIMES = ("time2", "ahead", "begin", "from", "until", "at", "duration")
NOW = re.compile(
    r"(?i)(?:right |just )?now|rn|atm|at (?:the|this) moment|currently|at present|jetz\w*|grade?"
    r"|gerade|momentan|im moment|aktuell|maintenant|en ce moment|actuellement|l[aà]"
    r"|ahora(?: mismo)?|ahorita|presently|just now|ya|en este momento|actualmente|[aà] pr[eé]sent"
    r"|sofort|gleich|altiro|now now|immediately|tout de suite|heut|immer noch"
)
"""A question about now has no time."""
_PART_OF_DAY = re.compile("|".join(words for _, words in PARTS.values()))
_EARLY = re.compile(r"\d ?am\b|morning|night|fr[uü]h|morgen|nacht|matin|ma[nñ]ana|madrugada|nuit")
_OF_TODAY = ("this", "heute", "ce", "cet", "esta")
_YEAR = re.compile(r"(?:(?:in|en|im jahr|im jahre|year) )?(20\d\d)")
_PLACES = (
    "first erste ersten erster premier première primera primero 1st 1er",
    "second zweite zweiten zweiter deuxième seconde segunda segundo 2nd 2e 2ème",
    "third dritte dritten dritter troisième tercera tercero 3rd 3e 3ème",
    "fourth vierte vierten vierter quatrième cuarta cuarto 4th 4e 4ème",
)
"""GPUs that are told by their place: the first one is GPU 0."""
_GLUED = re.compile(r"(?i)(?:gpus?|cards?|karte|carte|tarjeta)[ _-]?0*(\d+)")
"""A GPU with its number, as in `gpu08`."""
_HOST = re.compile(
    r"(?i)(?!gpus?\d|cuda|cards?\d|(?:grafik)?karten?\d|cartes?\d|tarjetas?\d|gr[aá]ficas?\d)"
    r"[^\W\d_]{3,}[\w.-]*\d[\w.-]*"
)
"""The name of another machine, such as `node2`."""
_NUMBERED = re.compile(r"\b(\d+)er\b")
"""A number as a German noun: `der 12er`."""
_BARE_HOUR = re.compile(r"(?:\D* )?(?:[1-9]|1[01])(?::\d\d)?")
"""An hour that may be in the morning or in the afternoon."""
_OWNER = re.compile(r"(?:'s|’s|s['’])$")
_CHANGED = frozenset({"more", "less"})
_TIMES_OVER = re.compile(r"(?i)(?P<number>-?\d+)\s?(?:x|times|mal|fois|veces)?")
_SINGLE = re.compile(r"(?i) (?:seule?|single|einzigen?|einziger|sol[ao]|únic[ao])$")
"""It stands behind `one`, and says nothing more."""
_NOWHERE = frozenset({"host_memory", "mode", "serial", "checkpoint", "access"})
"""Measures that nobody takes."""
_HIER, _HALF = re.compile(r"(?i)\bhier\b"), 0.5
_FEW = 12
"""Up to here a number in words may count jobs; above it is the number of one."""


class Unread(Exception):
    """A part of the request has no value here; the words say which."""


class Unknown(Unread):
    """Nothing that is asked for is measured or kept here."""


class Values:
    """Read the values of a reading's parts."""

    def __init__(self, found: Reading, known: Known, state: State, now: float, text: str) -> None:
        self.found, self.known, self.state, self.now = found, known, state, now
        self.text = text
        self.resolved: list[str] = []
        self._asked = set[str]()

    def letters(self, field: str) -> list[str]:
        self._asked.add(field)
        return [_NUMBERED.sub(r"\1", letters.strip()) for name, letters in self.found.spans
                if name == field]  # fmt: skip

    def refuse_rest(self) -> None:
        """Raise Unread if the letters of a field were never asked for: they would be lost."""
        for field, letters in self.found.spans:
            if field not in self._asked:
                raise Unread(letters)

    def marked(self, field: str) -> list[str]:
        start = f"{field}="
        marks = sorted(self.found.marks)  # a set of texts has another order in each process
        return [mark.removeprefix(start) for mark in marks if mark.startswith(start)]

    def jobs(self, field: str = "jobs") -> tuple[Target, ...]:
        """Return the jobs that are named or pointed to."""
        named = [job for letters in self.letters(field) for job in self._named(letters)]
        for mark in self.marked(field):
            named += self._pointed(mark)
        return tuple(dict.fromkeys(named))

    def targets(self) -> tuple[tuple[Target, ...], str]:
        """Return the jobs and the group that are named; a group may be called as jobs are."""
        jobs, group = self.jobs(), self.group()
        found = [named(letters, self.known.groups) for letters in self.letters("jobs")
                 if letters not in self.known.jobs]  # fmt: skip
        if not group and len(jobs) == 1 and len(found) == 1 and found[0]:
            return (), found[0]
        return jobs, group

    def _named(self, letters: str) -> list[Target]:
        if name := named(letters, self.known.jobs):
            return [name]
        parts = tokens(letters)
        found = [token for token in parts if token.kind in ("number", "range")]
        rest = parts[1:] if parts[:1] and parts[0].norm == "no" else parts  # "no. 7"
        listed = all(token.kind in ("number", "range") or token.norm in _LISTING for token in rest)
        if found and listed and re.search(r"\d", letters):
            return [*numbers_in(parts)]  # but "the last two" are none of these
        if (number := number_word(letters)) is not None and number > _FEW:
            return [number]
        if len(parts) == 1 and not found:
            return [letters]  # no job has this name, and who plans or answers says so
        raise Unread(letters)

    def _pointed(self, mark: str) -> list[Target]:
        order = self.state.order
        jobs: tuple[Target, ...] = self.state.jobs or (order.jobs if order is not None else ())
        if mark == "@newest":
            return [NEWEST]
        if mark in ("@all", "@oldest"):
            if mark == "@all":
                return []
            raise Unread("")
        if mark == "@last" and not jobs:
            return [NEWEST]
        if not jobs:
            if order is not None and order.verb == "submit":
                return []  # the new job has no number before it is approved
            raise Unread("")
        if mark == "@others" and order is not None:
            jobs = tuple(job for job in jobs if job not in order.jobs)
            if not jobs:
                raise Unread("")
        place = _ORDINALS.get(mark, -1 if mark == "@last" else None)
        if place is not None and place >= len(jobs):
            raise Unread("")
        chosen = list(jobs) if place is None else [jobs[place]]
        self.resolved += [f"job {job}" for job in chosen]
        return list(chosen)

    def devices(self) -> tuple[int, ...]:
        """Return the GPUs that are named or pointed to; the name of a model or of another machine
        names none."""
        found: list[int] = []
        for letters in self.letters("gpus"):
            if _HOST.fullmatch(letters):
                continue
            numbers = numbers_in(tokens(letters))
            if not numbers:
                numbers = _device_of(letters.casefold())
            found += [n for n in numbers if n < _MOST_GPUS]
        if not found:
            found = self._pointed_devices()
            self.resolved += [f"GPU {index}" for index in found]
        return tuple(dict.fromkeys(found))

    def _pointed_devices(self) -> list[int]:
        """Return the GPUs that are pointed to; without any before, the first one is GPU 0."""
        marks, spoken_of = self.marked("gpus"), self.state.devices
        found = list(spoken_of) if {"@it", "@them"} & {*marks} else []
        for place in (_ORDINALS.get(mark, -1) for mark in marks if mark in _LISTED):
            found += spoken_of[place:][:1] if spoken_of else [place] * (place >= 0)
        return found

    def time(self, field: str = "time") -> Span | None:
        """Return the time that is asked about."""
        if letters := " ".join(self.letters(field)):
            if year := _YEAR.fullmatch(letters.casefold()):
                begin, end = (datetime(int(year[1]) + more, 1, 1).timestamp() for more in (0, 1))
                return Span(begin, min(end, self.now))
            said = in_digits(letters)
            found = read_time(tokens(said), self.now) if said != with_digits(letters) else None
            if found is not None:
                is_clock = ":" in said and not _EARLY.search(said)
                return self._latest(found.span) if is_clock else found.span
            found = read_time(tokens(letters), self.now)
            found = found or read_time(tokens(with_digits(letters)), self.now)
            if found is None and _PART_OF_DAY.fullmatch(unaccented(letters.casefold())):
                of_today = (read_time(tokens(f"{this} {letters}"), self.now) for this in _OF_TODAY)
                found = next(filter(None, of_today), None)
            if found is None and field == "time":  # its letters may lack an article
                found = read_time(tokens(self.text), self.now)
            if found is None and (longer := bare_time(letters)):
                found = read_time(tokens(longer), self.now)
            if found is None and (period := read_period(letters, self.now)) is not None:
                return period
            if found is None and not NOW.fullmatch(letters):
                raise Unread(letters)
            return found.span if found is not None else None
        if field == "time" and not any(self.letters(other) for other in _TIMES):
            found = read_time(tokens(self._foreign_hier()), self.now)
            if found is not None:
                return found.span
        if "@same" in self.marked(field):
            return self.state.last.time if self.state.last else None
        return None

    def covered(self) -> Span | None:
        """Return the time that a report covers: one that is named, or that of its kind."""
        form = " ".join(self.letters("format"))
        return self.time() or read_period(form, self.now) or read_period(self.outside(), self.now)

    def _foreign_hier(self) -> str:
        """Return the request outside of its parts, where `hier` is yesterday in French only."""
        french = dict(zip(LANGUAGES, self.found.languages, strict=False)).get("fr", 1.0)
        return self.outside() if french > _HALF else _HIER.sub(" ", self.outside())

    def _latest(self, span: Span) -> Span:
        """Return the time of an hour that is said in words, which may be in the afternoon."""
        since = span.since + 12 * 3600.0
        if since > self.now or datetime.fromtimestamp(span.since).hour >= 12:
            return span
        return Span(since, since if span.point else span.until, span.point)

    def outside(self) -> str:
        """Return the request without the letters of its parts."""
        letters = list(self.text)
        for first, last in self.found.places:
            letters[first:last] = " " * (last - first)
        return "".join(letters)

    def group(self) -> str:
        letters = self.letters("group")
        if "@it" in self.marked("group"):
            return self.state.group
        return letters[0] if letters else ""

    def user(self) -> str:
        if letters := self.letters("user"):
            owner = _OWNER.sub("", letters[0])
            forms = (letters[0], owner, letters[0].removesuffix("s"))
            return next(filter(None, (named(form, self.known.users) for form in forms)), owner)
        pointed = {*self.marked("user")} - {"@me"}
        before = self.state.last or self.state.order
        if pointed and before is not None and before.user:
            return before.user
        if pointed:
            raise Unread("user")
        return (self.introduced() or self.known.me) if "@me" in self.marked("user") else ""

    def introduced(self) -> str:
        """Return the user who says who types, or an empty text."""
        return introduced(self.text, self.known.users) if "@me" in self.marked("user") else ""

    def number(self, field: str) -> int | None:
        letters = self.letters(field)
        return self._whole(letters[0]) if letters else None

    def _whole(self, letters: str) -> int:
        """Return a whole number that is said in digits or in words. Raises Unread."""
        first, _, rest = _SINGLE.sub("", letters).partition(" ")  # "three times"
        found = _TIMES_OVER.fullmatch(number_of(letters)) or _TIMES_OVER.fullmatch(
            f"{number_of(first)} {rest}".strip()
        )
        if found is None:
            raise Unread(letters)
        return int(found["number"])

    def priority(self) -> int | None:
        """Return the priority that is named by a number or by a word.

        Raises Unread if it is only to be higher or lower than before, by no amount.
        """
        said, is_changed = self.letters("priority"), bool(_CHANGED & {*self.marked("change")})
        read = str if is_changed else with_digits  # "one step higher" is no 1
        numbers = [letters for letters in said if re.search(r"\d", read(letters))]
        if numbers:
            return self._whole(numbers[0])
        words = [letters for letters in said if not (is_changed and is_priority(letters))]
        level = priority_of(" ".join(words))
        if level is None and (said or is_changed):
            raise Unread("priority")
        return level

    def size(self, field: str) -> float:
        """Return bytes; a bare number is in GB."""
        found = self._size(field)
        return convert(found.value, found.unit or "GB", "B") if found is not None else 0.0

    def size_option(self, field: str) -> str:
        """Return a size as the options of a job take it, such as `24gb`."""
        found = self._size(field)
        return f"{found.value:g}{(found.unit or 'GB').lower()}" if found is not None else ""

    def _size(self, field: str) -> Token | None:
        letters = self.letters(field)
        if not letters:
            return None
        found = next((t for t in tokens(letters[0]) if t.kind in ("quantity", "number")), None)
        if found is None or (found.unit and kind_of(found.unit) != "size"):
            raise Unread(letters[0])
        return found

    def states(self) -> tuple[str, ...]:
        return tuple(state for mark in self.marked("states") for state in STATES.get(mark, ()))

    def measures(self, table: dict[str, str]) -> list[str]:
        """Return the measures that are asked for. Raises Unknown for one that nobody measures."""
        asked = sorted(name for name in self.marked("measure") if name in table or name in _NOWHERE)
        lacking = [name for name in asked if name not in table]
        if lacking and len(lacking) == len(asked):
            raise Unknown(", ".join(lacking))
        if lacking:
            raise Unread(f"measure={lacking[0]}")
        return list(dict.fromkeys(table[name] for name in asked)) or [""]

    def refuse(self, *fields: str) -> None:
        """Raise Unread if the request has one of these parts, which has no place in the query."""
        for field in fields:
            if self.letters(field) or self.marked(field):
                raise Unread(" ".join(self.letters(field)) or field)

    def setting(self) -> str:
        """Return the setting that is named, or an empty text for all of them."""
        letters = " ".join(self.letters("setting"))
        return find_setting(letters) or find_setting(self.text)

    def length(self, letters: str) -> str:
        found = re.search(rf"(?<!\w){LENGTH}", letters, re.IGNORECASE)
        if found is None:
            raise Unread(letters)
        return length_of(found["length"])

    def moment(self, letters: str, after: str = "") -> str:
        """Return the next moment of a name behind now, or behind another moment."""
        begin = datetime.fromisoformat(after) if after else datetime.fromtimestamp(self.now)
        try:
            found = moment_of(letters, begin.timestamp())
        except ValueError as e:
            raise Unread(letters) from e
        sooner = datetime.fromisoformat(found) - timedelta(hours=12)
        is_hour = " " in found and _BARE_HOUR.fullmatch(letters.casefold()) is not None
        if after and sooner > begin and is_hour:
            return sooner.strftime("%Y-%m-%d %H:%M")  # from 14:00 until 6
        return found


def _device_of(letters: str) -> list[int]:
    """Return the index of a GPU that is said by a word, by its place, or as `gpu08`."""
    for said in (letters, letters.removesuffix("er")):  # "der Fünfer"
        if (word := number_word(said)) is not None:
            return [word]
    if glued := _GLUED.fullmatch(letters):
        return [int(glued[1])]
    return [place for place, words in enumerate(_PLACES) if letters in words.split()]


def numbers_in(parts: list[Token]) -> list[int]:
    """Return the numbers of letters, and those of `2 to 5` in between."""
    found: list[int] = []
    for i, token in enumerate(parts):
        if token.kind not in ("number", "range"):
            continue
        through = found and i and parts[i - 1].norm in _THROUGH
        if through and 0 < token.value - found[-1] <= _MOST_OF_RANGE:
            found += range(found[-1] + 1, int(token.value))
        found += token.whole_numbers()
    return found


_THROUGH = frozenset({"to", "through", "bis", "a", "au", "hasta", "thru", "al", "till", "until"})
_LISTING = _THROUGH | {"and", "und", "et", "y", "e", "or", "oder", "ou", "o", "plus", "sowie",
                       "job", "jobs", "run", "runs", "number", "nr", "le", "la", "el",
                       "the", "den", "die"}  # fmt: skip
_MOST_OF_RANGE = 1000
