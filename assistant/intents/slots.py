"""Put slots for what a request names, so that a model reads only its words.

`cancel 3, 4 and render` is read as `cancel <n1> and <j1>`. A model can neither garble a number nor
take a name for a word of its own, and lists, ranges and times are read by the code that reads them
for the rules.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from gpudeck.assistant.intents.lexicon import phrases
from gpudeck.assistant.intents.spots import JOINS, RANGE, Known, Spots
from gpudeck.assistant.intents.tokens import Token, unit_of
from gpudeck.assistant.query.conversion import kind_of
from gpudeck.assistant.query.request import Span

MOST = 4
"""Slots of a kind; a request with more is not read by the model."""
_PROGRAM = re.compile(
    r"(?i)(?<![\w./-])(?:python3?|bash|torchrun|accelerate|deepspeed|mpirun|nohup|julia|docker"
    r"|nvidia-smi|\./\S+|\S+\.(?:py|sh|jl))(?!\w)"
)
_PRICE = re.compile(
    r"(?i)\d+(?:[.,]\d+)?\s?(?:ct|cents?|c[eé]ntimos?|centimes?|€|eur|euros?|dollars?|\$)?\s?"
    r"(?:a|an|per|/|pro|je|le|par|por|el|each|for each|die)?\s?kwh\b"
)
"""The price of a kWh, which `gpudeck.assistant.intents.context` reads."""
_SETS = re.compile(
    r"(?i)\b(?:set|change|put|setze?|stelle?|[aä]ndere?|mets|r[eè]gle|pon|cambia|ajusta|fija)\b"
    r"|\b(?:costs?|kostet|co[uû]te|cuesta)\s(?:(?:now|jetzt|maintenant|ahora|hier|ici)\s)?\d"
)
"""A price that is set, not asked about."""
_BEHIND = re.compile(
    r"(?i)[,;]?\s+(?:(?:on|auf|sur|en|to|with|using|mit|avec|con)\s+(?:the |la |le |der |dem )?"
    r"(?:gpus?|cards?|karten?|cartes?|tarjetas?|\d+\s)|as an?\b|als\b|comme\b|como\b"
    r"|(?:and|und|et|y)\s|named\b|called\b|with the name|unter dem namen|sous le nom|con el nombre"
    r"|mit dem namen|please|bitte|por favor|stp\b).*$"
)
_NAMING = frozenset({"named", "called", "name", "namen", "nom", "nombre", "namens", "it", "ihn"})
_ORDINAL = re.compile(r"(?i)(\d{1,4})(?:st|nd|rd|th|er|ere|ème|eme|º|ª|o)")
_FOREIGN = re.compile(r"^[/~.]|[._\\@]|\w-\w*\d|\d\w*-")
"""What names a file, a program or a person, and is no word such as `fp16` or `fans/temps`."""
_NEGATIVE = re.compile(r"[-−]\d{1,4}")
_EVER = re.compile(
    r"start|boot|restart|arran|demarr|encendi|hochfahren|inicio|\bever\b|so far|all time|jemals"
    r"|uberhaupt|tout temps|los tiempos|jamas"
)
"""Times that reach back to the first reading."""
_ARTICLES = frozenset({"the", "of", "these", "those", "des", "les", "ces", "las", "los", "die",
                       "den", "der", "of the"})  # fmt: skip
_ALSO = (
    ("as", "well", "as"), ("ainsi", "que"), ("asi", "como"), ("and", "also"), ("and", "then"),
    ("und", "auch"), ("et", "aussi"), ("y", "tambien"), *((word,) for word in sorted(JOINS)),
)  # fmt: skip
"""What joins two numbers to a list."""
_WHOLE = frozenset({"all", "the", "alle", "allen", "die", "den", "der", "tous", "toutes", "les",
                    "des", "todas", "todos", "las", "los", "entre", "my", "meine", "mes",
                    "mis"})  # fmt: skip
_LONG = 6
"""Letters of a name that is also recognized with another ending."""
_A_ONE = frozenset({"the", "le", "la", "el", "der", "die", "den", "das", "les", "los", "las"})
_ENDS = frozenset({"last", "first", "derniers", "dernieres", "premiers", "premieres", "ultimos",
                   "ultimas", "primeros", "primeras", "letzten", "ersten"})  # fmt: skip
_A = frozenset({"a", "an", "one", "ein", "eine", "einen", "einer", "un", "une", "una"})
_ONE = frozenset({"priority", "prio", "prioritat", "prioridad", "priorite", "limit", "limite",
                  "job", "trabajo"})  # fmt: skip
"""Words behind which a number is one number: `the priority of job 3 to 5`."""


class Quantity(NamedTuple):
    """Hold an amount with its unit."""

    value: float
    unit: str


Value = tuple[float, ...] | tuple[str, ...] | str | Quantity | Span


class Slots(NamedTuple):
    """Hold a request with slots, and what they stand for."""

    text: str
    values: Mapping[str, Value]
    counts: frozenset[str] = frozenset()
    """The slots of numbers that count something else, such as the 3000 of `its 3000 steps`."""


def slotted(request: str, known: Known, now: float, follows: bool = False) -> Slots:
    """Return a request with slots for its numbers, quantities, times, names and commands.

    Args:
        request: The request as it was typed.
        known: The names of jobs and groups.
        now: Seconds since the epoch.
        follows: It follows a question, so that `and the 4?` names no hour.
    """
    return _Reader(request, known, now, follows).read()


class _Reader:
    def __init__(self, request: str, known: Known, now: float, follows: bool) -> None:
        self.values: dict[str, Value] = {}
        self.parts: list[str] = []
        self.command = ""
        self.counts: set[str] = set()
        self.last = ""
        """The second part of a verb, which stands at the end."""
        request = self._without_command(request)
        if not _SETS.search(request):
            request = _PRICE.sub("price kwh", request)
        self.spots = Spots(request, known, now)
        if follows:
            self.spots.drop_bare_hour()
        self.tokens = self.spots.tokens
        self.tags = {tag.casefold() for tag in known.tags}
        self.names = self.spots.names | _verbs(self.tokens, known) | _inflected(self.tokens, known)
        self.groups = _groups(self.tokens, known)
        self.timed = self._timed()

    def _timed(self) -> frozenset[int]:
        """Return the tokens of the time; one without a beginning is left to the model's words."""
        time = self.spots.time
        if time is None:
            return frozenset()
        last = max(time.used) + 1
        if last < len(self.tokens) and self.tokens[last].norm in self.tags:
            return frozenset()  # "der tag NAME" is no day
        said = " ".join(self.tokens[i].norm for i in sorted(time.used))
        german = said == "hier" and self.spots.language() == "de"
        end = max(time.used) + 1
        counted = len(time.used) < 3 and self.tokens[end - 1].kind == "number"
        counted = counted and self._is_noun(end)  # "las ocho tarjetas" is no hour
        return frozenset() if german or counted or _EVER.search(said) else time.used

    def read(self) -> Slots:
        i = 0
        while i < len(self.tokens):
            i = self._read(i)
        text = " ".join([*self.parts, self.last]).strip()
        return Slots(text, self.values, frozenset(self.counts))

    def _slot(self, kind: str, value: Value) -> None:
        number = 1 + sum(name[0] == kind for name in self.values)
        self.values[f"{kind}{number}"] = value
        self.parts.append(f"<{kind}{number}>")

    def _without_command(self, request: str) -> str:
        """Return a request with a mark for the command in it."""
        quoted = re.search(r"(?<!\w)[`'\"“]([^`'\"”\n]{1,300})[`'\"”](?!\w)", request)
        if quoted and _PROGRAM.match(quoted[1].strip()):
            self.command = quoted[1].strip()
            return request[: quoted.start()] + " qqcommandqq " + request[quoted.end() :]
        found = _PROGRAM.search(request)
        if quoted or not found:
            return request
        command = request[found.start() :]
        behind = _BEHIND.search(command)
        self.command = command[: behind.start()] if behind else command.rstrip(" .!?")
        rest = command[len(self.command) :]
        return f"{request[: found.start()]} qqcommandqq {rest}"

    def _read(self, i: int) -> int:
        """Read the token at a place, and return the place behind it."""
        token = self.tokens[i]
        if token.text == "qqcommandqq":
            self._slot("c", self.command)
        elif i in self.timed and self.spots.time is not None:
            if i == min(self.timed):
                self._slot("t", self.spots.time.span)
        elif i in self.groups:
            name, last = self.groups[i]
            self._slot("g", name)
            return last + 1
        elif i in self.names:
            return self._names(i)
        elif token.kind in ("number", "range") and not self._stands_for(i):
            return self._numbers(i)
        elif _NEGATIVE.fullmatch(token.text):
            self._slot("n", (float(token.text.replace("−", "-")),))
        elif token.kind == "quantity" or (token.norm in _A and self._lasts(i + 1)):
            return self._amount(i)
        elif ordinal := _ORDINAL.fullmatch(token.text):
            self._slot("n", (float(ordinal[1]),))
        elif (
            token.norm in self.tags
            or token.kind == "quoted"
            or (token.kind == "name" and _FOREIGN.search(token.text))
            or (self.command and i and self.tokens[i - 1].norm in _NAMING)
        ):
            self._slot("s", token.text)
        elif not (i and self.tokens[i - 1].text == token.text and token.text.isalpha()):
            self._word(token)  # a compound is several tokens of one text
        return i + 1

    def _word(self, token: Token) -> None:
        verb, _, particle = token.norm.partition(" ")
        if particle:  # `brich job 7 ab`, which the rules read as one word
            self.parts.append(verb)
            self.last = particle
        else:
            joined = "-" in token.text and "-" not in token.norm
            self.parts.append(token.norm if joined else token.text)

    def _amount(self, i: int) -> int:
        """Read a quantity with the kind of its unit, and return the place behind it."""
        token, used = self.tokens[i], 1
        found = Quantity(token.value, token.unit)
        if token.kind != "quantity":
            found, used = Quantity(1.0, unit_of(self.tokens[i + 1].norm)), 2
        kind = "percent" if found.unit == "%" else kind_of(found.unit)
        self._slot("q", found)
        self.parts.append(f"({kind if kind and kind != 'rate' else 'other'})")
        return i + used

    def _stands_for(self, i: int) -> bool:
        """Return whether a spelt number stands for what was named before, as in `of the two`."""
        text = self.tokens[i].text.casefold()
        if not text.isalpha() or text == "once":  # which is not the Spanish eleven
            return text.isalpha()
        before = self.tokens[i - 1].norm if i else ""
        behind = i + 1 < len(self.tokens) and (
            self.tokens[i + 1].norm in _ENDS or self._is_noun(i + 1)
        )
        return before in _ARTICLES and not behind

    def _lasts(self, i: int) -> bool:
        """Return whether a unit of time follows behind a power: `700 W over a day`."""
        powers = any(
            isinstance(value, Quantity) and kind_of(value.unit) == "power"
            for value in self.values.values()
        )
        return powers and i < len(self.tokens) and kind_of(unit_of(self.tokens[i].norm)) == "time"

    def _names(self, i: int) -> int:
        """Read names of jobs in a row."""
        found: list[str] = []
        while True:
            name, last = self.names[i]
            found.append(name)
            i = last + 1
            if i in self.names and self.tokens[i].comma:
                continue
            if i + 1 in self.names and self.tokens[i].norm in JOINS:
                i += 1
                continue
            self._slot("j", tuple(found))
            return i

    def _numbers(self, i: int) -> int:
        """Read numbers in a row: `3, 4 and 6`, `2 to 5`."""
        if self._counts_all(i):
            return i + 1  # "all eight cards" are all cards
        first, found = i, list(_of(self.tokens[i]))
        one = (i > 0 and self.tokens[i - 1].norm in _ONE) or any(
            token.norm in _ONE and token.norm[:2] in ("pr", "li") for token in self.tokens
        )  # fmt: skip
        i += 1
        while i < len(self.tokens):
            at = self._joined(i)
            joins = at > i
            if not joins and self.tokens[i].norm in RANGE:
                at = i + 1
                while at < len(self.tokens) and self.tokens[at].norm in _A_ONE:
                    at += 1  # "de la 4 a la 7"
            if not self._number(at) or (at == i and not self.tokens[i].comma):
                break
            if at > i and not joins:
                end = self.tokens[at].value
                if one or not 0 < end - found[-1] <= 1000:
                    break
                found += [float(n) for n in range(int(found[-1]) + 1, int(end) + 1)]
            else:
                found += _of(self.tokens[at])
            i = at + 1
        self._slot("n", tuple(found))
        if i == first + 1 and self._counts_else(first):
            self.counts.add(f"n{sum(name[0] == 'n' for name in self.values)}")
        return i

    def _joined(self, i: int) -> int:
        """Return the place behind `and`, `as well as`, `and job` and the like; else the same."""
        norms = [token.norm for token in self.tokens[i : i + 5]]
        size = next((len(words) for words in _ALSO if tuple(norms[: len(words)]) == words), 0)
        if not size:
            return i
        noun = self._noun_before(i)
        while size < len(norms) and (norms[size] in _A_ONE or norms[size] == noun):
            size += 1
        return i + size if self._number(i + size) else i

    def _noun_before(self, i: int) -> str:
        """Return the noun before the numbers that end before a place: the `job` of `job 3 and`."""
        while i > 0 and self.tokens[i - 1].kind in ("number", "range"):
            i -= 1
        return self.tokens[i - 1].norm if i > 0 and self._is_noun(i - 1) else ""

    def _is_noun(self, i: int) -> bool:
        return i < len(self.tokens) and (
            i in self.names or i in self.groups
            or any(m.kind == "noun" for m in phrases().get((self.tokens[i].norm,), ()))
        )  # fmt: skip

    def _counts_all(self, i: int) -> bool:
        """Return whether a number only says how many there are, as in `all eight cards`."""
        before = self.tokens[i - 1].norm if i else ""
        return i in self.spots.whole or (before in _WHOLE and self._is_noun(i + 1))

    def _counts_else(self, i: int) -> bool:
        """Return whether a number counts what is no job and no GPU, as in `3000 steps`."""
        if i + 1 >= len(self.tokens) or self.tokens[i + 1].comma:
            return False
        behind = self.tokens[i + 1]
        unread = behind.kind == "word" and (behind.norm,) not in phrases()
        return unread and behind.norm.endswith(("s", "en", "e")) and not self._is_noun(i + 1)

    def _number(self, i: int) -> bool:
        return (
            i < len(self.tokens) and i not in self.timed
            and self.tokens[i].kind in ("number", "range")
        )  # fmt: skip


