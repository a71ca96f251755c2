"""Compose requests with labels, to fill what people did not write about.

    python -m gpudeck.assistant.training.filler COUNT FILE

The phrases of four languages (`phrases`) give a request with slots and its meaning; the slots
become letters, and the meaning a label of `gpudeck.assistant.reader.labels`. A line has the last
request's meaning in words (`before`), as these requests belong to no conversation.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path
from random import Random
from string import ascii_lowercase
from typing import Any, NamedTuple

from gpudeck.assistant.intents.questions import DEVICE_FIELDS, JOB_FIELDS
from gpudeck.assistant.reader.labels import described, head_of, marks_of, spans_of
from gpudeck.assistant.training.composer import Composer, Example
from gpudeck.assistant.training.phrases import LANGUAGES
from gpudeck.assistant.training.symbols import AND, PLAN, parts

Label = dict[str, Any]
_TYPOS = 0.1
_JOBS = (
    "train", "eval", "finetune", "sweep", "bench", "render", "nightly", "oom", "big", "fetch",
    "llama-ft", "run-a", "run-f", "resnet50", "bert_base", "exp12", "compare", "baseline", "sft",
    "prep", "dpo-v2", "vit-large", "ablation3", "kueche_final", "gan", "tokenize", "pretrain",
)  # fmt: skip
_GROUPS = ("sweep", "nightly", "night", "ablation", "batch", "lab", "team-a", "low", "nuit")
_NAMES = ("baseline", "v2", "alice", "important", "paper", "loss", "nan", "CUDA error", "epoch 3")
NAMES = (*_JOBS, *_GROUPS, *_NAMES)
_COMMANDS = (
    "python train.py", "python eval.py --lr 3e-4", "bash run.sh", "python3 main.py --epochs 10",
    "torchrun --nproc_per_node 2 train.py", "./start.sh", "python -m pkg.train cfg.yaml",
)  # fmt: skip
_TIMES = {
    "en": ("yesterday", "last night", "since monday", "the last 2 hours", "today", "this week",
           "in the past 30 minutes", "between 2 and 4 pm", "since 8:00", "an hour ago",
           "around midnight", "over the weekend", "this morning", "at 14:30", "last week"),
    "de": ("gestern", "letzte Nacht", "seit Montag", "in den letzten 2 Stunden", "heute",
           "diese Woche", "seit 8 Uhr", "vor einer Stunde", "am Wochenende", "heute morgen",
           "um 14:30", "gestern Abend", "zwischen 2 und 4 Uhr", "letzte Woche"),
    "fr": ("hier", "cette nuit", "depuis lundi", "ces 2 dernières heures", "aujourd'hui",
           "cette semaine", "depuis 8h", "il y a une heure", "ce week-end", "ce matin",
           "à 14h30", "hier soir", "la semaine dernière", "entre 14h et 16h"),
    "es": ("ayer", "anoche", "desde el lunes", "las últimas 2 horas", "hoy", "esta semana",
           "desde las 8", "hace una hora", "este fin de semana", "esta mañana", "a las 14:30",
           "ayer por la noche", "la semana pasada", "entre las 2 y las 4"),
}  # fmt: skip
_QUANTITIES = {
    "size": ("20 GB", "8GB", "40 gigs", "24 GiB", "16 gb", "500 MB"),
    "temperature": ("80 °C", "75 degrees", "85°C", "70 grad", "60 C"),
    "power": ("300 W", "250 watts", "1 kW", "400W"), "percent": ("90 %", "50%", "80 percent"),
    "time": ("2 hours", "30 min", "10 minutes", "3h", "45 s", "2 days"),
    "energy": ("3 kWh", "500 Wh", "2 MJ"), "clock": ("1500 MHz", "1.4 GHz"), "other": ("5", "10"),
}  # fmt: skip
_AND = {"en": "and", "de": "und", "fr": "et", "es": "y"}
_LOOSE = re.compile(r" ([,;?!](?:\s|$))")
_SLOT = re.compile(r"<(\w)(\d)>(?: \((\w+)\))?")


def _labels_of(fields: dict[str, str]) -> dict[str, str]:
    """Return the first label that is read as each field."""
    return {field: label for label, field in reversed(fields.items())}


_GPUS = _labels_of(DEVICE_FIELDS) | {
    "clock_mem": "clock", "xid": "health", "pcie_rx": "link", "nvlink_rx": "link",
}  # fmt: skip
_OF_JOBS = _labels_of(JOB_FIELDS) | {"gpus": "gpus"}
_STATES = {"running": ["running"], "queued": ["queued"], "failed": ["failed"], "done": ["done"],
           "cancelled": ["cancelled"], "lost": ["lost"], "held": ["held"], "idle": ["idle"],
           "busy": ["busy"]}  # fmt: skip
_VERBS = {"hold": "pause", "pause": "pause", "release": "resume", "resume": "resume",
          "priority": "edit"}  # fmt: skip
_TARGETS = {"job:": "jobs", "dev:": "gpus", "group:": "group", "exc:": "except", "tag:": "tag"}


class Filler(NamedTuple):
    """Hold a composed request with its label."""

    language: str
    before: str
    text: str
    label: list[Label]


class Unlabelled(Exception):
    """A meaning has no label."""


def fillers(seed: int) -> Iterator[Filler]:
    """Yield composed requests without end, in four languages by turns."""
    composers = {language: Composer(seed, languages=(language,)) for language in LANGUAGES}
    for language, composer in cycle(composers.items()):
        if (made := _labelled(composer.example(), language, composer.random)) is not None:
            yield made


def _labelled(made: Example, language: str, random: Random) -> Filler | None:
    """Return a composed request with its label, or None if its meaning has none."""
    try:
        text, letters = _spelt(random, made, language)
        label = [one for side in made.meaning.split(f" {AND} ") for one in _label(side, letters)]
        before = _before(made.before)
    except Unlabelled:
        return None
    text = _punctuated(random, text)
    if random.random() < _TYPOS:
        text = mistyped(random, text)
    spans = [one for field in label for value in field.values()
             for one in (value if isinstance(value, list) else [value])]  # fmt: skip
    lost = any(str(one) not in text for one in spans if str(one) in letters.values())
    return None if lost else Filler(language, before, text, _merged(label))


def mistyped(random: Random, text: str) -> str:
    """Return a request with a typo or two: a letter left out, doubled, swapped or replaced."""
    parts = text.split()
    long = [i for i, word in enumerate(parts) if len(word) > 3 and word.isalpha()]
    for i in random.sample(long, min(len(long), random.choice((1, 1, 2)))):
        word = parts[i]
        at = random.randrange(1, len(word) - 1)
        parts[i] = random.choice((
            word[:at] + word[at + 1 :],
            word[:at] + word[at] + word[at:],
            word[:at] + word[at + 1] + word[at] + word[at + 2 :],
            word[:at] + random.choice(ascii_lowercase) + word[at + 1 :],
        ))  # fmt: skip
    return " ".join(parts)


def _punctuated(random: Random, text: str) -> str:
    """Return a request as people type it: often with a capital, sometimes with an end."""
    text = " ".join(_LOOSE.sub(r"\1", text).split())
    if random.random() < 0.5:
        text = text[0].upper() + text[1:]
    return text + random.choices(("", "?", ".", "!"), (6, 2, 1, 0.3))[0]


def _spelt(random: Random, made: Example, language: str) -> tuple[str, dict[str, str]]:
    """Return the request with letters in its slots, and the letters of each."""
    letters: dict[str, str] = {}

    def slot(found: re.Match[str]) -> str:
        kind, name = found[1], f"{found[1]}{found[2]}"
        if name not in letters:
            letters[name] = _letters(random, kind, found[3] or "", language, f" {name}" in several)
        return letters[name]

    several = " ".join(_several(made.meaning))
    return _SLOT.sub(slot, made.request), letters


def _several(meaning: str) -> list[str]:
    """Return the slots of numbers that may be lists."""
    return [f" {value}" for side in meaning.split(f" {AND} ") for kind, value in parts(side)
            if kind in ("job:", "dev:", "exc:") and " vs" not in meaning]  # fmt: skip


def _letters(random: Random, kind: str, unit: str, language: str, many: bool) -> str:
    if kind == "n":
        number = random.choice((random.randrange(8), random.randrange(40), random.randrange(400)))
        if not many or random.random() < 0.75:
            return str(number)
        more = [str(number + step) for step in sorted(random.sample(range(1, 9), 2))]
        return f"{number}, {more[0]} {_AND[language]} {more[1]}"
    if kind == "q":
        return random.choice(_QUANTITIES.get(unit, _QUANTITIES["other"]))
    if kind == "t":
        return random.choice(_TIMES[language])
    return random.choice({"j": _JOBS, "g": _GROUPS, "s": _NAMES, "c": _COMMANDS}[kind])


def _label(side: str, letters: dict[str, str]) -> list[Label]:
    if side.startswith("no:"):
        kind = {"negated": "no", "unclear": "unclear"}.get(side.removeprefix("no:"))
        if kind is None:
            raise Unlabelled(side)
        return [{"talk": kind}]
    found = parts(side.removeprefix(f"{PLAN} "))
    subject = side.removeprefix(f"{PLAN} ").split()[0]
    label = _order(subject.removeprefix("do:"), found) if subject[:3] == "do:" else _asked(
        subject, found)  # fmt: skip
    for kind, value in found:
        _add(label, kind, value, letters, found)
    return [label | {"what_if": True}] if side.startswith(PLAN) else [label]


def _asked(subject: str, found: list[tuple[str, str]]) -> Label:
    kinds = dict(found)
    measure = kinds.get("m", "")
    if kinds.get("what"):
        return {"manual": ""}
    plain: dict[str, Label] = {
        "manual": {"manual": ""}, "help": {"talk": "abilities"}, "report": {"order": "report"},
        "overview": {"ask": "overview"}, "debris": {"ask": "disk"}, "capacity": {"ask": "capacity"},
        "conversion": {"ask": "conversion"}, "logs": {"ask": "log_search"},
        "queue": {"ask": "queue"}, "settings": {"ask": "settings"},
        "alerts": {"ask": "alerts"} | ({"measure": ["thresholds"]} if measure else {}),
        "models": {"ask": "models"} | ({"measure": [{"served": "served"}.get(measure, "fits")]}
                                       if measure else {}),
        "processes": {"ask": "processes"} | ({"measure": [measure]} if measure else {}),
    }  # fmt: skip
    if subject in plain:
        return plain[subject]
    if subject not in ("devices", "jobs"):
        raise Unlabelled(subject)
    table = _GPUS if subject == "devices" else _OF_JOBS
    label: Label = {"ask": "gpus" if subject == "devices" else "jobs"}
    if measure:
        measure = "failure" if (measure, kinds.get("s")) == ("reason", "failed") else measure
        if measure not in table:
            raise Unlabelled(measure)
        label["measure"] = ["cost" if "cost" in kinds else table[measure]]
    elif subject == "devices" and ("s" in kinds or "dev:" in kinds):
        label["measure"] = ["use"]
    return label


def _order(verb: str, found: list[tuple[str, str]]) -> Label:
    label: Label = {"order": _VERBS.get(verb, verb)}
    targets = {kind for kind, _ in found} & {"job:", "group:", "s"}
    if verb in ("pause", "resume") and not targets:
        label["queue"] = True
    if verb == "set" and dict(found).get("value") in ("on", "off"):
        label["change"] = dict(found)["value"]
    return label


def _add(
    label: Label, kind: str, value: str, letters: dict[str, str], found: list[tuple[str, str]]
) -> None:
    """Add one part of a meaning to a label."""
    if kind in _TARGETS:
        _add_target(label, _TARGETS[kind], value, letters, found)
    elif kind == "s":
        if value == "active":
            label["jobs"] = ["@all"]
        elif value in _STATES:
            label["states"] = _STATES[value]
    elif kind == "a":
        label |= _aggregate(value, dict(found))
    elif kind == "vs":
        two = sum(name in ("job:", "dev:") for name, _ in found) > 1
        label["compare"] = "each" if two else "others" if label.get("ask") == "gpus" else "before"
    elif kind in _WHOLE:
        label[_WHOLE[kind]] = _VALUES.get(kind, value)
    elif kind in _LACKING:
        raise Unlabelled(kind)
    elif value in letters and (field := _field_of(kind, label)):
        label[field] = letters[value]


def _add_target(
    label: Label, field: str, value: str, letters: dict[str, str], found: list[tuple[str, str]]
) -> None:
    span = letters.get(value, "")
    if value == "prev":
        ordinal = next((name for name, _ in found if name in _ORDINALS), "")
        span = _ORDINALS.get(ordinal, "@it") if field == "jobs" else "@it"
    if field in ("jobs", "gpus", "except"):
        label.setdefault(field, []).extend(re.findall(r"\d+", span) if "," in span else [span])
    else:
        label[field] = span


def _field_of(kind: str, label: Label) -> str:
    """Return the field of the letters of a part."""
    if kind == "amount:":
        return {"capacity": "memory", "conversion": "amount"}.get(label.get("ask", ""), "ahead")
    if (kind, label.get("order")) == ("number:", "edit"):
        return "priority"
    return _SPANS.get(kind, "")


_LACKING = frozenset({"step", "first:", "last:", "notfirst:", "notlast:", "sort", "workload"})
"""Parts that no label has."""
_ORDINALS = {"o1": "@first", "o2": "@second", "o3": "@third", "o-1": "@last"}
_WHOLE = {"when": "when", "by": "by", "place": "place", "pdf": "format"}
_VALUES: dict[str, Any] = {"when": True, "pdf": "pdf"}
_SPANS = {"above:": "above", "below:": "below", "limit:": "limit", "number:": "number",
          "gpus:": "count", "mem:": "memory", "name:": "name", "time:": "time", "text:": "words",
          "value:": "value", "command:": "command", "beside:": "beside"}  # fmt: skip


def _aggregate(value: str, kinds: dict[str, str]) -> Label:
    if value in ("first", "last"):
        return {"which": "newest" if value == "last" else "oldest"}
    if "who" in kinds:
        return {"which": "highest" if value == "max" else "lowest"}
    return {"combine": value}


def _merged(label: list[Label]) -> list[Label]:
    """Return two measures of the same thing as one meaning."""
    if len(label) == 2 and all("measure" in one for one in label):
        first, second = ({k: v for k, v in one.items() if k != "measure"} for one in label)
        if first == second:
            return [first | {"measure": label[0]["measure"] + label[1]["measure"]}]
    return label


def _before(said: str) -> str:
    """Return what came before in the words of the reader."""
    meaning, _, answer = said.partition(" ; ")
    if not meaning:
        return ""
    try:
        label = _label(meaning.replace("prev", ""), {})[0]
    except Unlabelled:
        return ""
    label |= {"jobs": ["1"]} if "job" in answer else {}
    label |= {"gpus": ["1"]} if "gpu" in answer else {}
    label = {name: value for name, value in label.items() if value not in ([""], [])}
    return described(head_of(label), marks_of(label), (field for field, _ in spans_of(label)))


def main() -> None:
    """Write so many composed requests to a file, in four languages by turns."""
    count, file = int(sys.argv[1]), Path(sys.argv[2])
    lines = [
        json.dumps({"id": f"filler-{i}", "profile": 1000, "scene": f"filler-{i}", "turn": 1}
                   | made._asdict(), ensure_ascii=False)
        for i, made in enumerate(islice(fillers(1), count))
    ]  # fmt: skip
    file.write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()
