"""Find what the words of a request stand for, and what its numbers and names name."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from gpudeck.assistant.intents.lexicon import LONGEST, Meaning, phrases
from gpudeck.assistant.intents.people import find_person
from gpudeck.assistant.intents.repair import changes, mended
from gpudeck.assistant.intents.times import Reading, read_time
from gpudeck.assistant.intents.tokens import Token, tokens, unaccented
from gpudeck.assistant.query.request import Span, Target
from gpudeck.language.languages import LANGUAGES, Language

MAX_NAMED = 200
_SEPARABLE = {
    "brich": ("ab",), "breche": ("ab",), "halte": ("an", "zuruck"), "halt": ("an", "zuruck"),
    "stell": ("zuruck", "ein", "um"), "stelle": ("zuruck", "ein", "um"),
    "setze": ("fort", "aus"), "setz": ("fort", "aus"), "gib": ("frei", "wieder frei"),
    "fuhre": ("aus", "erneut aus"), "fuhr": ("aus",), "lass": ("laufen", "warten", "los"),
    "starte": ("neu", "erneut", "noch einmal", "nochmal", "nochmals", "wieder"),
    "reiche": ("ein",), "reih": ("ein",), "schick": ("ab",), "schalte": ("ein", "aus", "an"),
    "schalt": ("ein", "aus", "an"), "mach": ("weiter", "an", "aus", "ruckgangig"),
    "mache": ("ruckgangig",), "zieh": ("vor",), "ziehe": ("vor",), "raum": ("auf",),
    "raume": ("auf",), "fass": ("zusammen",), "fasse": ("zusammen",), "schiess": ("ab",),
    "wurg": ("ab",), "zeig": ("an",), "liste": ("auf",),
    "nimm": ("aus dem betrieb", "aus dem dienst", "wieder in betrieb", "raus", "zuruck"),
    "versuch": ("nochmal", "erneut"), "versuche": ("erneut",),
    "let": ("go", "run", "start"),
    "do": ("next", "first"), "start": ("next", "first", "again", "over"), "run": ("again",),
    "make": ("next", "first"), "put": ("on hold", "back into service", "back in service"),
    "take": ("out of service", "offline", "out of rotation"),
    "turn": ("on", "off"), "switch": ("on", "off"), "call": ("off",), "shut": ("down",),
    "mettre": ("en pause", "en attente"), "poner": ("en pausa", "en espera"),
    "mets": ("en pause", "en attente", "hors service", "en file"),
    "remets": ("en service", "en route"), "retire": ("du service",), "sors": ("du service",),
    "pon": ("en pausa", "en espera", "en cola"), "saca": ("de servicio",),
    "devuelve": ("al servicio",), "mete": ("en cola",),
}  # fmt: skip
"""Verbs whose sense needs the last words of the request."""
_LAST = frozenset({"bitte", "please", "mal", "jetzt", "now", "sofort", "maintenant", "ahora"})
JOINS = frozenset({"and", "und", "et", "y", "or", "oder", "ou", "o", "plus", "sowie", "e"})
RANGE = frozenset({"to", "through", "bis", "a", "au", "hasta", "thru", "al"})
_NUMBERING = frozenset({"number", "no", "nr", "id", "nummer", "numero", "n", "named", "called",
                        "namens", "nomme", "llamado", "the", "die", "der", "le", "la", "el",
                        "von", "de", "del", "no.", "les", "las", "los"})  # fmt: skip
_AND = frozenset({"and", "und", "et", "y", "&"})
_OF_JOBS = frozenset({"cancel", "hold", "release", "pause", "resume", "retry"})
"""Orders behind which a word that is an order itself is the name of a job."""
_LETTERS: dict[Language, set[str]] = {
    "de": set("äöüß"), "fr": set("àâèêëîïôûùçœ"), "es": set("ñ¿¡áíóú"),
}  # fmt: skip
"""Letters that only one of the languages has."""
_DECISIVE = ("super", "bound", "than", "except", "compare", "verb")
"""The kinds of words without which a question is another one."""
_OCTETS = frozenset({"ko", "mo", "go", "kio", "mio", "gio", "tio", "octets", "gigaoctets"})
_IS = frozenset({"is", "did", "has", "was", "ist", "hat", "est", "esta", "está"})
_SHORT = 2
"""Letters of names that have no plural."""
_ALL = frozenset({"all", "alle", "allen", "aller", "tous", "toutes", "todos", "todas"})
_FEWEST = 2
_ACCENTED: dict[Language, frozenset[str]] = {
    "es": frozenset({"qué", "cuál", "cuáles", "cómo", "dónde", "cuándo", "cuánto", "cuánta",
                     "cuántos", "cuántas", "quién", "está", "están", "más"}),
}  # fmt: skip
"""Words that are of one language by their accent."""
MOST = 1000
"""The most numbers of a range."""


class Spot(NamedTuple):
    """Hold a phrase of the request with what it may stand for."""

    first: int
    last: int
    meanings: tuple[Meaning, ...]

    def means(self, kind: str, value: str | None = None) -> bool:
        """Return whether it may stand for that."""
        return any(m.kind == kind and value in (None, m.value) for m in self.meanings)

    def value(self, kind: str) -> str:
        """Return the value of its meaning of a kind."""
        return next(m.value for m in self.meanings if m.kind == kind)

    @property
    def tokens(self) -> range:
        """Return the tokens that it consists of."""
        return range(self.first, self.last + 1)


class Known(NamedTuple):
    """Hold the names that a request may mention. They are foreign text, and only names."""

    jobs: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    """The users of this machine, and those who have jobs."""
    me: str = ""
    """Who asks, where several users have jobs."""


class Spots:
    """Hold all that was found in a request, and remember which tokens a reading has used."""

    def __init__(self, request: str, known: Known, now: float) -> None:
        self.request, self.now, self.known = request, now, known
        self.question = request.rstrip().rstrip("!.").endswith("?")
        own = (*known.jobs, *known.groups, *known.users)
        names = {token.norm for name in own for token in tokens(name)}
        self.tokens = _separated(mended(tokens(_spaced(request)), names))
        self.changes = changes(self.tokens)
        """Words that were mended, as typed and as read."""
        self.time: Reading | None = read_time(self.tokens, now)
        self._timed = self.time.used if self.time else frozenset()
        self.used: set[int] = set()
        self.names: dict[int, tuple[str, int]] = {}
        """Names of jobs by their first token, with their last one."""
        self.groups: dict[int, str] = {}
        self.plural = False
        """The name of jobs is in the plural, as in `the sweeps`: all of them are meant."""
        self._find_names(known)
        named = {n for first, (_, last) in self.names.items() for n in range(first, last + 1)}
        self.person = find_person(self.tokens, known.users, known.me, named | self._timed)
        self.spots = self._in_one_language(self._scan())
        self.targets: dict[str, list[Target]] = {
            "job": [], "device": [], "process": [], "alert": []
        }  # fmt: skip
        self.counts: dict[str, int] = {}
        """Numbers before a noun: the 2 of `2 gpus`."""
        self._attach()
        self.whole = self._whole_counts()
        """Numbers that only say how many there are, as in `alle acht`."""
        self.used |= self.whole

    # ---- reading

    def find(self, kind: str, value: str | None = None) -> Spot | None:
        """Return the first spot that may stand for that."""
        return next((spot for spot in self.spots if spot.means(kind, value)), None)

    def has(self, kind: str, *values: str) -> bool:
        """Return whether a spot may stand for one of these, and count them as used."""
        found = [
            spot
            for spot in self.spots
            if (not values and spot.means(kind)) or any(spot.means(kind, v) for v in values)
        ]
        for spot in found:
            self.use(spot)
        return bool(found)

    def take(self, kind: str) -> str:
        """Return the value of the first spot of a kind, and count all that have it as used."""
        spot = self.find(kind)
        if spot is None:
            return ""
        value = spot.value(kind)
        self.has(kind, value)
        return value

    def use(self, spot: Spot) -> None:
        """Count the tokens of a spot as used."""
        self.used.update(spot.tokens)

    def states(self, of: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
        """Use the words for states of jobs that the table has, and return its states for them."""
        found: list[str] = []
        for spot in self.spots:
            if spot.means("state") and spot.value("state") in of:
                self.use(spot)
                found += of[spot.value("state")]
        return tuple(dict.fromkeys(found))

    def use_time(self) -> Reading | None:
        """Return the time, and count its tokens as used."""
        self.used |= self._timed
        return self.time

    def drop_bare_hour(self) -> None:
        """Read no time where only a number is named, as in `y la 4`."""
        named = [self.tokens[i] for i in sorted(self._timed)]
        if named and all(
            one.kind == "number" or one.norm in ("la", "las", "el", "le", "les", "der", "die")
            for one in named
        ) and not {"a", "at", "um"} & {one.norm for one in self.tokens}:  # fmt: skip
            self.used.update(i for i in self._timed if self.tokens[i].kind != "number")
            self.time, self._timed = None, frozenset()

    def use_count(self, noun: str) -> None:
        """Count the number before a noun as used."""
        for spot in self.spots:
            if spot.means("noun", noun) and noun in self.counts:
                self.used.add(spot.first - 1)

    def two_times(self) -> list[Span]:
        """Return two times that are named one after the other, and count them as used."""
        if self.time is None:
            return []
        rest = [
            token if i not in self._timed else token._replace(kind="odd", norm="|")
            for i, token in enumerate(self.tokens)
        ]
        second = read_time(rest, self.now)
        if second is None:
            return []
        self.used |= self._timed | second.used
        ordered = sorted((self.time, second), key=lambda reading: min(reading.used))
        return [reading.span for reading in ordered]

    def loose(self, kinds: Iterable[str] = ("number", "quantity", "range")) -> list[int]:
        """Return the numbers that nothing has used yet."""
        return [
            i
            for i, token in enumerate(self.tokens)
            if token.kind in kinds and i not in self.used and i not in self._timed
        ]

    def unread(self) -> list[str]:
        """Return the words that are neither used nor fillers, as they were typed."""
        filler = {i for spot in self.spots if spot.means("filler") for i in spot.tokens}
        return [
            token.text
            for i, token in enumerate(self.tokens)
            if i not in self.used and i not in filler
        ]

    def decisive(self) -> bool:
        """Return whether an unread word decides what is asked for: an amount or a comparison."""
        left = set(range(len(self.tokens))) - self.used
        numbers = any(self.tokens[i].kind in ("number", "quantity", "range") for i in left)
        return numbers or any(
            left >= set(spot.tokens) and not spot.means("filler")
            for spot in self.spots
            if any(spot.means(kind) for kind in _DECISIVE) or spot.means("topic", "warns")
        )

    def language(self, otherwise: Language = "en") -> Language:
        """Return the language that most of the words are in."""
        votes: Counter[Language] = Counter()
        known = phrases()
        timed = [known.get((self.tokens[i].norm,), ()) for i in self._timed]
        spots = [
            (spot.meanings, sum(len(self.tokens[i].norm.split()) for i in spot.tokens))
            for spot in self.spots
        ]
        for meanings, words in [*spots, *((one, 1) for one in timed)]:
            spoken = {name for meaning in meanings for name in meaning.languages}
            for name in spoken:
                votes[name] += 12 * words // len(spoken)
        for name, letters in _LETTERS.items():
            votes[name] += 6 * len(letters & set(self.request.casefold()))
        for name, accented in _ACCENTED.items():
            votes[name] += 12 * len(accented & set(re.findall(r"\w+", self.request.casefold())))
        if any(
            token.norm.rpartition(" ")[2].lstrip("0123456789.,") in _OCTETS for token in self.tokens
        ):
            votes["fr"] += 12
        votes += Counter()  # without the languages that nothing spoke for
        if not votes:
            return otherwise
        best = max(votes.values())
        if votes[otherwise] == best:
            return otherwise
        return next(name for name in LANGUAGES if votes[name] == best)

    # ---- finding

    def _find_names(self, known: Known) -> None:
        ours, given = phrases(), {name for name in known.jobs if name.strip()}
        # those that are words of ours come last, because the names before them decide about them
        found = sorted(given, key=lambda name: ((name.casefold(),) in ours, -len(name), name))
        for name in found[:MAX_NAMED]:
            parts = [token.norm for token in tokens(name)]
            if all(part.lstrip("#").isdecimal() for part in parts):
                continue  # a number is always the number of a job
            for i in self._places(parts):
                if self._is_name(i, parts):
                    self.names[i] = (name, i + len(parts) - 1)
            for i in (
                self._places([f"{parts[0]}s"]) if len(parts) == 1 and len(name) > _SHORT else []
            ):
                if (self.tokens[i].norm,) not in phrases():
                    self.names[i] = (name, i)
                    self.plural = True
        for name in known.groups:
            parts = [token.norm for token in tokens(name)]
            for i in self._places(parts):
                self.groups[i] = name

    def _places(self, parts: Sequence[str]) -> list[int]:
        taken = {n for i, (_, last) in self.names.items() for n in range(i, last + 1)}
        norms = [token.norm for token in self.tokens]
        size = len(parts)
        return [
            i
            for i in range(len(norms) - size + 1)
            if size and norms[i : i + size] == list(parts) and i not in taken
            and not self._timed & set(range(i, i + size))
        ]  # fmt: skip

    def _is_name(self, place: int, parts: Sequence[str]) -> bool:
        """Return whether these words are a job's name here: words of ours only beside `job`."""
        known = phrases()
        ours = all((part,) in known or part.isdecimal() for part in parts)
        kinds = {m.kind for part in parts for m in known.get((part,), ())}
        if kinds == {"verb"} and place == 1 and self.tokens[0].norm in _IS:
            return True  # "is bench hung?"
        if kinds == {"verb"} and self._behind_an_order(place):
            return True  # "kill bench", "cancel finetune and bench"
        near = [self.tokens[i].norm for i in (place - 1, place - 2, place + len(parts))
                if 0 <= i < len(self.tokens)]  # fmt: skip
        groups = any(m.value == "group" for word in near for m in known.get((word,), ())
                     if m.kind == "noun")  # fmt: skip
        if groups:
            return False
        beside = any(
            meaning.kind == "noun" and meaning.value == "job"
            for word in near
            for meaning in known.get((word,), ())
        )
        return beside if ours else True

    def _behind_an_order(self, place: int) -> bool:
        """Return whether the word before, apart from names and `and`, is an order to a job."""
        named = {n for first, (_, last) in self.names.items() for n in range(first, last + 1)}
        before = place - 1
        while before >= 0 and (before in named or self.tokens[before].norm in _AND):
            before -= 1
        if before < 0:
            return False
        meanings = phrases().get((self.tokens[before].norm,), ())
        return any(m.kind == "verb" and m.value in _OF_JOBS for m in meanings)

    def _scan(self) -> list[Spot]:
        known, found, i = phrases(), list[Spot](), 0
        named = {n for first, (_, last) in self.names.items() for n in range(first, last + 1)}
        while i < len(self.tokens):
            if i in self._timed or i in named or i in self.person.places:
                i += 1
                continue
            for size in range(min(LONGEST, len(self.tokens) - i), 0, -1):
                window = range(i, i + size)
                if (self._timed | named | self.person.places) & set(window):
                    continue
                phrase = tuple(word for n in window for word in self.tokens[n].norm.split())
                if phrase not in known:
                    phrase = tuple(map(unaccented, phrase))
                if phrase in known:
                    found.append(Spot(i, i + size - 1, known[phrase]))
                    i += size
                    break
            else:
                i += 1
        return found

    def _in_one_language(self, found: list[Spot]) -> list[Spot]:
        """Return the spots without meanings of other languages than that of most words."""
        self.spots = found
        spoken = self.language()
        return [
            spot._replace(
                meanings=tuple(m for m in spot.meanings if spoken in m.languages) or spot.meanings
            )
            for spot in found
        ]

    def _attach(self) -> None:
        """Attach numbers, ranges and names to the nouns beside them."""
        for spot in self.spots:
            if not spot.means("noun"):
                continue
            noun = spot.value("noun")
            before = spot.first - 1
            if noun in ("device", "job") and before >= 0:
                token = self.tokens[before]
                if token.kind == "number" and before not in self.used and "#" not in token.text:
                    self.counts[noun] = int(token.value)
            if noun in self.targets:
                self._read_list(noun, spot)
            if noun == "group":
                self._group_beside(spot)
        for first, (name, last) in self.names.items():
            if first not in self.used:
                self.targets["job"].append(name)
                self.used.update(range(first, last + 1))
        for i, token in enumerate(self.tokens):
            if token.text.startswith("#") and i not in self.used:
                self.targets["job"].append(int(token.value))
                self.used.add(i)

    def _whole_counts(self) -> frozenset[int]:
        if self.find("verb") is not None:
            return frozenset()  # "cancel all 3" may be job 3
        norms = [token.norm for token in self.tokens]
        return frozenset(
            i
            for i, token in enumerate(self.tokens)
            if token.kind == "number" and token.value >= _FEWEST and i and i not in self._timed
            and (norms[i - 1] in _ALL or (norms[i - 1] in _NUMBERING and i > 1
                                          and norms[i - 2] in _ALL))
        )  # fmt: skip

    def _read_list(self, noun: str, spot: Spot) -> None:
        """Read `7`, `7, 8 and 9`, `2-5` and `2 to 5` behind a noun."""
        i, found = spot.last + 1, self.targets[noun]
        while i < len(self.tokens) and (
            self.tokens[i].norm in _NUMBERING and self._number_follows(i + 1)
        ):
            self.used.add(i)
            i += 1
        begin = i
        while i < len(self.tokens):
            token = self.tokens[i]
            joins = i > begin and self._number_follows(i + 1)
            if joins and token.norm in RANGE and found and isinstance(found[-1], int):
                end = int(self.tokens[i + 1].value)
                if not 0 <= end - found[-1] <= MOST:
                    return
                found += range(found[-1] + 1, end + 1)
                self.used.update((i, i + 1))
                i += 2
                continue
            skipped = 1 if joins and token.norm in JOINS else 0
            if i > begin and not skipped and not token.comma:
                return
            read = self._read_target(noun, i + skipped)
            if not read:
                return
            found += read
            self.used.update(range(i, i + skipped + 1))
            i += skipped + 1

    def _read_target(self, noun: str, i: int) -> list[Target]:
        """Return what a token names: a number, a range, or the name of a job."""
        token = self.tokens[i]
        if i in self.used or i in self._timed:
            return []
        if token.kind == "number" and token.value == int(token.value):
            return [int(token.value)]
        if token.kind == "range" and 0 <= token.last - token.value <= MOST:
            return list(range(int(token.value), token.last + 1))
        if noun == "job" and i in self.names:
            name, last = self.names[i]
            self.used.update(range(i, last + 1))
            return [name]
        return [token.text] if noun == "job" and token.kind in ("quoted", "name") else []

    def _number_follows(self, i: int) -> bool:
        return (
            i < len(self.tokens)
            and i not in self._timed
            and (self.tokens[i].kind in ("number", "range", "quoted", "name") or i in self.names)
        )

    def _group_beside(self, spot: Spot) -> None:
        for i in (spot.last + 1, spot.first - 1):
            if i in self.groups or (
                0 <= i < len(self.tokens)
                and self.tokens[i].kind in ("quoted", "name", "word")
                and (self.tokens[i].norm,) not in phrases()
            ):
                self.groups.setdefault(i, self.tokens[i].text)
                return


def _separated(found: list[Token]) -> list[Token]:
    """Return the tokens with a verb of two parts in one: `brich job 7 ab`."""
    end = len(found)
    while end and found[end - 1].norm in _LAST:
        end -= 1
    for start in range(min(end, 6)):
        for particle in sorted(_SEPARABLE.get(found[start].norm, ()), key=len, reverse=True):
            words = particle.split()
            first = end - len(words)
            if first > start + 1 and [token.norm for token in found[first:end]] == words:
                joined = found[start]._replace(norm=f"{found[start].norm} {particle}")
                return [*found[:start], joined, *found[start + 1 : first], *found[end:]]
    return found


def _spaced(request: str) -> str:
    """Return a request in which `1-gpu` and `gpus 1,3` are separate words."""
    text = re.sub(r"(?i)\b(\d+)-(gpus?|cards?|karten)\b", r"\1 \2", request)
    text = re.sub(r"(?i)\b((?:gpu|job|karte|prozess)\s\d+)\s(?=am\s)", r"\1; ", text)
    listed = r"(?i)\b(?:gpus?|jobs?|cards?|karten|cartes|tarjetas)\s+\d+(?:,\d+)+"
    return re.sub(listed, lambda found: found[0].replace(",", ", "), text)
