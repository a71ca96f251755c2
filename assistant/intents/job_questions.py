"""Read questions about jobs."""

from __future__ import annotations

import msgspec

from gpudeck.assistant.intents.reading import (
    JOB_MEASURES,
    JOB_STATES,
    QueryReader,
    named_setting,
    states,
)
from gpudeck.assistant.intents.spots import Spots
from gpudeck.assistant.query.conversion import kind_of
from gpudeck.assistant.query.request import NEWEST, Query, Span, Target, Where
from gpudeck.assistant.query.table import SUBJECTS

_FAILED = ("failed", "lost", "rejected")
_OF_MEASURE = {
    "reason": ("queued",),
    "start": ("queued",),
    "estimate": ("running", "starting"),
    "stall": ("running", "starting"),
    "progress": ("running", "starting"),
    "failure": ("failed", "lost"),
}
"""The jobs that are meant where none is named."""
_BOUND_MEASURES = {"time": "duration", "size": "memory", "energy": "energy"}
"""The measure of a job that a bound is about, by the kind of its unit."""


def log(r: QueryReader) -> Query | None:
    """Read `what did job 3 print`, and `search the logs for "nan"`."""
    s = r.s
    if s.find("topic", "log") is None or named_setting(s) or s.find("topic", "report"):
        return None
    s.has("topic", "log")
    searched = _searched(s)
    s.has("noun", "job", "process")
    jobs = r.jobs() or (() if searched else r.lone_job())
    if searched:
        s.used.update(range(len(s.tokens)))
        return Query("logs", jobs=jobs, text=searched)
    s.has("measure", "command", "progress")
    s.has("ask", "why", "how", "how much")
    loose = s.loose(("number", "quantity"))
    s.used.update(loose[:1])  # the last 20 lines
    found = states(r)
    s.has("ordinal")
    jobs = jobs or (() if found else r.spoken_of())
    if found and not jobs:
        return Query("jobs", "log", states=found, aggregate="last", limit=1)
    return Query("jobs", "log", jobs=jobs or (NEWEST,))


_SEARCH = frozenset({"grep", "nan", "search", "find", "contains", "contain", "mention", "mentions",
                     "suche", "such", "durchsuche", "enthalten", "cherche", "chercher",
                     "busca", "buscar", "contiene"})  # fmt: skip


def _searched(s: Spots) -> str:
    """Return the words that a log is searched for."""
    quoted = next((t.text for i, t in enumerate(s.tokens) if t.kind == "quoted"), "")
    if quoted:
        return quoted
    asked = any(token.norm in _SEARCH for token in s.tokens)
    known = {i for spot in s.spots for i in spot.tokens}
    words = [t.text for i, t in enumerate(s.tokens)
             if i not in known and i not in s.used and t.kind in ("word", "name")
             and (t.norm not in _SEARCH or t.norm == "nan")]  # fmt: skip
    return " ".join(words) if asked else ""


def job_question(r: QueryReader) -> Query | None:
    """Read why, when, how long and how far questions about jobs."""
    s = r.s
    measure = _why(r) or _when(r)
    if not measure:
        return None
    jobs, found = r.jobs(), states(r)
    _use_question(s, measure)
    if not jobs:
        s.has("pron", "it")
    time = r.time()
    if time is not None and time.point and measure in ("estimate", "start", "end"):
        time = None  # "done by 6pm" is about what comes
    if not jobs and not s.find("ordinal"):
        jobs = r.lone_job()
    if not jobs and (not found or _OF_MEASURE.get(measure) or measure == "duration"):
        jobs = r.spoken_of()
    if jobs == (NEWEST,) and measure == "end":
        return Query("jobs", "end", states=JOB_STATES["ended"], time=time, aggregate="last")
    if jobs:
        s.has("all")
        return Query("jobs", measure, jobs=jobs, time=time)
    return _of_states(s, measure, found, time)


def _use_question(s: Spots, measure: str) -> None:
    """Count the words of such a question as used."""
    s.has("ask")
    if measure in ("reason", "start", "stall"):
        s.has("not")
    if measure == "reason":
        s.has("topic", "log", "report", "overview")
    s.has("noun", "job", "queue", "alert", "process")
    if s.targets["device"]:
        s.has("noun", "device")
    s.has("topic", "stuck", "start", "end", "eta", "submitted", "remedy", "status", "used now",
          "ahead", "next", "overview", "eats")  # fmt: skip
    s.has("measure", "duration", "waited", "progress")
    s.has("state", "idle")


