"""Read a question as a Query: every word of it is a slot of the query, or stays unread."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from assistant.intents.lexicon import phrases
from assistant.intents.setting_words import setting_phrases
from assistant.intents.spots import Spots
from assistant.intents.state import State
from assistant.intents.tokens import Token, unit_of
from assistant.query.conversion import kind_of
from assistant.query.request import NEWEST, PREVIOUS, Query, Span, Target, Where
from assistant.query.table import SUBJECTS

_JOB_MEASURES = {"mem_used": "memory", "energy": "energy", "util": "util", "tflops": "tflops"}
_OF_JOBS = frozenset({"progress", "priority", "command", "waited", "duration"})
_JOB_STATES = {
    "running": ("running", "starting"),
    "queued": ("queued",),
    "failed": ("failed", "lost", "rejected"),
    "done": ("done", "rejected"),
    "cancelled": ("cancelled",),
    "lost": ("lost",),
    "ended": ("done", "rejected", "failed", "cancelled", "lost"),
    "held": ("queued",),
}
ACTIVE = ("queued", "starting", "running")


class QueryReader:
    """Read one question."""

    def __init__(self, spots: Spots, state: State) -> None:
        self.s, self.state = spots, state
        self.resolved: list[str] = []

    def read(self) -> Query | None:
        """Return the query that the words name, or None."""
        for reader in _READERS:
            kept = set(self.s.used)
            found = reader(self)
            if found is not None:
                return found
            self.s.used = kept
        return None

    # ---- targets

    def jobs(self) -> tuple[Target, ...]:
        """Return the jobs that are named, or that a pronoun stands for."""
        s = self.s
        if s.targets["job"]:
            return tuple(dict.fromkeys(s.targets["job"]))
        ordinal = s.find("ordinal")
        noun = s.find("noun", "job")
        if ordinal is not None and (noun is None or noun.first - ordinal.last in (1, 2, 3)):
            number = int(ordinal.value("ordinal"))
            near_states = any(spot.means("state") for spot in s.spots)
            if "job" in s.counts:
                return ()
            if number == -1 and not self.state.jobs and not near_states:
                s.use(ordinal)
                return (NEWEST,)
            if self.state.jobs and abs(number) <= len(self.state.jobs) and noun is None:
                s.use(ordinal)
                job = self.state.jobs[number - 1 if number > 0 else number]
                self._resolve(job)
                return (job,)
            if number == -1 and not near_states and "job" not in s.counts:
                s.use(ordinal)
                return (NEWEST,)
        return self._pronoun_jobs()

    def _pronoun_jobs(self) -> tuple[Target, ...]:
        pron = self.s.find("pron", "them") or self.s.find("pron", "it")
        if pron is None or self.state.about != "job" or not self.state.jobs:
            return ()
        self.s.use(pron)
        many = pron.means("pron", "them") and not pron.means("pron", "it")
        found = self.state.jobs if many else self.state.jobs[:1]
        for job in found:
            self._resolve(job)
        return found

    def _resolve(self, job: int) -> None:
        self.resolved.append(f"job {job}")

    def devices(self) -> tuple[int, ...]:
        """Return the GPUs that are named, or that a pronoun stands for."""
        named = [target for target in self.s.targets["device"] if isinstance(target, int)]
        if named:
            return tuple(dict.fromkeys(named))
        pron = self.s.find("pron", "it") or self.s.find("pron", "them")
        if pron is not None and self.state.about == "device" and self.state.devices:
            self.s.use(pron)
            self.resolved += [f"GPU {index}" for index in self.state.devices]
            return self.state.devices
        if pron is not None and self.s.find("pron", "same") is None:
            self.s.use(pron)  # "how hot is it": the machine
        return ()

    def time(self) -> Span | None:
        """Return the time that is named."""
        found = self.s.use_time()
        return found.span if found is not None else None

    def aggregate(self) -> tuple[str, str, bool]:
        """Return the aggregate, the measure of a superlative, and whether a winner is asked for."""
        s = self.s
        spot = next((x for x in s.spots if x.means("super")), None)
        if spot is not None:
            measure, _, extreme = spot.value("super").rpartition(" ")
            for other in s.spots:
                if other.means("super"):
                    s.use(other)
            measure = measure.strip("-")
            asked = any(t.norm in _WHICH for t in s.tokens[: spot.first]) and s.find("noun")
            winner = bool(asked) or bool(measure) or s.find("ask", "who") is not None
            return extreme, measure, winner and not s.targets["job"]
        found = s.find("agg")
        if found is None:
            return "", "", False
        value = found.value("agg")
        s.has("agg", value)
        return value, "", False

    def limit(self) -> int:
        """Return the N of `top 3` or `last 5 jobs`."""
        for noun in ("job", "device"):
            if noun in self.s.counts and (self.s.find("super") or self.s.find("ordinal")):
                self.s.use_count(noun)
                return self.s.counts[noun]
        loose = self.s.loose(("number",))
        spot = self.s.find("super")
        if spot is not None and loose and loose[0] in (spot.first - 1, spot.last + 1):
            self.s.used.add(loose[0])
            return int(self.s.tokens[loose[0]].value)
        return 0

    def bounds(self, measure: str) -> tuple[Where, ...]:
        """Return the bound of `above 80 °C`."""
        spot = self.s.find("bound")
        loose = [i for i in self.s.loose(("number", "quantity")) if spot and i > spot.last]
        if spot is None or not loose or loose[0] - spot.last > 2:
            return ()
        token = self.s.tokens[loose[0]]
        self.s.use(spot)
        self.s.used.add(loose[0])
        value = _in_unit(token, SUBJECTS["devices"].measures[measure].unit)
        above = spot.means("bound", "above")
        return (Where(measure, value if above else None, None if above else value),)


_WHICH = frozenset({"which", "what", "welche", "welcher", "welches", "welchen", "quel", "quelle",
                    "quels", "quelles", "que", "cual", "cuales"})  # fmt: skip
_BOUND_UNITS = {"°C": "temp", "W": "power", "kW": "power", "GB": "mem_used", "GiB": "mem_used",
                "%": "util"}  # fmt: skip


def _in_unit(token: Token, unit: str) -> float:
    if unit == "B" and token.unit:
        return token.value * {"GB": 1e9, "MB": 1e6, "GiB": 2**30, "MiB": 2**20, "TB": 1e12}.get(
            token.unit, 1.0
        )
    if unit == "W" and token.unit == "kW":
        return 1000 * token.value
    return token.value


def _help(r: QueryReader) -> Query | None:
    spot = r.s.find("topic", "help")
    if spot is None or r.s.targets["job"] or r.s.targets["device"]:
        return None
    if spot.first == spot.last and spot.first > 0 and len(r.s.tokens) > 3:
        return None
    r.s.use(spot)
    return Query("help")


def _conversion(r: QueryReader) -> Query | None:
    s = r.s
    quantities = [i for i, t in enumerate(s.tokens) if t.kind == "quantity" and i not in s.used]
    if not quantities or s.find("noun", "job") or s.find("topic", "capacity"):
        return None
    first = s.tokens[quantities[0]]
    amount, unit = first.value, first.unit
    used = [quantities[0]]
    if len(quantities) > 1:
        second = s.tokens[quantities[1]]
        if {kind_of(unit), kind_of(second.unit)} != {"power", "time"}:
            return None
        watts, span = (first, second) if kind_of(unit) == "power" else (second, first)
        amount = watts.value * (1000 if watts.unit == "kW" else 1)
        amount *= span.value * {"s": 1, "min": 60, "h": 3600, "d": 86400}.get(span.unit, 0)
        unit = "J"
        used.append(quantities[1])
    for i, token in enumerate(s.tokens):
        to = unit_of(token.norm)
        if i not in used and token.kind == "word" and to and kind_of(to) == kind_of(unit):
            s.used.update([*used, i])
            if len(used) > 1:
                s.use_time()
            s.has("topic", "convert")
            s.has("ask", "how much")
            s.has("agg", "count")
            s.has("measure", "energy")
            s.has("measure", "power")
            s.has("measure", "temp")
            return Query("conversion", amount=amount, unit=unit, to=to)
    return None


def _how_to(r: QueryReader) -> Query | None:
    s = r.s
    asked = s.find("ask", "how to")
    xid = any(
        token.norm in ("xid", "explain", "erklare", "explique", "explica") for token in s.tokens
    )
    if (asked is None and not xid) or s.targets["job"] or s.targets["device"]:
        return None
    if s.find("compare") or (asked is not None and asked.first > 2 and not xid):
        return None
    s.used.update(range(len(s.tokens)))
    return Query("manual", text=s.request.strip())


def _report(r: QueryReader) -> Query | None:
    s = r.s
    if s.find("topic", "report") is None:
        return None
    if s.find("noun", "alert") or s.find("measure") or s.find("noun", "queue"):
        return None
    s.has("topic", "report", "daily", "status")
    jobs = r.jobs()
    s.has("noun", "job")
    s.has("noun", "device") if not s.targets["device"] else None
    time = r.time()
    return Query("report", jobs=jobs, time=time)


def _debris(r: QueryReader) -> Query | None:
    if not r.s.has("topic", "clean"):
        return None
    kind = r.s.find("kind")
    if kind is not None:
        r.s.use(kind)
    r.s.has("topic", "log") if kind is not None and kind.value("kind") == "logs" else None
    return Query("debris", text=kind.value("kind") if kind is not None else "")


def _compare(r: QueryReader) -> Query | None:
    s = r.s
    than, bound = s.find("than"), s.find("bound")
    if bound is not None and s.loose(("number", "quantity")):
        return None
    if not s.find("compare") and than is None and bound is None:
        return None
    measure = than.value("than") if than is not None else ""
    if bound is not None:  # "hotter than" is also the beginning of a bound
        s.use(bound)
        known = phrases().get((s.tokens[bound.first].norm,), ())
        measure = next((m.value for m in known if m.kind == "than"), measure)
    spot = s.find("measure")
    measure = measure or (spot.value("measure") if spot is not None else "")
    jobs, devices = list(s.targets["job"]), r.devices() if s.targets["device"] else ()
    first: Query
    if len(devices) == 2:
        name = measure if measure in SUBJECTS["devices"].measures else ""
        other = Query("devices", name, devices=devices[1:])
        first = Query("devices", name, devices=devices[:1], other=other)
        _use_comparison(s)
        s.has("measure")
        return first
    if not jobs:
        jobs = list(r.jobs())
    ordinal = s.find("ordinal", "-1")
    if len(jobs) == 1 and ordinal is not None:
        s.use(ordinal)
        _use_comparison(s)
        s.has("measure")
        return Query("jobs", jobs=tuple(jobs), other=Query("jobs", text=PREVIOUS))
    if len(jobs) == 2:
        name = _JOB_MEASURES.get(measure, measure)
        name = name if name in SUBJECTS["jobs"].measures else ""
        _use_comparison(s)
        s.has("measure")
        return Query("jobs", name, jobs=(jobs[0],), other=Query("jobs", name, jobs=(jobs[1],)))
    return _compare_times(r, measure)


def _compare_times(r: QueryReader, measure: str) -> Query | None:
    """Read `compare today with yesterday`, and `was gpu 0 hotter yesterday than today`."""
    s = r.s
    spans = s.two_times()
    if len(spans) != 2:
        return None
    devices = r.devices()
    name = measure if measure in SUBJECTS["devices"].measures else ""
    _use_comparison(s)
    s.has("measure")
    s.has("agg")
    s.has("topic", "report")
    if not name and s.find("noun", "job") is not None:
        s.has("noun", "job")
        sides = [Query("jobs", "duration", time=span, aggregate="count") for span in spans]
    else:
        name = name or "util"
        aggregate = "sum" if name == "energy" else "mean"
        sides = [
            Query("devices", name, devices=devices, time=span, aggregate=aggregate)
            for span in spans
        ]
    return msgspec.structs.replace(sides[0], other=sides[1])


def _use_comparison(s: Spots) -> None:
    s.has("compare")
    s.has("than")
    s.has("noun")
    s.has("ask", "how", "how to")
    s.has("topic", "status")


def _log(r: QueryReader) -> Query | None:
    s = r.s
    if s.find("topic", "log") is None:
        return None
    s.has("topic", "log")
    s.has("noun", "job")
    jobs = r.jobs()
    quoted = [i for i, token in enumerate(s.tokens) if token.kind == "quoted" and i not in s.used]
    if quoted:
        s.used.update(range(len(s.tokens)))
        return Query("logs", jobs=jobs, text=s.tokens[quoted[0]].text)
    states = _states(r)
    if states and not jobs:
        return Query("jobs", "log", states=states, aggregate="last", limit=1)
    return Query("jobs", "log", jobs=jobs or (NEWEST,))


def _setting(r: QueryReader) -> Query | None:
    found = find_setting(r.s)
    if not found and not r.s.find("noun", "setting"):
        return None
    r.s.has("noun", "setting")
    r.s.has("verb", "set")
    r.s.has("ask", "how much", "how", "when")
    r.s.has("state", "idle")
    r.s.has("noun", "alert")
    return Query("settings", text=found)


def find_setting(s: Spots) -> str:
    """Return the setting that is named, and count its words as used."""
    norms = [token.norm for token in s.tokens]
    for phrase, name in sorted(setting_phrases().items(), key=lambda pair: -len(pair[0])):
        for i in range(len(norms) - len(phrase) + 1):
            if tuple(norms[i : i + len(phrase)]) == phrase:
                s.used.update(range(i, i + len(phrase)))
                return name
    return ""


def _capacity(r: QueryReader) -> Query | None:
    s = r.s
    size = next((i for i in s.loose(("quantity",)) if kind_of(s.tokens[i].unit) == "size"), None)
    asks = s.question or s.find("ask") is not None or s.find("polite") is not None or any(
        t.norm in ("can", "could", "kann", "is", "puis", "puedo", "peut", "hay", "ist", "y",
                   "passt", "cabe") for t in s.tokens[:3]
    )  # fmt: skip
    cue = s.find("topic", "capacity") or s.find("topic", "start")
    if cue is None or not asks or s.targets["job"] or s.targets["device"]:
        return None
    if (
        size is None
        and "device" not in s.counts
        and not (
            s.find("topic", "capacity") and (s.find("noun", "job") or s.find("noun", "device"))
        )
    ):
        return None
    if s.find("why") or s.find("ask", "why") or s.find("pron", "it"):
        return None
    amount = 0.0
    if size is not None:
        s.used.add(size)
        amount = _in_unit(s.tokens[size], "B")
    gpus = s.counts.get("device", 0)
    s.use_count("device")
    s.use_count("job")
    for kind, values in (("topic", ("capacity", "start")), ("noun", ("job", "device", "queue")),
                         ("ask", ("when", "how long", "how to", "how much")), ("verb", ("submit",)),
                         ("measure", ("mem_used", "mem_free")), ("all", ()), ("polite", ()),
                         ("state", ("idle",)), ("agg", ("count",))):  # fmt: skip
        s.has(kind, *values)
    return Query("capacity", amount=amount, gpus=gpus)


def _job_question(r: QueryReader) -> Query | None:
    """Read why, when, how long and how far questions about jobs."""
    s = r.s
    measure = _why(r) or _when(r)
    if not measure:
        return None
    jobs, states = r.jobs(), _states(r)
    why = measure == "reason"
    s.has("ask")
    if why or measure in ("start", "stall"):
        s.has("not")
    if why:
        s.has("topic", "log")
    s.has("noun", "job", "queue", "alert")
    if s.targets["device"]:
        s.has("noun", "device")
    s.has("topic", "stuck", "start", "end", "eta", "submitted", "remedy", "status", "used now")
    s.has("measure", "duration", "waited", "progress")
    if not jobs:
        s.has("pron", "it")
    time = r.time()
    if not jobs and not states:
        states = _FAILED if why and not _waits(s) else _OF_MEASURE.get(measure, ())
        jobs = () if states else (NEWEST,)
    if why and "failed" in states and not jobs:
        s.has("ordinal", "-1")
        return Query("jobs", "reason", states=states, time=time, aggregate="last", limit=1)
    return Query("jobs", measure, jobs=jobs, states=() if jobs else states, time=time)


_FAILED = ("failed", "lost", "rejected")
_OF_MEASURE = {
    "reason": ("queued",),
    "start": ("queued",),
    "estimate": ("running", "starting"),
    "stall": ("running", "starting"),
    "failure": ("failed", "lost"),
}
"""The jobs that are meant where none is named."""


def _about_job(r: QueryReader) -> bool:
    pronoun = r.s.find("pron", "it") is not None and r.state.about != "device"
    return bool(r.s.targets["job"]) or r.s.find("noun", "job") is not None or pronoun


def _about_device(r: QueryReader) -> bool:
    named = bool(r.s.targets["job"]) or r.s.find("noun", "job") is not None
    return bool(r.s.targets["device"]) or (r.s.find("noun", "device") is not None and not named)


def _why(r: QueryReader) -> str:
    """Return the measure of a question why, whether it is stuck, or how it is mended."""
    s = r.s
    if s.find("topic", "stuck") and not _about_device(r):
        return "stall"
    if s.find("ask", "why") and not _about_device(r):
        stated = s.find("state") or s.find("topic", "start")
        if _about_job(r) or stated or (r.state.about == "job" and not s.find("measure")):
            return "reason"
    if s.find("topic", "remedy") and (_about_job(r) or r.state.about == "job"):
        return "failure"
    return ""


def _when(r: QueryReader) -> str:
    """Return the measure of a question when or how long."""
    s, about = r.s, _about_job(r)
    when, long = s.find("ask", "when") is not None, s.find("ask", "how long") is not None
    if s.find("topic", "eta") and (when or long or not s.find("state")) and not _about_device(r):
        ended = s.find("state", "done") or s.find("topic", "end")
        return "end" if when and ended and not _future(s) else "estimate"
    if when and s.find("topic", "submitted"):
        return "submitted"
    if (when or long) and s.find("topic", "start") and (about or not _about_device(r)):
        return "start"
    if when and (s.find("topic", "end") or s.find("state")) and about:
        return "end"
    if long and (about or s.find("state")):
        spent = "waited" if s.find("state", "queued") else "duration"
        return "estimate" if _future(s) else spent
    return ""


def _waits(s: Spots) -> bool:
    return bool(s.find("state", "queued") or s.find("topic", "start") or s.find("state", "held"))


def _future(s: Spots) -> bool:
    norms = {token.norm for token in s.tokens}
    if norms & {"did", "has", "was", "hat", "hatte", "wurde", "war"}:
        return False
    return bool(norms & {"will", "wird", "werden", "would", "until", "sera", "going", "longer",
                         "noch", "va", "fini", "terminera", "finira", "terminara", "acabara",
                         "falta", "queda", "tardara", "prendra", "reste", "left", "remaining",
                         "finish", "usually", "normally", "typically", "normalerweise",
                         "dauert", "does", "tarda"})  # fmt: skip


def _states(r: QueryReader) -> tuple[str, ...]:
    found: list[str] = []
    for spot in r.s.spots:
        if spot.means("state") and spot.value("state") in _JOB_STATES:
            r.s.use(spot)
            found += _JOB_STATES[spot.value("state")]
    return tuple(dict.fromkeys(found))


def _queue(r: QueryReader) -> Query | None:
    s = r.s
    group = next(iter(s.groups.values()), "")
    named = s.find("noun", "queue")
    if named is None and not (group and s.find("noun", "group")) and not s.find("noun", "group"):
        return None
    if s.find("noun", "job") is not None and (s.find("agg", "count") or s.find("state", "queued")):
        return None
    if s.find("measure", "holder") or s.targets["job"]:
        return None
    s.has("noun", "queue", "group", "job")
    for i in s.groups:
        s.used.add(i)
    s.has("state", "queued", "running", "held", "idle")
    s.has("ask", "how long", "how much", "how")
    s.has("agg", "count")
    s.has("topic", "status")
    s.has("verb", "pause", "hold", "resume")
    return Query("queue", group=group)


def _alerts(r: QueryReader) -> Query | None:
    s = r.s
    well = s.find("topic", "status") if _whole_status(s) else None
    if s.find("noun", "alert") is None and well is None:
        return None
    if s.find("noun", "setting") is not None:
        return None
    devices, jobs = r.devices(), tuple(s.targets["job"])
    s.has("noun", "alert", "device", "job")
    s.has("state", "running")
    s.has("topic", "status")
    s.has("agg", "count")
    s.has("not")
    return Query("alerts", devices=devices, jobs=jobs, time=r.time())


def _whole_status(s: Spots) -> bool:
    words = (("everything", "ok"), ("everything", "okay"), ("all", "good"), ("everything", "fine"),
             ("alles", "ok"), ("alles", "in"), ("tout", "va"), ("todo", "bien"))  # fmt: skip
    norms = [token.norm for token in s.tokens]
    return any(a in norms and b in norms for a, b in words)


def _models(r: QueryReader) -> Query | None:
    s = r.s
    if s.find("noun", "model") is None or s.find("noun", "device"):
        return None
    s.has("noun", "model")
    s.has("measure", "name")
    s.has("topic", "used now")
    s.has("state", "idle", "busy", "running")
    return Query("models")


def _processes(r: QueryReader) -> Query | None:
    s = r.s
    holder = s.find("measure", "holder")
    who = s.find("ask", "who")
    if holder is not None and s.tokens[holder.first].norm in ("who", "wer", "qui", "quien"):
        who = holder
    user = s.find("noun", "user")
    asked = s.find("noun", "process") or user or who or (holder if who else None)
    if holder is not None and s.find("noun", "job") and who is None:
        return None
    if asked is None and not (holder and who is None and s.targets["device"]):
        return None
    if s.targets["job"]:
        return None
    devices = r.devices()
    aggregate, _, extreme = r.aggregate()
    measure = (
        "memory" if s.has("measure", "mem_used") else "util" if s.has("measure", "util") else ""
    )
    s.has("noun", "process", "user", "device", "job")
    s.has("ask", "who", "how much")
    s.has("measure", "holder")
    s.has("topic", "used now")
    s.has("state", "running", "busy")
    name = _user_beside(s)
    by_user = bool(user or who) and (extreme or aggregate in ("max", "min", "sum")) and not name
    if name and measure and not aggregate:
        aggregate = "sum"
    if by_user:
        return Query("processes", measure or "memory", devices=devices, by="user",
                     aggregate=aggregate, extreme=True)  # fmt: skip
    return Query("processes", measure, devices=devices, user=name, aggregate=aggregate,
                 extreme=extreme)  # fmt: skip


def _user_beside(s: Spots) -> str:
    """Return the name behind `user`."""
    spot = s.find("noun", "user")
    i = spot.last + 1 if spot is not None else len(s.tokens)
    known = {n for other in s.spots for n in other.tokens}
    if i < len(s.tokens) and s.tokens[i].kind in ("word", "name", "quoted") and i not in known:
        s.used.add(i)
        return s.tokens[i].text
    return ""


def _devices(r: QueryReader) -> Query | None:
    s = r.s
    if not _asks_about_devices(r):
        return None
    spot = s.find("measure")
    measure, use = spot.value("measure") if spot is not None else "", _use(s)
    if measure == "power" and s.find("measure", "energy"):
        s.has("measure", "power")  # "consommation d'énergie"
        measure = "energy"
    if measure == "mem_used" and use == "idle":
        measure, use = "mem_free", ""
    aggregate, named, extreme = r.aggregate()
    measure = named or measure
    _use_measure(s, measure)
    limit, devices, time = r.limit(), r.devices(), r.time()
    s.has("noun", "device", "cpu")
    if not measure and use:
        return _in_use(r, use, devices, aggregate)
    bound = [s.tokens[i].unit for i in s.loose(("quantity",))] if s.find("bound") else []
    measure = measure or (_BOUND_UNITS.get(bound[0], "") if bound else "")
    where = r.bounds(measure) if measure else ()
    text = "cpu" if any(spot.means("noun", "cpu") for spot in s.spots) else ""
    s.has("ask", "how much", "who", "why", "how")
    s.has("topic", "status", "used now")
    s.has("all")
    if measure in ("util", "holder", "use"):
        s.has("state", "busy")
    if aggregate == "count" and not measure:
        return Query("devices", "name", devices=devices, aggregate="count")
    if aggregate == "count" or (measure == "energy" and not aggregate and len(devices) != 1):
        aggregate = "sum" if measure == "energy" else ""  # "combien d'énergie"
    when = s.has("ask", "when")
    if when:
        aggregate, time = aggregate or "max", time or Span(s.now - 86400.0, s.now)
    measure = measure or ("util" if extreme or when else "")
    return Query(
        "devices",
        measure,
        devices=devices,
        where=where,
        time=time,
        aggregate=aggregate,
        extreme=extreme,
        when=when,
        limit=limit,
        text=text,
    )


def _use(s: Spots) -> str:
    """Return `idle` or `busy` if a state of devices is named."""
    named = (x for x in s.spots if x.means("state", "idle") or x.means("state", "busy"))
    spot = next(named, None)
    return spot.value("state") if spot is not None else ""


def _asks_about_devices(r: QueryReader) -> bool:
    s = r.s
    spot, best = s.find("measure"), s.find("super")
    measure = spot.value("measure") if spot is not None else ""
    of_super = best.value("super").rpartition(" ")[0].strip("-") if best else ""
    device = s.find("noun", "device") is not None or s.find("noun", "cpu") is not None
    if measure in _OF_JOBS or of_super == "duration":
        return False
    if (s.find("noun", "job") or s.targets["job"]) and not s.targets["device"]:
        return measure == "holder" or (device and not s.targets["job"])
    about = bool(measure or of_super or _use(s))
    of_job = any(x.means("state") and x.value("state") in _JOB_STATES for x in s.spots)
    return about or (device and not of_job)


def _in_use(r: QueryReader, use: str, devices: tuple[int, ...], aggregate: str) -> Query:
    """Return the query for devices that are idle or busy, or for whether these are."""
    s = r.s
    s.has("state", "idle", "busy")
    s.has("ask", "why")
    s.has("agg", "count")
    s.has("topic", "used now")
    if devices and aggregate != "count":
        return Query("devices", "use", devices=devices)
    return Query("devices", "use", devices=devices, states=(use,), aggregate=aggregate)


def _use_measure(s: Spots, measure: str) -> None:
    for spot in s.spots:
        if spot.means("measure", measure):
            s.use(spot)
    if measure == "mem_free":
        s.has("measure", "mem_used")
        s.has("state", "idle")
        s.has("topic", "eta")


def _jobs(r: QueryReader) -> Query | None:
    s = r.s
    spot = s.find("measure")
    measure = spot.value("measure") if spot is not None else ""
    measure = _JOB_MEASURES.get(measure, measure)
    measure = measure if measure in SUBJECTS["jobs"].measures else ""
    named = bool(s.targets["job"]) or s.find("noun", "job") is not None
    pronoun = s.find("pron", "it") or s.find("pron", "them") or s.find("ordinal")
    states = _states(r)
    if not (named or states or measure or (pronoun and r.state.about == "job")):
        return None
    jobs = r.jobs()
    limit = r.limit()
    ordinal = s.find("ordinal")
    first_last = ""
    if not jobs and ordinal is not None:
        s.use(ordinal)
        first_last = "" if limit else "first" if ordinal.value("ordinal") == "1" else "last"
    aggregate, of_super, _ = r.aggregate()
    measure = of_super or measure
    if measure not in SUBJECTS["jobs"].measures:
        measure = ""
    if spot is not None and measure:
        s.use(spot)
    devices = r.devices() if s.targets["device"] else ()
    group = next(iter(s.groups.values()), "")
    for i in s.groups:
        s.used.add(i)
    time = r.time()
    s.has("noun", "job", "queue", "group")
    s.has("noun", "device") if devices else None
    s.has("ask", "how much", "how", "who", "how long")
    s.has("topic", "status", "start", "used now", "end", "eta") if not measure else s.has(
        "topic", "used now"
    )
    s.has("measure", "holder") if devices else None
    s.has("all")
    s.has("pron", "it") if not jobs else None
    if aggregate in ("max", "min") and measure:
        return Query("jobs", measure, jobs=jobs, states=states, group=group, devices=devices,
                     time=time, aggregate=aggregate, extreme=True, limit=limit)  # fmt: skip
    aggregate = aggregate or first_last
    if measure == "energy" and not jobs:
        aggregate = aggregate or "sum"
    return Query("jobs", measure, jobs=jobs, states=states, group=group, devices=devices,
                 time=time, aggregate=aggregate, limit=limit)  # fmt: skip


_READERS: tuple[Callable[[QueryReader], Query | None], ...] = (
    _conversion, _how_to, _help, _debris, _compare, _log, _report, _capacity, _setting,
    _job_question, _queue, _alerts, _processes, _models, _devices, _jobs,
)  # fmt: skip
