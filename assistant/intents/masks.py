"""Mask what a request names: `cancel job 1234` becomes `cancel job {n1}`.

The model never reads numbers, names or commands, so it cannot garble them, and a job whose name
reads like a command is not taken for one. What the model answers is filled in again. The slots are
{n1} for numbers (digits, or words where a number is expected, as in `job seven`), {t1} for days and
times of day, and {w1} for words that name something: quoted text, file names and identifiers, whole
commands, and the names of jobs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

NUMBER_WORDS = {
    word: str(number)
    for words in (
        "zero one two three four five six seven eight nine ten eleven twelve",
        "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf",
        "zéro un deux trois quatre cinq six sept huit neuf dix onze douze",
        "cero uno dos tres cuatro cinco seis siete ocho nueve diez once doce",
    )
    for number, word in enumerate(words.split())
} | {"fifteen": "15", "twenty": "20", "thirty": "30", "forty": "40", "fifty": "50"}
_SPELT = "|".join(NUMBER_WORDS)
_NO_NUMBER = r"(?! (?:more|last|fois|vez|mehr|mal)\b)"
"""What follows a number word that does not number a job, as in `run the job one more time`."""
NOUN = (
    r"jobs?|gpus?|cards?|devices?|number|nr\.?|no\.|auftrag|grafikkarte|karte|tâche|carte|tarea"
    r"|trabajo|tarjeta|pid|process|cuda"
)
_UNIT = (
    r"minutes?|mins?|hours?|hrs?|days?|weeks?|gpus?|cards?|minuten|stunden|tagen?|wochen"
    r"|karten|heures|jours|semaines|cartes|"
    r"minutos|horas|d[ií]as|semanas|tarjetas"
)
_PART = r"[\w./~-]"
_IDENTIFIER = (
    rf"(?={_PART}*?[A-Za-z])(?={_PART}*?(?:[\d_]|[./]{_PART}*?[\w~]"
    rf"|~{_PART}*?[A-Za-z])){_PART}+(?<![./-])"
)
"""A word with a digit, an underscore, a dot or a slash, such as train_big, llama3 or eval.py.

A word with a hyphen alone is an ordinary word.
"""
_INTERPRETER = (
    r"(?:python3?|bash|sh|torchrun|accelerate launch|deepspeed|mpirun|nohup|julia|uv run|docker"
    r" run|ollama run|\./\S+)"
)
_FLAG = r"-m [\w.]+|--?[A-Za-z][\w-]*(?:[= ](?:\d[\w.-]*|[\w./~:-]*[\d_./~][\w./~:-]*))?|\w+=\S+"
_ARGUMENT = rf"(?:{_FLAG}|{_IDENTIFIER})"
_PARTS = (
    (
        "quoted",
        r"\"[^\"\n]{1,300}\"|(?<!\w)'[^'\n]{1,300}'(?!\w)|`[^`\n]{1,300}`"
        r"|[“„][^“”\n]{1,300}[”“]|«[^»\n]{1,300}»",
    ),
    (
        "command",
        rf"(?<!\S){_INTERPRETER}(?:\s+{_ARGUMENT})+"
        rf"|(?<!\S){_IDENTIFIER}(?:\s+(?:{_FLAG}))+(?:\s+{_ARGUMENT})*",
    ),
    ("day", r"\b\d{4}-\d\d-\d\d\b(?:[ T]\d\d:\d\d)?"),
    (
        "clock",
        r"\b(?P<hour>[01]?\d|2[0-3])"
        r"(?:(?:[:h](?P<minute>[0-5]\d)(?:\s?(?P<half>[ap])\.?m\b\.?)?"
        r"|\s?(?P<half2>[ap])m\b|\s?uhr\b)(?![\d.]))",
    ),
    (
        "numbered",
        rf"\b(?P<noun>{NOUN})"
        rf"(?:[ #]+(?P<spelt>{_SPELT})\b{_NO_NUMBER}|[ #:-]*(?P<digits>\d+)\b)",
    ),
    ("counted", rf"\b(?P<count>{_SPELT})(?=[ -](?:{_UNIT})\b)"),
    ("rate", r"\bt?flops?/s\b"),
    ("measured", r"\b(?P<amount>\d+(?:\.\d+)?)(?P<unit>h|hrs?|m|mins?|d|w|s|k|gb|%|°c)(?!\w)"),
    ("identifier", rf"(?<![\w./~-]){_IDENTIFIER}"),
    ("number", r"\d+(?:\.\d+)?"),
)  # fmt: skip
_SLOT = re.compile(r"\{([ntw]\d{1,2})\}")


def masked(request: str, names: Iterable[str] = ()) -> tuple[str, dict[str, str]]:
    """Return the request with slots, and the values of the slots.

    Numbers are in digits, times are HH:MM, and words are without their quotes.

    Args:
        request: The request as it was typed.
        names: The names of jobs. One that is an ordinary word is masked beside the word `job` only.
    """
    values: dict[str, str] = {}

    def slot(kind: str, value: str) -> str:
        name = f"{kind}{1 + sum(known[0] == kind for known in values)}"
        values[name] = value
        return f"{{{name}}}"

    def replaced(found: re.Match[str]) -> str:
        part = {name: text for name, text in found.groupdict().items() if text is not None}
        if "quoted" in part:
            return slot("w", found[0][1:-1].strip())
        if "day" in part:
            return slot("t", found[0])
        if "clock" in part:
            half = part.get("half") or part.get("half2")
            hour = (
                int(part["hour"]) % 12 + 12 * (half.lower() == "p") if half else int(part["hour"])
            )
            return slot("t", f"{hour:02d}:{part.get('minute', '00')}")
        if "numbered" in part:
            noun = "gpu" if part["noun"].lower() == "cuda" else part["noun"]
            return f"{noun} {slot('n', part.get('digits') or NUMBER_WORDS[part['spelt'].lower()])}"
        if "counted" in part:
            return slot("n", NUMBER_WORDS[part["count"].lower()])
        if "measured" in part:
            return f"{slot('n', part['amount'])} {part['unit']}"
        if "rate" in part:
            return found[0]
        return slot("n" if "number" in part else "w", found[0])

    return _pattern(names).sub(
        replaced, request.replace("{", "(").replace("}", ")").replace("’", "'")
    ), values


def _pattern(names: Iterable[str]) -> re.Pattern[str]:
    plain: list[str] = []
    other: list[str] = []
    for name in sorted({name.strip() for name in names}, key=len, reverse=True):
        if not name.isnumeric() and name:
            (plain if name.isalpha() else other).append(re.escape(name))
    known = [rf"(?<!\w)(?:{'|'.join(other)})(?!\w)"] if other else []
    known += (
        [rf"(?<=\bjob )(?:{'|'.join(plain)})(?!\w)|\b(?:{'|'.join(plain)})(?= job\b)"]
        if plain
        else []
    )
    parts = [_PARTS[0], *(("known" + "s" * i, text) for i, text in enumerate(known)), *_PARTS[1:]]
    return re.compile("|".join(f"(?P<{name}>{text})" for name, text in parts), re.IGNORECASE)


def filled(text: str, values: dict[str, str]) -> str:
    """Replace slots by their values. Raises ValueError for a slot without a value."""

    def value(found: re.Match[str]) -> str:
        if found[1] not in values:
            raise ValueError(f"there is no {found[0]} in the request")
        return values[found[1]]

    return _SLOT.sub(value, text)