def _of_states(s: Spots, measure: str, found: tuple[str, ...], time: Span | None) -> Query:
    """Return the question about the jobs in some states, as it names none."""
    why = measure == "reason"
    if why and (s.find("not") or s.find("noun", "queue")) and "failed" not in found:
        found = ("queued",)  # "why is nothing running"
    if measure == "end" and s.find("all"):
        measure, found = "estimate", _OF_MEASURE["estimate"]  # "when are all jobs done"
    s.has("all")
    if not found:
        found = _FAILED if why and not _waits(s) else _OF_MEASURE.get(measure, ())
    if not found:
        return Query("jobs", measure, jobs=(NEWEST,), time=time)
    ordinal = s.find("ordinal", "-1")
    if ordinal is not None:
        s.use(ordinal)
    if ordinal is not None or measure == "failure" or (why and "failed" in found):
        return Query("jobs", measure, states=found, time=time, aggregate="last", limit=1)
    return Query("jobs", measure, states=found, time=time)


_EXPLAIN = frozenset({"explain", "erklare", "erklar", "explique", "explica"})


def _about_job(r: QueryReader) -> bool:
    pronoun = r.s.find("pron", "it") is not None and r.state.about != "device"
    named = bool(r.s.targets["job"]) or r.s.find("noun", "job") is not None
    return named or pronoun


def _about_device(r: QueryReader) -> bool:
    named = bool(r.s.targets["job"]) or r.s.find("noun", "job") is not None
    return bool(r.s.targets["device"]) or (r.s.find("noun", "device") is not None and not named)


def _of_memory(s: Spots) -> bool:
    return any(s.find("measure", name) for name in ("mem_used", "mem_free", "energy", "power"))


def _why(r: QueryReader) -> str:
    """Return the measure of a question why, whether it is stuck, or how it is mended."""
    s = r.s
    asked = [i for i, t in enumerate(s.tokens) if t.norm in _EXPLAIN]
    if asked and s.targets["job"]:
        s.used.update(asked)
        return "reason"
    if s.find("topic", "stuck") and not _about_device(r) and not s.find("measure", "temp"):
        return "reason" if s.find("ask", "why") else "stall"
    if s.find("ask", "why") and not _about_device(r):
        stated = s.find("state") or s.find("topic", "start")
        if _about_job(r) or stated or (r.state.about == "job" and not s.find("measure")):
            return "reason"
    if s.targets["job"] and any(
        t.norm.rstrip("s") in ("error", "problem", "issue", "fehler", "erreur", "errore",
                               "probleme", "problema") for t in s.tokens
    ):  # fmt: skip
        return "reason"
    if s.find("topic", "remedy") and (
        _about_job(r) or r.state.about == "job" or s.find("state", "failed")
    ):
        return "failure"
    return ""


def _when(r: QueryReader) -> str:
    """Return the measure of a question when or how long."""
    s = r.s
    when, long = s.find("ask", "when") is not None, s.find("ask", "how long") is not None
    if s.targets["device"] and not _about_job(r):
        return ""
    if s.find("topic", "ahead") and _about_job(r):
        return "start"
    timed = (s.time is not None and not s.time.span.point) or s.find("super") or s.find("agg")
    if _of_memory(s) or (timed and not when and not long):
        return ""
    if s.find("topic", "next") and not _about_device(r) and not s.targets["job"]:
        return "start"
    if not when and not long and {t.norm for t in s.tokens} & _ASKED_PAST:
        return ""  # "did it finish?": how it stands
    if s.find("topic", "eta") and (when or long or not s.find("state")) and not _about_device(r):
        return _of_end(s, when)
    return _moment(r) if when else _time(r) if long else ""


def _of_end(s: Spots, when: bool) -> str:
    """Return the measure of a question about the end."""
    if when and s.find("topic", "submitted"):
        return "submitted"
    if when and s.find("topic", "start"):
        return "start"
    if not when and s.find("measure", "duration") and not _future(s):
        return "duration"
    ended = s.find("state", "done") or s.find("topic", "end")
    return "end" if when and ended and not _future(s) else "estimate"


