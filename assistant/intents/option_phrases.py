"""Find what a request says about a new job: the options of `scheduler.protocol.job_options`.

A phrase in any of the four languages gives one option its value, as the command line takes it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from typing import NamedTuple

from gpudeck.assistant.intents.moments import (
    DATE,
    LENGTH,
    MOMENT,
    NUMBER,
    length_of,
    moment_of,
    number_of,
)
from gpudeck.assistant.intents.priorities import priority_of

_NAME = r"(?P<name>\"[^\"]+\"|'[^']+'|`[^`]+`|“[^”]+”|[\w][\w.-]*)"
_SIZE = r"(?P<size>\d+(?:[.,]\d+)?\s?(?:[kmgt]i?b|[kmgt]i?o|gigs?|gigas?|g))\b"
_MEMORY = (
    r"(?:(?: of| an| de| von| d[e'])? ?(?:gpu[- ])?(?:v?ram|memory|(?:gpu-?)?speicher|m[eé]moire"
    r"|memoria)(?: gpu)?)?"
)
_N = rf"(?P<n>{NUMBER})"
_CARDS = r"(?:gpus?|cards?|karten?|grafikkarten?|cartes?|tarjetas?|gr[aá]ficas?)\b"
_OR_NOT = (
    r"(?:,? (?:whatever happens|no matter (?:what|how)|regardless|whether or not it succeeds"
    r"|egal wie|auch wenn (?:er|es|sie) fehlschl[aä]gt|quoi qu'il arrive|m[eê]me s'il [eé]choue"
    r"|pase lo que pase|aunque falle))"
)
_AFTER = (
    r"(?:(?:only |right |erst |sobald |wenn |nachdem )?"
    r"(?:after|once|when|as soon as|following|nach|sobald|wenn|nachdem|falls|if"
    r"|apr[eè]s|d[eè]s|quand|lorsque|une fois|despu[eé]s|cuando|en cuanto|una vez|tras)"
    r"(?: (?:se )?(?:termine|termina|acabe|acaba|finalice|haya terminado))?)"
)
_JOB_WORDS = (
    r"(?:(?: the| that| dem| den| der| le| la| les| que| qu'| de| del| el| los| las|,)*"
    r"(?: ?(?:jobs?|task|auftr[aä]ge?n?|auftrag|t[aâ]ches?|trabajos?|tareas?)"
    r"(?: number| no\.?| nummer| nr\.?| num[eé]ro| n[uú]mero)?)?)"
)
_DONE = (
    r"(?: (?:is|are|has|have|was|were|been|'s|ist|sind|hat|haben|wurde|wird|est|sont|soit|a|aura"
    r"|ont|sera|haya|hayan|ha|han|est[eé]n?|se|all|both|beide|tous|both|it|er|il)"
    r"| (?:done|finished|finishes|finish|ended|ends?|completes?|completed|succeeds?|succeeded"
    r"|over|ready|through|successful(?:ly)?|fertig|durch|beendet|endet|erfolgreich|zu ende"
    r"|abgeschlossen|geschafft|l[aä]uft durch|termin[eé]e?s?|termine|terminent|fini[es]*|finit"
    r"|finissent|r[eé]ussie?s?|r[eé]ussit|achev[eé]e?s?|termine|terminen|termina|terminan"
    r"|terminado|acabe|acaben|acaba|acaban|acabado|listos?|[eé]xito))*"
)
_TIMES = r"(?:times|x|mal|fois|veces)"
_FAILS = (
    r"(?: ?(?:if it fails|on failure|in case of failure|bei fehlern?|wenn (?:er|es) fehlschl[aä]gt"
    r"|falls (?:er|es) fehlschl[aä]gt|s'il [eé]choue|en cas d'[eé]chec|si falla))?"
)


def _size(found: re.Match[str]) -> str:
    number, unit = re.match(r"([\d.,]+)\s?(\w+)", found["size"]).groups()  # type: ignore[union-attr]
    unit = unit.casefold()
    unit = "gb" if unit == "g" or (unit.startswith("gig") and unit != "gib") else unit
    unit = f"{unit[:-1]}b" if unit.endswith("o") else unit
    return f"{number.replace(',', '.')}{unit}"


def _jobs(found: re.Match[str]) -> str:
    parts = re.split(r",| and | und | et | y ", found["jobs"])
    return ",".join(re.sub(r"^(?:job )?#?", "", part.strip()) for part in parts if part.strip())


_READ: dict[str, Callable[[re.Match[str], float], str]] = {
    "number": lambda found, now: number_of(found["n"]),
    "length": lambda found, now: length_of(found["length"]),
    "delay": lambda found, now: f"+{length_of(found['length'])}",
    "moment": lambda found, now: moment_of(found["moment"], now),
    "jobs": lambda found, now: _jobs(found),
    "size": lambda found, now: _size(found),
    "name": lambda found, now: found["name"].strip("\"'`“”"),
    "text": lambda found, now: found["text"],
    "yes": lambda found, now: "yes",
    "level": lambda found, now: str(priority_of(found["text"])),
    "none": lambda found, now: "0",
}


class Rule(NamedTuple):
    """Hold a phrase of an option, and how its value is read."""

    option: str
    kind: str
    """A key of _READ."""
    pattern: re.Pattern[str]


def _rule(option: str, kind: str, *patterns: str) -> Iterator[Rule]:
    for pattern in patterns:
        yield Rule(option, kind, re.compile(rf"(?<![\w-])(?:{pattern})(?![\w-])", re.IGNORECASE))


_WITH = r"(?:(?:and |und |et |y )?(?:with|using|mit|avec|con)(?: an?| einer?m?| une?| una?)? )?"
_MOST = (
    r"(?:(?:for )?at most|cap(?:ped)?(?: it)?(?: at)?"
    r"|max(?:imum|imal|\.)?|no (?:more|longer) than|up to|h[oö]chstens"
    r"|nicht l[aä]nger als|pas plus de|au plus|au maximum|no m[aá]s de|como (?:mucho|m[aá]ximo)"
    r"|m[aá]ximo)"
)
_LIMIT = (
    r"(?:(?:the )?time[- ]?limit|time ?out|limit|zeitlimit|zeitgrenze|limite(?: de temps)?"
    r"|l[ií]mite(?: de tiempo)?)"
)
_LEVELS = (
    r"(?:high(?:est)?|urgent|low(?:est)?|normal|hoh[er]+|hoch|niedrig(?:er|e|ste)?|normaler?|haute"
    r"|basse|normale|alta|baja)"
)
_MAY_BE = (
    r"(?:(?:(?:it|this|the job|that) )?(?:may|can|could) be "
    r"|(?:(?:er|es|sie|der job|der auftrag) )?"
    r"(?:darf|kann|darfst du|kannst du) (?:(?:er|es|sie|ihn) )?"
    r"|(?:(?:il|elle|[cç]a|on) )?(?:peut|peux)(?: l')?(?: [eê]tre)? |(?:qui peut [eê]tre )"
    r"|(?:(?:se |lo )?pueden? |puede(?:s)? (?:ser )?))"
)
_TAKEN_OFF = (
    r"interrupted|suspended|evicted|pre-?empted|paused|unterbrochen|ausgelagert|verdr[aä]ngt"
    r"|pausiert|suspendiert|unterbrechen|interrompue?|suspendue?|pr[eé]empt[eé]e?|[eé]vinc[eé]e?"
    r"|mise? en pause|interrumpid[oa]|suspendid[oa]|desalojad[oa]|pausad[oa]|interrumpir(?:se|lo)?"
    r"|suspender(?:se|lo)?|desalojar(?:se|lo)?|pausar(?:se|lo)?"
)
"""What may happen to a job that is preemptible."""
_FIXED = (
    *_rule("after_any", "jobs", rf"{_AFTER}{_JOB_WORDS} (?P<jobs>@JOBS){_DONE}{_OR_NOT}"),
    *_rule("after", "jobs", rf"{_AFTER}{_JOB_WORDS} ?(?P<jobs>@JOBS){_DONE}"),
    *_rule(
        "retries", "number",
        rf"{_WITH}{_N} (?:retries|reintentos|relances|wiederholungen){_FAILS}",
        rf"(?:and |und |et |y )?(?:retry|retries|repeat|wiederhole?n?|relance[rz]?|r[eé]essaye[rz]?"
        rf"|reintenta(?:r|lo)?)(?: it| ihn| es| le)?(?: up to| bis zu| jusqu'[aà]| hasta)?:?"
        rf" {_N} ?{_TIMES}{_FAILS}",
        rf"(?:bei fehlern?|bei fehlschlag) {_N} ?{_TIMES} (?:wiederholen|neu starten)",
    ),
    *_rule(
        "timeout", "length",
        rf"{_WITH}{_LIMIT}(?: (?:of|von|de|to|auf|is))?:? {LENGTH}",
        rf"{_WITH}(?:an? )?{LENGTH}[- ]{_LIMIT}",
        rf"{_MOST} {LENGTH}(?: (?:long|lang|laufen))?",
        rf"{LENGTH} (?:max(?:imum|imal|\.)?|at most|h[oö]chstens|tops|au (?:plus|max(?:imum)?)"
        r"|como (?:mucho|m[aá]ximo)|m[aá]ximo)",
        rf"(?:and )?(?:stop|kill|end|abort) it after {LENGTH}",
    ),
    *_rule(
        "begin", "delay",
        rf"(?:(?:start|begin)(?:ing)? )?(?:in|dans|en|dentro de) {LENGTH}",
    ),
    *_rule(
        "begin", "moment",
        r"(?:but |aber |mais |pero )?(?:(?:do )?not(?: start(?:ing)?)? before|no earlier than"
        r"|(?:to )?start(?:ing)?(?: at| from)?|begin(?:ning)?(?: at)?|from|nicht vor|ab"
        r"|fr[uü]hestens(?: um)?|pas avant|[aà] partir de|d[eè]s|no antes de|a partir de|desde)"
        rf" {MOMENT}",
        r"(?=tomorrow|tonight|today|morgen|heute|demain|ce soir|cette nuit|aujourd|ma[nñ]ana"
        rf"|esta noche|hoy){MOMENT}",
        rf"(?:(?:on|am|le|el) (?:the )?)?(?={DATE}){MOMENT}",
        rf"(?:at|um|gegen|[aà]|vers|a las?) {MOMENT}",
    ),
    *_rule(
        "priority", "text",
        r"(?:(?:with|at|mit|avec|con) )?(?:an? |der |la )?(?:priority|prio|priorit[aä]t|priorit[eé]"
        r"|prioridad)(?: of| von| de)?:? (?P<text>[+-]?\d+)",
    ),
    *_rule(
        "priority", "level",
        rf"{_WITH}(?P<text>{_LEVELS}) (?:priority|prio|priorit[aä]t|priorit[eé]|prioridad)",
        rf"{_WITH}(?:priority|prio|priorit[aä]t|priorit[eé]|prioridad) (?P<text>{_LEVELS})",
    ),
    *_rule(
        "gpus", "none",
        rf"(?:without|no|ohne|sans|sin)(?: an?| eine)? {_CARDS}",
    ),
    *_rule(
        "group", "name",
        rf"(?:(?:in|into|to|in der|dans|en)(?: the| le| el)? )?(?:group|gruppe|groupe|grupo)"
        rf"(?: called| named| namens| nomm[eé]| llamado)? {_NAME}",
        rf"(?:in|into) the {_NAME} group",
    ),
    *_rule(
        "name", "name",
        rf"(?:and |with )?(?:the |a |der |le |el )?(?:job )?(?:name|nom|nombre):? {_NAME}",
        rf"(?:and )?(?:named|called|name it|call it|with the name|unter dem namen|mit dem namen"
        rf"|namens|nenn(?:e)? (?:ihn|es)|nomm[eé]e?|appel[eé]e?|appelle[- ]le|sous le nom(?: de)?"
        rf"|avec le nom|llamad[oa]|ll[aá]mal[oa]|con el nombre(?: de)?) {_NAME}",
    ),
    *_rule(
        "tags", "name",
        rf"(?:tagged|with the tag|mit dem tag|avec le tag|con la etiqueta) {_NAME}",
    ),
    *_rule(
        "gpus", "number",
        rf"(?:(?:on|with|using|auf|mit|sur|avec|en|con) )?{_N} {_CARDS}",
        rf"{_N} {_CARDS}",
    ),
    *_rule(
        "gpu_type", "text",
        r"(?:on|auf|sur|en) (?:an?|the|einer?|der|une?|la|le|una) "
        r"(?P<text>(?:(?:nvidia|geforce|tesla|quadro|rtx|gtx) )*"
        r"(?:[a-z]{0,3}\d{3,4}|[a-z]{1,3}\d{2,4})(?: ?(?:ti|super))?)",
    ),
    *_rule(
        "host_memory", "size",
        rf"{_WITH}{_SIZE}(?: of| an| de)? (?:(?:host|system|main|cpu)[- ]memory|ram|arbeitsspeicher"
        r"|hauptspeicher|m[eé]moire vive|memoria ram)",
    ),
    *_rule(
        "memory", "size",
        rf"(?:(?:and|und|et|y) )?(?:with|reserving|reserve|mit|avec|con|needs|needing|braucht) "
        rf"{_SIZE}{_MEMORY}",
        rf"{_SIZE}{_MEMORY} (?:each|(?:per|pro|par|por) (?:gpu|card|karte)|je|chacune?|cada una)",
        rf"{_SIZE}(?: of| an| de)? ?(?:gpu[- ])?(?:v?ram|memory|speicher|m[eé]moire|memoria)",
        rf"(?:(?:and|und|et|y|with|mit|avec|con) )?{_SIZE}",
    ),
    *_rule(
        "preemptible", "yes",
        rf"(?:and |und |et |y |,)?{_MAY_BE}(?:{_TAKEN_OFF})(?: werden)?",
        r"(?:and |und |et |y )?(?:(?:make (?:it|this) |(?:it|this) (?:is|should be) |es ist "
        r"|il est |elle est |es |en mode |in |mark(?:ed)? )?(?:as |als |comme |como )?)"
        r"(?:(?:pre-?empt[ai]ble|interruptible|interruptable|evictable|suspend[ai]ble|unterbrechbar"
        r"|verdr[aä]ngbar|pausierbar|pr[eé]emptible|interruptible|interrompible|suspendable"
        r"|interrumpible|desalojable|suspendible|expulsable)(?: job| mode| modus)?)",
    ),
)  # fmt: skip


@cache
def _rules(names: tuple[str, ...]) -> tuple[Rule, ...]:
    """Return the rules for a machine whose jobs have these names."""
    job = "|".join([r"#?\d+", *(re.escape(name) for name in sorted(names, key=len, reverse=True))])
    listed = rf"(?:{job})(?:(?:,| and| und| et| y|, and) (?:job )?(?:{job}))*"
    return tuple(
        rule._replace(
            pattern=re.compile(rule.pattern.pattern.replace("@JOBS", listed), re.IGNORECASE)
        )
        for rule in _FIXED
    )


class Found(NamedTuple):
    """Hold the options that a text gives, and the text without them."""

    options: Mapping[str, str]
    rest: str


def find_options(text: str, jobs: tuple[str, ...], now: float) -> Found:
    """Return the options that a text gives, each once, and the text without their phrases.

    A second value of an option stays in the text, so that it is not understood.
    """
    options: dict[str, str] = {}
    for rule in _rules(tuple(dict.fromkeys(jobs))):
        found = rule.pattern.search(text)
        if found is None or rule.option in options:
            continue
        with suppress(ValueError):
            options[rule.option] = _READ[rule.kind](found, now)
            text = f"{text[: found.start()]} , {text[found.end() :]}"
    return Found(options, text)


def begins_option(text: str, jobs: tuple[str, ...]) -> bool:
    """Return whether a text begins with the phrase of an option."""
    return any(rule.pattern.match(text) for rule in _rules(tuple(dict.fromkeys(jobs))))
