"""Complete what the encoder found by what is certain: numbers behind their nouns, sizes, counts.

Numbers behind their nouns, such as `gpu 3` and `jobs 4 and 5`, are read by their form, whatever the
encoder made of them; `24 GB`, `2 gpus` and bare numbers only where it has made nothing of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from gpudeck.assistant.intents import amounts
from gpudeck.assistant.intents.moments import DATED
from gpudeck.assistant.intents.names import Known, is_word
from gpudeck.assistant.intents.spoken_names import with_whole_names
from gpudeck.assistant.intents.thresholds import FILLER
from gpudeck.assistant.intents.tokens import JOIN
from gpudeck.assistant.reader.reading import Reading

_GPU = (
    r"(?:gpus?|cards?|boards?|devices?|graphics cards?|karten?|grafikkarten?|gerät|cartes?"
    r"(?: graphiques?)?|tarjetas?(?: gráficas?)?|gráficas?|placas?|cuda)"
)
_JOB = (
    r"(?:jobs?|runs?|tasks?|trainings?|auftr[aä]ge?n?|aufträg|läufe?|t[aâ]ches?|trabajos?|tareas?"
    r"|corridas?)"
)
_PROCESS = r"(?:pids?|process(?:es)?|prozess(?:e|en)?|processus|procesos?)"
_NUMBERING = r"(?:\s*(?:#|:|number|numbers|no\.?|nr\.?|nummer|num[eé]ro|n[uú]mero|n°|id)\s*|\s+|-)"
_TO = r"(?:\s*(?:-|–|\.\.)\s*|\s+(?:to|through|thru|bis|[aà]|au|al?|hasta)\s+)"
_ONE = (
    r"#?\d{1,9}(?![\w:%°]|[.,/]\d|\s?(?:gb|gib|mb|mib|tb|gigs?|°|degrees?|watts?|w\b|%"
    r"|uhr|o'?clock|am\b|pm\b|h\b|(?:hours?|hrs?|min(?:utes?|uten|utos?)?|stunden?|days?|tagen?"
    r"|jours?|d[ií]as?|heures?|horas?|times|mal|fois|veces|x)\b))"
)
_LIST = (
    rf"{_ONE}(?:{_TO}{_ONE}|{JOIN.pattern}(?:(?:{_GPU}|{_JOB}"
    r"|the|die|der|den|le|la|les|el|los|las)\s+)*"
    rf"{_ONE})*"
)
_PROGRAM_OF = re.compile(
    rf"(?<!\w){_PROCESS}\s+(?P<list>(?=\S*[^\W\d_])(?=\S*[\d._])[\w./+-]*[\w+])(?!\w)",
    re.IGNORECASE,
)
"""The name of a process that no sentence has as a word: `process python3.11`."""
_RIGHT_BESIDE = re.compile(
    r"(?<!\w)(?:right|directly|immediately|just|straight|direkt|unmittelbar|gleich|juste"
    r"|directement|immédiatement|justo|directamente|inmediatamente) (?:after|behind|before"
    r"|in front of|ahead of|nach|hinter|vor|après|derrière|avant|devant"
    r"|(?:después|detrás|antes|delante) del?)"
    rf" (?:(?:{_JOB}|the|le|la|el|dem|den|number|nummer) )*(?P<list>{_ONE})",
    re.IGNORECASE,
)
"""A place in the queue next to that of a job: `right after 10`."""
_UNIT = re.compile(
    r"(?i)\s?(?:°|%|(?:grad|degrees?|degr[eé]s?|grados?|watts?|w|percent|prozent|gi?b|kwh)\b)"
)
"""What makes a number behind a GPU a measured value: `gpu 2 5 degrees warmer`."""
_FORMS = (
    ("gpus", re.compile(rf"(?<!\w){_GPU}{_NUMBERING}*(?P<list>{_LIST})", re.IGNORECASE)),
    ("jobs", re.compile(rf"(?<!\w){_JOB}{_NUMBERING}*(?P<list>{_LIST})", re.IGNORECASE)),
    ("pid", re.compile(rf"(?<!\w){_PROCESS}{_NUMBERING}*(?P<list>{_LIST})", re.IGNORECASE)),
)
_COUNT = re.compile(rf"(?<![\w.#])(?P<list>\d{{1,3}})[\s-]*{_GPU}(?!\w|\s*#?\d)", re.IGNORECASE)
_SIZE = re.compile(
    r"(?<![\w.])(?P<list>\d+(?:[.,]\d+)?\s?(?:[kmgt]i?b|[gmt]i?o|gigs?|gigas?|gigabytes?))(?!\w)",
    re.IGNORECASE,
)
_BARE = re.compile(rf"(?<![\w.:/#-])(?P<list>{_LIST})(?!\s*[^\W\d_]{{3,}}s\b)", re.IGNORECASE)
_NAMED = re.compile(rf"{_ONE}(?:{_TO}{_ONE})?", re.IGNORECASE)
_END = re.compile(
    r"(?i)(?<!\w)(?:un)?(?:til|till|bis|jusqu['’]?[aà]?|hasta)(?:\s(?:the|um|zum|le|la|las))?\s*$"
)
_OF_NUMBERS = frozenset({"jobs", "gpus", "pid", "except", "after", "after_any", "beside"})
_WHOLE = frozenset({"command", "notes", "words", "folder", "name", "if"})
"""Fields whose letters are left alone."""
_OF_MODEL = frozenset({"gpus", "gpu_type"})
_MODEL = re.compile(
    r"(?i)(?:(?:nvidia|geforce|tesla|quadro|radeon|instinct|rtx|gtx|rx)\s)+\S*\d{2}\S*"
)
"""The model of a GPU in several words."""
_DATE = re.compile(rf"(?i)(?<![\w./]){DATED}")
_NTH = re.compile(r"(?i)\d{1,2}(?:st|nd|rd|th|er|\.)?")
_OF_MONTH = re.compile(r"(?i)(?<!\w)(?:the|zum|vom|am|den|dem|le|au|du|el|al|del)\s$")
_DAY_AND_MONTH = re.compile(r"(?<![\d.:])(?<!um )(?<!at )\d{1,2}\.(?:0?[1-9]|1[0-2])$")
_VALUES = frozenset({"priority", "count", "number", "retries"})
_MOMENTS = frozenset({"until", "from", "begin", "at"})
_LENGTHS = frozenset({"timeout", "duration"})
_WAITED_FOR = frozenset({"after", "after_any"})
_OF_OPTIONS = frozenset({"order edit", "order submit"})
_FAILS = re.compile(
    r"(?i)\b(?:fails?|crash\w*|dies|breaks|stirbt|fehlschl\w+|scheitert|abst[uü]rzt|abbricht"
    r"|[eé]choue\w*|plante|meurt|falla|muere|se (?:cae|rompe))\b"
)
"""What retries are for, so that it is no condition of the order."""
_PLACING = frozenset({"order edit", "order move"})
_OF_AMOUNTS = frozenset({"order retry", "order edit"})
_AMOUNTS = frozenset({"memory", "timeout", "duration", "begin", "count"})
_MIXED = re.compile(r"[^\W\d_]\d|\d[^\W\d_]")
_TAKES_SIZE = frozenset({"ask capacity", "order retry", "order edit", "order submit"})
_BARE_OF = {
    "gpus": frozenset({"ask gpus", "order drain", "order undrain", "order book", "order free"}),
    "jobs": frozenset({"ask jobs", "order cancel", "order pause", "order resume", "order retry",
                       "order move", "order note", "ask log_search"}),
    "pid": frozenset({"order kill"}),
}  # fmt: skip


class _Part(NamedTuple):
    field: str
    first: int
    last: int


def completed(request: str, found: Reading, known: Known) -> Reading:
    """Return a reading with the parts whose form says what they are."""
    parts = [
        _Part(field, first, last)
        for (field, _), (first, last) in zip(found.spans, found.places, strict=True)
        if field != "gpus" or not _UNIT.match(request[last:])
    ]
    if found.head == "order kill":  # the command of a process is its name
        parts = [part._replace(field="pid") if part.field == "command" else part for part in parts]
    found_fields = {part.field for part in parts}
    for (field, first, whole), has_noun in _certain(request, found.head):
        last = _before_value(request, first, whole, parts) if has_noun else whole
        over = [part for part in parts if part.first < last and part.last > first]
        apart = not (has_noun or over)
        if apart and (field in found_fields or _is_filler(found, first, last)):
            continue  # "again, but with seed 42", or "113! and 131 goes on"
        if any(
            (part.field in _WHOLE and not (first < part.first or part.last < last))
            or (not has_noun and part.field != field)
            for part in over
        ):
            continue
        wider = [part for part in over if part.first < first or part.last > last]
        if not has_noun and any(part.field == field == "jobs" for part in wider):
            continue  # "those that wait for 10" are not 10
        kept = next((part.field for part in over if part.field in _OF_NUMBERS), "")
        of_jobs = field == "gpus" and found.head in _BARE_OF["jobs"]  # no job has that number
        chosen = kept if kept not in ("", "jobs", "gpus") and not of_jobs else field
        parts = [part for part in parts if part not in over]
        listed = chosen in _OF_NUMBERS and not _MIXED.search(request[first:last])
        places = _split(request[first:last]) if listed else [(0, last - first)]
        parts += [_Part(chosen, first + a, first + b) for a, b in places]
    if found.head in _OF_OPTIONS and any(part.field == "retries" for part in parts):
        parts = [
            part
            for part in parts
            if part.field != "if" or not _FAILS.search(request[part.first : part.last])
        ]
    if found.head in _OF_AMOUNTS:
        parts = [*_with_relations(request, parts)]
    if found.head == "order note":
        parts = [*_note(request, parts)]
    if found.head == "order pause":
        parts = [_until(request, part) for part in parts]
    parts = [*_with_dates(request, parts)]
    parts += _names(request, found, parts, known)
    parts = _joined(request, _whole_times(request, sorted(parts, key=lambda part: part.first)))
    made = found._replace(
        spans=tuple((part.field, request[part.first : part.last]) for part in parts),
        places=tuple((part.first, part.last) for part in parts),
    )
    return with_whole_names(request, made, known)


def _before_value(request: str, first: int, last: int, parts: list[_Part]) -> int:
    """Return where a list of numbers ends: before a number that was found to be a new value, as in
    `the priority of job 7 to 10`."""
    value = min((part.first for part in parts if part.field in _VALUES
                 and first < part.first < last), default=last)  # fmt: skip
    kept = [match.end() for match in re.finditer(r"\d+", request[first:value])]
    return first + kept[-1] if value < last and kept else last


def _note(request: str, parts: list[_Part]) -> Iterator[_Part]:
    """Yield the parts with the letters of a note as one; behind a colon it goes on to the end."""
    notes = [part for part in parts if part.field == "notes"]
    if notes:
        first = min(part.first for part in notes)
        is_behind_colon = request[:first].rstrip().endswith(":")
        last = len(request) if is_behind_colon else max(part.last for part in notes)
        yield _Part("notes", first, last)
        parts = [part for part in parts if part.last <= first or part.first >= last]
    yield from parts


def _with_relations(request: str, parts: list[_Part]) -> Iterator[_Part]:
    """Yield the parts, amounts with what says that they are added to another."""
    end = 0
    for part in sorted(parts, key=lambda part: part.first):
        if part.first < end:
            continue  # within a wider amount
        if part.field in _AMOUNTS:
            first, last = amounts.widened(request, part.first, part.last)
            yield part._replace(first=max(first, end), last=last)
            end = last
        else:
            end = part.last
            yield part


def _is_filler(found: Reading, first: int, last: int) -> bool:
    """Return whether the encoder is sure that letters, which have no field, need none."""
    within = [one.filler for one in found.loose if one.first < last and one.last > first]
    return min(within, default=0.0) >= FILLER


def _until(request: str, part: _Part) -> _Part:
    """Return a later time as the end of a pause, if a word for an end stands before it."""
    ends = part.field == "at" and _END.search(request[: part.first]) is not None
    return part._replace(field="until") if ends else part


def _with_dates(request: str, parts: list[_Part]) -> Iterator[_Part]:
    """Yield the parts, times with their dates, of which the encoder may have found pieces."""
    end = 0
    for part in sorted(parts, key=lambda part: part.first):
        if part.first < end and part.field in _MOMENTS:
            continue
        dated = _dated(request, part)
        end = max(end, dated.last)
        yield dated


def _dated(request: str, part: _Part) -> _Part:
    """Return a time with all letters of its date: `1.12.`, `le 16`, `al 6 de febrero`."""
    if part.field not in _MOMENTS | _WAITED_FOR:
        return part
    first, last = part.first, part.last
    for found in _DATE.finditer(request):
        if found.start() < last and found.end() > first:
            field = "begin" if part.field in _WAITED_FOR else part.field  # no job is `12.12.`
            return part._replace(
                field=field, first=min(first, found.start()), last=max(last, found.end())
            )
    if part.field in _WAITED_FOR:
        return part
    letters = request[first:last]
    before = _OF_MONTH.search(request[:first]) if _NTH.fullmatch(letters) else None
    if before is None and _DAY_AND_MONTH.search(letters) is None:
        return part
    first = before.start() if before is not None else first
    return part._replace(first=first, last=last + (request[last:][:1] == "."))


def _whole_times(request: str, parts: list[_Part]) -> list[_Part]:
    """Return parts, with a time as one of which the middle was found to be a length of time.

    In `trois heures et quart` it may be `heures`. No length is without a number.
    """
    made = list(parts)
    for i, (one, middle, other) in enumerate(zip(parts, parts[1:], parts[2:], strict=False)):
        between = request[one.last : middle.first] + request[middle.last : other.first]
        cut = one.field == other.field in _MOMENTS and middle.field == "duration"
        if cut and between.isspace() and request[middle.first : middle.last].isalpha():
            made[i : i + 3] = [one._replace(last=other.last)]
            return _whole_times(request, made)
    return made


def _joined(request: str, parts: list[_Part]) -> list[_Part]:
    """Return parts in which a time is one that was found in two pieces with nothing between, as
    `4 more` and `hours`.

    So is the model of a GPU, as in `RTX 4090`. A time that delays an order stays as it is: what has
    one is proposed by its letters alone.
    """
    made: list[_Part] = []
    for part in parts:
        last = made[-1] if made else None
        follows = last is not None and (
            last.field == part.field in (_MOMENTS - {"at"}) | _LENGTHS
            or (last.field in _OF_MODEL and part.field in _OF_MODEL
                and _MODEL.fullmatch(request[last.first : part.last]) is not None)
        )  # fmt: skip
        if last is not None and follows and not request[last.last : part.first].strip():
            made[-1] = last._replace(last=part.last)
        else:
            made.append(part)
    return made


def _certain(request: str, head: str) -> Iterator[tuple[_Part, bool]]:
    """Yield the parts that a form names, and bare numbers by what the request is about.

    With each is said whether its noun stands before it.
    """
    taken: list[tuple[int, int]] = []

    def free(match: re.Match[str]) -> bool:
        first, last = match.span("list")
        if any(first < end and last > begin for begin, end in taken):
            return False
        taken.append((first, last))
        return True

    forms = [*_FORMS, ("count", _COUNT)]
    if head == "order kill":
        forms.insert(0, ("pid", _PROGRAM_OF))
    if head in _PLACING:
        forms.insert(0, ("beside", _RIGHT_BESIDE))
    if head in _OF_AMOUNTS:
        forms.insert(0, ("count", amounts.MORE_GPUS))
    if head in _TAKES_SIZE:
        forms.insert(0, ("memory", amounts.MULTIPLE_OF_MEMORY))
        forms.append(("memory", _SIZE))
    bare = next((field for field, heads in _BARE_OF.items() if head in heads), "")
    if bare and head.startswith("order"):
        forms.append((bare, _BARE))
    for field, pattern in forms:
        for match in pattern.finditer(request):
            if free(match):
                yield _Part(field, *match.span("list")), pattern not in (_COUNT, _SIZE, _BARE)


def _split(letters: str) -> Iterator[tuple[int, int]]:
    """Yield where the numbers of a list stand, ranges as one; letters without any as they are."""
    found = [match.span() for match in _NAMED.finditer(letters)]
    yield from found or [(0, len(letters))]


def _names(request: str, found: Reading, parts: list[_Part], known: Known) -> Iterator[_Part]:
    """Yield the names of jobs that stand behind or before a noun of jobs: `job train`."""
    low = request.casefold()
    for name in known.jobs:
        if not is_word(name.casefold(), low):
            continue
        noun = re.search(
            rf"(?<!\w)(?:{_JOB}\s+(?P<a>{re.escape(name)})|(?P<b>{re.escape(name)})[\s-]{_JOB})"
            r"(?![\w-])",
            request,
            re.IGNORECASE,
        )
        if noun is None:
            continue
        first, last = noun.span("a") if noun["a"] else noun.span("b")
        if not any(part.first < last and part.last > first for part in parts):
            yield _Part("jobs", first, last)