def _moment(r: QueryReader) -> str:
    """Return the measure of a question when."""
    s, about = r.s, _about_job(r)
    if s.find("topic", "submitted"):
        return "submitted"
    if s.find("noun", "queue") and s.find("state", "idle"):
        return "estimate"
    if s.find("topic", "start") and (about or not _about_device(r)):
        return "start"
    if s.find("state", "running") and not _future(s) and not s.find("topic", "end"):
        return "start"
    if s.targets["job"] and _future(s) and not s.find("topic", "end") and not s.find("state"):
        return "start"  # "when will it run"
    ends = s.find("topic", "end") or s.find("state")
    return "end" if ends and (about or r.state.about == "job") else ""


def _time(r: QueryReader) -> str:
    """Return the measure of a question how long."""
    s, about = r.s, _about_job(r)
    if s.find("topic", "start") and (about or not _about_device(r)):
        return "start"
    lone = len(s.loose(("number",))) == 1 and not s.find("noun")  # "how long does 9 take"
    if not (about or lone or s.find("state") or s.find("measure", "duration")):
        return ""
    spent = "waited" if s.find("state", "queued") or s.find("measure", "waited") else "duration"
    return "estimate" if _future(s) and spent == "duration" else spent


def _waits(s: Spots) -> bool:
    waits = any(token.norm.startswith(("wait", "wart", "attend", "esper")) for token in s.tokens)
    return bool(
        waits or s.find("state", "queued") or s.find("topic", "start") or s.find("state", "held")
    )


_ASKED_PAST = frozenset({"did", "has", "hat", "ist", "ha"})
_PAST = frozenset({"did", "has", "was", "hat", "hatte", "wurde", "war", "schon", "already",
                   "been", "deja", "ya", "lief", "took", "depuis", "lleva", "dauerte", "ha",
                   "fue", "tardo", "tardó", "duró", "duro", "duré", "bereits", "went"})  # fmt: skip
_COMING = frozenset({"will", "wird", "werden", "would", "until", "sera", "going", "longer", "noch",
                     "va", "fini", "terminera", "finira", "terminara", "acabara", "falta", "queda",
                     "tardara", "prendra", "reste", "left", "remaining", "finish", "usually",
                     "normally", "typically", "normalerweise", "habitude", "suele",
                     "dauert", "does", "tarda", "till",
                     "encore", "restant", "terminer", "still", "more", "todavia", "aun", "bis",
                     "ll"})  # fmt: skip
_SURELY_COMING = frozenset({"will", "noch", "encore", "longer", "reste", "left", "remaining",
                            "falta", "queda", "till", "until", "wird", "werden"})  # fmt: skip


def _future(s: Spots) -> bool:
    norms = {token.norm for token in s.tokens}
    if norms & _SURELY_COMING and not norms & {"did", "took", "wurde", "war", "was"}:
        return True
    return not norms & _PAST and bool(norms & _COMING)


def _job_bounds(r: QueryReader) -> tuple[Where, ...]:
    """Return the bound of `longer than 2 hours` or `more than 20 GB`."""
    found = r.bound()
    if found is None:
        return ()
    measure = _BOUND_MEASURES.get(kind_of(r.s.tokens[found[1]].unit), "")
    if measure:
        r.s.has("measure", measure, "mem_used")
        r.s.has("than")
    return r.bounds(measure, "jobs") if measure else ()


def jobs(r: QueryReader) -> Query | None:
    """Read lists, counts, winners and single values of jobs."""
    s = r.s
    spot = next((x for x in s.spots if x.means("measure") and _measure(x.value("measure"))), None)
    measure = _measure(spot.value("measure")) if spot is not None else ""
    named = bool(s.targets["job"]) or s.find("noun", "job") is not None
    pronoun = s.find("pron", "it") or s.find("pron", "them") or s.find("ordinal")
    found = states(r)
    if named and not found and s.find("not") and s.has("topic", "start"):
        s.has("not")
        found = ("queued",)  # "which jobs have not started"
    if s.find("topic", "status") and not s.find("noun") and (loose := s.loose(("number",))):
        s.used.update(loose)  # "how are 8 and 9 doing"
        return Query("jobs", jobs=tuple(int(s.tokens[i].value) for i in loose))
    if not (named or found or measure or (pronoun and r.state.about == "job")):
        return None
    time, where = r.time(), _job_bounds(r)
    numbers, limit, place = _which(r)
    counted = s.find("agg", "count") is not None
    s.has("verb", "submit") if counted else None  # "how many jobs did I submit"
    aggregate, of_super, _ = r.aggregate()
    aggregate = "count" if counted and aggregate == "sum" else aggregate
    measure = _measure(of_super) or measure
    if spot is not None and measure:
        s.use(spot)
        s.has("measure", "name")
    devices = r.devices() if s.targets["device"] else ()
    group = next(iter(s.groups.values()), "")
    if not measure and not devices and (s.find("noun", "device") or s.find("ask", "where")):
        numbers, measure = _where_it_runs(r, numbers)
    if not numbers and measure and not found and not group and not s.counts:
        numbers = r.lone_job() or (() if aggregate else r.spoken_of())
    _use_around(s, bool(numbers), bool(devices), measure)
    query = Query("jobs", measure, jobs=numbers, states=found, group=group, devices=devices,
                  where=where, time=time, aggregate=aggregate, limit=limit)  # fmt: skip
    return _settled(query, counted, place)


