"""The words that a checked text may use, and what each of them means.

A word that is in none of these tables, nor in a fact that the sentence quotes, cannot be checked,
so its sentence is refused. There are no words for trends, because no fact is about one.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Stat = Literal["now", "mean", "max", "min"]


def words(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


def _table(rows: dict[str, str]) -> dict[str, frozenset[str]]:
    """Return for each word the keys of the rows that it stands in."""
    found: dict[str, set[str]] = {}
    for key, words in rows.items():
        for word in words.split():
            found.setdefault(word, set()).update(key.split())
    return {word: frozenset(keys) for word, keys in found.items()}


FAMILIES: tuple[frozenset[str], ...] = (
    words("temp"),
    words("power power_limit"),
    words("util progress used.util used.share use mem_share free_share power_share left_share"),
    words("mem_used mem_free mem_total used.memory process"),
    words("tflops sustained"),
    words("median p95 p99"),
    words("duration running waiting waited left use length used.seconds ago active lasted whole"),
    words("energy used.energy"),
    words(
        "ended submitted started raised cleared covered when idle_since began queued_at expected"
    ),
    words("clock_sm"),
    words("fan"),
    words("bandwidth"),
    words("code"),
)
"""Fields that are measured in the same unit, of which a metric word picks one."""

FIELD_WORDS = _table(
    {
        "temp": "temperature temperatures hot warm cool hotter warmer cooler colder hottest warmest"
        " coolest coldest",
        "power": "power draws draw drew drawing consumes consuming",
        "power_limit": "limit allowed limits",
        "util used.util use": "utilisation utilised utilization utilized busy busier busiest load",
        "progress": "progress through finished% done% complete% completed%",
        "used.share": "share",
        "mem_share": "full%",
        "free_share": "free available remaining%",
        "power_share": "limit power",
        "left_share": "left% remaining%",
        "code": "status statuses",
        "mem_used used.memory process": "used use uses using usage occupies occupied allocated"
        " holds hold held took take takes needs needed",
        "mem_free": "free available left remaining",
        "mem_total power_limit": "total of%",
        "tflops": "tflop/s rate speed throughput achieved achieves computes compute deliver"
        " delivers delivered reach reached reaches",
        "sustained": "sustained sustains sustain",
        "median": "median latency call",
        "p95": "p95",
        "p99": "p99",
        "duration": "took taken take takes ran runtime duration needed lasted after within"
        " longest shortest in%",
        "running": "running-for running run runs after since% held",
        "running duration": "running run",
        "waiting waited": "waiting waited waits wait queued after longest",
        "left": "left remaining remain remains more% should need needs in%",
        "use": "idle unused",
        "ago": "ago",
        "whole duration waited": "later",
        "active": "active ongoing open lasting",
        "lasted": "lasted lasting later",
        "idle_since": "idle since%",
        "began": "since% started began from% running",
        "queued_at": "since% waiting queued",
        "expected": "finish finished done end ends until by% expected complete",
        "length": "over period during within last covers in% length span the% of%",
        "used.seconds": "watched",
        "energy used.energy": "energy used use uses consumed needed",
        "ended": "to% until% ended ends end finished failed lost cancelled canceled done",
        "submitted": "submitted",
        "started": "started began start from%",
        "raised": "raised from%",
        "cleared": "cleared to% until",
        "covered": "readings history from",
        "when covered": "to%",
        "when": "from over during between happened covers",
        "clock_sm": "clock clocks frequency",
        "fan": "fan fans",
        "bandwidth": "bandwidth",
    }
)
"""The fields that a word names. A word with % counts only right beside the value."""

STRICT = words(
    "left free limit progress through sustained median p95 p99 submitted energy temperature power "
    "utilisation rate later ago"
)
"""Words that name one field so clearly that the sentence must have a value or reason for it."""

STAT_WORDS: dict[str, Stat] = {
    **dict.fromkeys(("mean", "means", "average", "averaged"), "mean"),
    **dict.fromkeys(
        (
            "highest", "peak", "peaked", "maximum", "at most", "reached", "reaching",
            "never above", "never exceeded", "most", "hit",
        ),
        "max",
    ),
    **dict.fromkeys(("lowest", "minimum", "at least", "fell to", "never below"), "min"),
    **dict.fromkeys(("now", "currently", "current", "at the moment", "right now"), "now"),
}  # fmt: skip
PRESENT = words(
    "is are has have draws uses delivers computes holds stands runs sits reaches sustains takes"
)
"""Verbs after which a value is one of now, unless a word selects another."""
PAST = words("was were had drew used delivered computed ran stayed")
LASTING = words("never stayed stays remained remains throughout always kept")
"""Words after which `below V` is about the highest value of a time, and `above V` the lowest."""
FUTURE = words("will should would going expected")

STATES = {
    **dict.fromkeys(("done", "finished", "finish", "finishes", "completed", "complete"), "done"),
    **dict.fromkeys(("succeeded", "succeed", "successfully"), "succeeded"),
    **dict.fromkeys(("passed", "pass", "passes"), "passed"),
    **dict.fromkeys(("failed", "fail", "fails"), "failed"),
    **dict.fromkeys(("running", "runs", "run"), "running"),
    **dict.fromkeys(("queued", "waiting", "waits", "wait", "pending"), "queued"),
    **dict.fromkeys(("ended", "end", "ends", "exited"), "ended"),
    **dict.fromkeys(("idle", "unused", "free"), "idle"),
    **dict.fromkeys(("over", "cleared", "resolved"), "cleared"),
    **dict.fromkeys(("lasts", "active", "lasting", "unresolved", "open"), "lasts"),
    **dict.fromkeys(("cancelled", "stopped", "canceled", "aborted"), "cancelled"),
    **dict.fromkeys(("lost", "died"), "lost"),
    **dict.fromkeys(("ran",), "ran"),
    **{
        word: word
        for word in ("starting", "stopping", "started", "busy", "held", "paused",
                     "empty", "raised")
    },
}  # fmt: skip
"""The state or event that a word claims of a job, a device, an alert or the queue."""

NEGATIONS = words("not never n't cannot hardly without neither nor") | {"no longer", "yet to"}
CAUSES = words("because since as due")
TOTAL = words("majority all every each both neither no none nothing only")
NOUNS = {
    "job": "job", "jobs": "job", "gpu": "device", "gpus": "device", "device": "device",
    "devices": "device", "card": "device", "cards": "device", "alert": "alert", "alerts": "alert",
}  # fmt: skip
NUMERALS = {
    word: number
    for number, word in enumerate(
        (
            "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
            "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen",
            "eighteen", "nineteen", "twenty",
        )
    )
} | {
    "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90,
}  # fmt: skip
UNIT_WORDS = {
    "second": "s", "seconds": "s", "minute": "min", "minutes": "min", "hour": "h", "hours": "h",
    "day": "d", "days": "d", "percent": "%", "watts": "W", "degrees": "°C",
}  # fmt: skip


class Comparative(NamedTuple):
    """Describe a comparing word: its direction, and the fields that it names, if any."""

    sign: int
    """1 if the first operand must be larger, -1 if smaller, 0 if both must be nearly the same."""
    fields: frozenset[str] = frozenset()


_LASTING = words("duration running waiting waited use")
COMPARATIVES = {
    "close": Comparative(0),
    "twice": Comparative(0),
    "double": Comparative(0),
    **{word: Comparative(1) for word in words("above more higher greater larger exceeds")},
    **{word: Comparative(-1) for word in words("below under less lower fewer smaller")},
    **{word: Comparative(1, words("temp")) for word in words("hotter warmer")},
    **{word: Comparative(-1, words("temp")) for word in words("cooler colder")},
    "busier": Comparative(1, words("util")),
    "longer": Comparative(1, _LASTING),
    "shorter": Comparative(-1, _LASTING),
    "quicker": Comparative(-1, words("duration")),
    "faster": Comparative(-1, words("median")),
    "slower": Comparative(1, words("median")),
}
SUPERLATIVES = {
    **{word: Comparative(1, words("temp")) for word in words("hottest warmest")},
    **{word: Comparative(-1, words("temp")) for word in words("coolest coldest")},
    "busiest": Comparative(1, words("util")),
    "least-busy": Comparative(-1, words("util")),
    "fastest": Comparative(-1, words("median")),
    "slowest": Comparative(1, words("median")),
    "longest": Comparative(1, _LASTING),
    "shortest": Comparative(-1, _LASTING),
}

GLUE = words(
    "a ahead about memory ram vram according again against almost already also although "
    "altogether an and another any "
    "anything approximately around at away backend be been before being beside but by called "
    "calls card cards check checks chosen come comes compared comparison computer cover covered "
    "cpu data did different disagree do does doing down driver either else error ever exactly "
    "executed executes exist exit far few figure figures first following for fully further get "
    "give given gives got hand having heads hence here high hosts how however if in inputs into "
    "it its itself just kept kind known later least let like listed little logged look low "
    "machine made managed match may meanwhile measured measurement merely minute minutes moment "
    "much name named near nearly next note notice number of off on once or other others our out "
    "overall own part per percent pid place point precisely present process processor properly "
    "queue quite ranged rather read reading really reason recorded registered report reported "
    "reports result results right roughly said sat says second section seen sequence server set "
    "shared show shown shows slightly so some something source sources state still stood such "
    "system taken than that the their them then there therefore these they thing things this "
    "those though throughout thus time times to today together too type until up value values "
    "varied verdict versions we well what when where which while who whose will window with work "
    "working workload would yet you your ca wo "
    "after comes even everything finds found goes go gone itself lets let sensor someone such "
    "turn unknown usable whole yes there here more point warm further"
)
"""Words that claim nothing by themselves."""