def _of(token: Token) -> list[float]:
    if token.kind == "range":
        return [float(n) for n in token.whole_numbers()]
    return [token.value]


def _verbs(tokens: list[Token], known: Known) -> dict[int, tuple[str, int]]:
    """Return the names of jobs that are verbs, as in `log of bench`, by their tokens."""
    return {
        i: (name, i)
        for name in known.jobs
        for i, token in enumerate(tokens)
        if i and token.norm == name.casefold()
        and {m.kind for m in phrases().get((token.norm,), ())} == {"verb"}
    }  # fmt: skip


def _inflected(tokens: list[Token], known: Known) -> dict[int, tuple[str, int]]:
    """Return the names of jobs with another ending, as in `the finetuning`, by their tokens."""
    return {
        i: (name, i)
        for name in known.jobs
        if len(name) >= _LONG
        for i, token in enumerate(tokens)
        if token.norm.startswith(stem := name.casefold().rstrip("e")) and token.norm != name
        and token.norm.removeprefix(stem) in ("ing", "ings", "er", "s", "es")
    }  # fmt: skip


def _groups(tokens: list[Token], known: Known) -> dict[int, tuple[str, int]]:
    """Return the names of groups by their first tokens, with the last one."""
    found: dict[int, tuple[str, int]] = {}
    for name in known.groups:
        for i, token in enumerate(tokens):
            if token.norm in (name.casefold(), f"{name.casefold()}s"):
                found[i] = (name, i)
    return found