def _settled(query: Query, counted: bool, place: str) -> Query:
    """Return a query with what its parts mean together."""
    states, jobs, measure = query.states, query.jobs, query.measure
    if (jobs and states and not measure and not counted) or (
        query.time is not None and states == JOB_STATES["running"]
    ):
        states = ()  # "did job 3 fail" asks how it stands, "what was running at 3" what ran then
    if measure in _OF_MEASURE and not jobs and not states:
        states = _OF_MEASURE[measure]
    text = ""
    if counted and len(jobs) == 1 and isinstance(jobs[0], str):
        text, jobs, measure = jobs[0], (), ""  # how often it ran
    if query.aggregate in ("max", "min") and measure and [type(job) for job in jobs] == [str]:
        text, jobs = str(jobs[0]), ()  # the fastest of its runs
        if not states or states == JOB_STATES["running"]:
            states = JOB_STATES["done"] if query.aggregate == "min" else ()
    aggregate = "" if query.aggregate == "count" and (jobs or measure) else query.aggregate
    if measure in ("energy", "gpu_hours") and not jobs:
        place = place or "sum"
    extreme = query.aggregate in ("max", "min") and bool(measure)
    return msgspec.structs.replace(query, measure=measure, jobs=jobs, states=states, text=text,
                                   aggregate=aggregate or place, extreme=extreme)  # fmt: skip


def _where_it_runs(r: QueryReader, numbers: tuple[Target, ...]) -> tuple[tuple[Target, ...], str]:
    """Return the job and the measure of `which gpu is job 13 on`, if that is asked."""
    if not numbers and r.state.about == "job":
        numbers = r.state.jobs[:1]
    if numbers:
        r.s.has("noun", "device")
        r.s.has("ask", "where")
    return numbers, "devices" if numbers else ""


def _which(r: QueryReader) -> tuple[tuple[Target, ...], int, str]:
    """Return the jobs that are named, the N of the last N, and whether one end is meant."""
    s = r.s
    numbers = r.jobs()
    limit = r.limit() if not numbers or numbers == (NEWEST,) else 0
    if limit and numbers == (NEWEST,):
        numbers = ()
    ordinal = s.find("ordinal")
    if numbers or ordinal is None:
        return numbers, limit, ""
    s.use(ordinal)
    if limit or _plural(s):
        s.has("pron", "them")
        return numbers, limit, ""
    return numbers, limit, "first" if ordinal.value("ordinal") == "1" else "last"


def _use_around(s: Spots, numbers: bool, devices: bool, measure: str) -> None:
    """Count the words that only name what the query has already as used."""
    s.used.update(s.groups)
    s.has("noun", "job", "queue", "group", "process")
    s.has("noun", "device") if devices else None
    s.has("ask", "how much", "how", "who", "how long")
    s.has("topic", "status", "start", "used now", "end", "eta", "consumed", "eats")
    s.has("measure", "holder") if devices or measure else None
    s.has("all")
    s.has("pron", "it") if not numbers else None


def _measure(name: str) -> str:
    """Return the measure of jobs that a measure's word stands for."""
    found = JOB_MEASURES.get(name, name)
    return found if found in SUBJECTS["jobs"].measures else ""


def _plural(s: Spots) -> bool:
    noun = s.find("noun", "job")
    return noun is not None and s.tokens[noun.last].norm in _PLURALS


_PLURALS = frozenset({"jobs", "runs", "tasks", "trainings", "laufe", "auftrage", "trabajos",
                      "tareas", "taches", "experiments", "experimente", "travaux", "scripts",
                      "experiences", "corridas", "experimentos", "entrenamientos", "ejecuciones",
                      "calculs", "entrainements"})  # fmt: skip
