"""Read questions about devices and the processes on them."""

from __future__ import annotations

from typing import Literal

from gpudeck.assistant.intents.reading import JOB_MEASURES, JOB_STATES, QueryReader, in_unit
from gpudeck.assistant.intents.spots import JOINS, Spots
from gpudeck.assistant.query.conversion import kind_of
from gpudeck.assistant.query.request import Query, Span, Where

_OF_JOBS = frozenset({"progress", "priority", "command", "waited", "duration"})
_BOUND_MEASURES = {"temperature": "temp", "power": "power", "size": "mem_used", "clock": "clock_sm"}
"""The measure of a device that a bound is about, by the kind of its unit."""
_DAY_S = 86400.0
_NOT_KEPT = frozenset({"throttle", "health", "xid"})
"""Measures whose past is told by the alerts."""


def eaters(r: QueryReader) -> Query | None:
    """Read `what is eating my vram`: the processes that use the most."""
    s = r.s
    if s.find("topic", "eats") is None or s.targets["job"] or s.find("noun", "job"):
        return None
    used = s.find("measure", "mem_used") or s.find("measure", "mem_free")
    about = used or s.find("noun", "device") or s.find("noun", "process")
    others = [x for x in s.spots if x.means("measure") and not x.value("measure").startswith("mem")]
    if others and not s.find("measure", "holder"):
        return None
    if about is None or s.find("agg", "count") or s.time is not None or s.find("state", "idle"):
        return None
    if s.find("ask", "who") and not used:
        return None
    s.has("topic", "eats", "used now")
    s.has("measure", "mem_used", "mem_free", "holder")
    s.has("noun", "device", "process", "user")
    s.has("state", "busy")
    s.has("all")
    s.has("not")
    s.has("ask", "who", "how much", "why")
    _, _, _ = r.aggregate()
    devices, limit = r.devices(), r.limit()
    by = "user" if s.find("ask", "who") or s.find("noun", "user") else ""
    return Query("processes", "memory", devices=devices, aggregate="max", extreme=True, by=by,
                 limit=limit)  # fmt: skip


def processes(r: QueryReader) -> Query | None:
    """Read who uses devices, and which processes do."""
    s = r.s
    holder, who = s.find("measure", "holder"), s.find("ask", "who")
    if who is not None and _relative(s, who.first):
        who = None  # "ce qui tourne"
    if holder is not None and s.tokens[holder.first].norm in ("who", "wer", "qui", "quien"):
        who = holder
    user = s.find("noun", "user")
    asked = s.find("noun", "process") or user or who or (holder if who else None)
    if s.person.name and (s.find("measure", "mem_used") or s.find("measure", "util")):
        asked = asked or s.find("measure")
    if holder is not None and s.find("noun", "job") and who is None:
        return None
    if asked is None and not (holder and who is None and s.targets["device"]):
        return None
    if s.targets["job"] or (s.find("noun", "job") and not (user or who or holder)):
        return None
    devices, limit = r.devices(), r.limit()
    aggregate, _, extreme = r.aggregate()
    measure = (
        "memory" if s.has("measure", "mem_used") else "util" if s.has("measure", "util") else ""
    )
    s.has("noun", "process", "user", "device", "job")
    s.has("ask", "who", "how much")
    s.has("measure", "holder")
    s.has("topic", "used now", "eats", "consumed")
    s.has("state", "running", "busy")
    pids = [target for target in s.targets["process"] if isinstance(target, int)]
    if len(pids) == 1:
        return Query("processes", measure, devices=devices, text=str(pids[0]))
    name = s.person.name
    s.used |= s.person.places
    by_user = bool(user or who) and (extreme or aggregate in ("max", "min", "sum")) and not name
    if name and measure and not aggregate:
        aggregate = "sum"
    if by_user:
        return Query("processes", measure or "memory", devices=devices, by="user",
                     aggregate=aggregate, extreme=True, limit=limit)  # fmt: skip
    return Query("processes", measure, devices=devices, user=name, aggregate=aggregate,
                 extreme=extreme, limit=limit)  # fmt: skip


def _relative(s: Spots, place: int) -> bool:
    return s.tokens[place].norm == "qui" and place > 0 and (
        s.tokens[place - 1].norm in ("ce", "chose", "celui", "celle", "ceux", "jobs", "gpu", "gpus",
                                     "job", "taches", "processus", "carte", "cartes"))  # fmt: skip


def devices(r: QueryReader) -> Query | None:
    """Read values, lists, winners and totals of devices."""
    s = r.s
    if not _asks_about_devices(r):
        return None
    measure, use = _measure(r), _use(s)
    if measure == "mem_free":
        use = ""
    counted = s.find("agg", "count") is not None
    aggregate, named, extreme = r.aggregate()
    if aggregate == "sum" and measure == "mem_used" and len(r.s.targets["device"]) == 1:
        measure, aggregate = "mem_total", ""
    if counted and aggregate == "sum" and not measure:
        aggregate = "count"
    measure = measure if measure == "mem_free" else named or measure
    _use_measure(s, measure)
    limit, found, time = r.limit(), _of_both(r) or r.devices() or _by_ordinal(s), r.time()
    found = found or _listed(r, measure)
    s.has("noun", "device", "cpu")
    if use == "idle" and not measure and (free := _with_free(r, found, counted)) is not None:
        return free
    if use and not measure:
        return _in_use(r, use, found, aggregate, time)
    bound = r.bound()
    if bound is not None and not measure:
        measure = _bound_measure(s, bound[1])
    where = r.bounds(measure) if measure else ()
    s.has("than") if where else None
    text = "cpu" if any(spot.means("noun", "cpu") for spot in s.spots) else ""
    s.has("ask", "how much", "who", "why", "how")
    s.has("topic", "status", "used now", "consumed", "eats")
    s.has("all")
    if measure:
        s.has("state", "busy", "running")
        s.has("topic", "overview")
        s.has("measure", "progress")
    order: Literal["", "down"] = "down" if s.has("topic", "sort") and measure else ""
    if aggregate == "count" and not measure:
        return Query("devices", "name", devices=found, aggregate="count")
    counted = aggregate == "count"
    if (counted and (not where or measure == "energy")) or (
        measure == "energy" and not aggregate and len(found) != 1
    ):
        aggregate = "sum" if measure == "energy" else ""  # "combien d'énergie"
    when = s.has("ask", "when")
    if when:
        aggregate, time = aggregate or "max", time or Span(s.now - _DAY_S, s.now)
    measure = measure or ("util" if extreme or when else "")
    if time is not None and measure in _NOT_KEPT:
        return Query("alerts", devices=found, time=time)
    return Query("devices", measure, devices=found, where=where, time=time, aggregate=aggregate,
                 extreme=extreme, when=when, limit=limit, text=text, order=order)  # fmt: skip


def _of_both(r: QueryReader) -> tuple[int, ...]:
    """Return the GPUs that were spoken of, for a comparison that names none: `which is cooler`."""
    s, spoken = r.s, (*r.state.earlier, *r.state.devices)
    if r.state.about != "device" or len(spoken) < 2 or s.find("all") or s.find("noun", "device"):
        return ()
    if not any(spot.means("than") and spot.means("super") for spot in s.spots):
        return ()
    s.has("pron")
    return spoken


def _listed(r: QueryReader, measure: str) -> tuple[int, ...]:
    """Return the GPUs of `utilization on 0, 2 and 6`: numbers without a noun, behind `on`."""
    s = r.s
    loose = s.loose(("number", "range"))
    if not measure or not loose or s.find("noun") or s.find("bound") or r.state.about == "job":
        return ()
    begin, end = loose[0], loose[-1]
    before = s.tokens[begin - 1].norm if begin else ""
    if before not in _ON and (before not in _ARE or measure in JOB_MEASURES):
        return ()
    between = {s.tokens[i].norm for i in range(begin, end + 1) if i not in loose}
    if not between <= JOINS or any(s.tokens[i].value % 1 for i in loose):
        return ()
    s.used.update(range(begin, end + 1))
    return tuple(n for i in loose for n in s.tokens[i].whole_numbers())


_ARE = frozenset({"is", "are", "ist", "sind", "est", "sont", "esta", "está", "estan", "son"})
_ON = frozenset({"on", "of", "for", "auf", "von", "fur", "bei", "sur", "de", "pour", "en", "para"})


def _with_free(r: QueryReader, found: tuple[int, ...], counted: bool) -> Query | None:
    """Read `which gpu has 30 GiB free`: an amount beside `free` is the least that is asked for."""
    s = r.s
    size = next((i for i in s.loose(("quantity",)) if kind_of(s.tokens[i].unit) == "size"), None)
    if size is None or s.find("bound"):
        return None
    s.used.add(size)
    s.has("state", "idle")
    s.has("all")
    s.has("ask", "how much")
    where = (Where("mem_free", above=in_unit(s.tokens[size], "B")),)
    aggregate = "count" if counted else ""
    return Query("devices", "mem_free", devices=found, where=where, aggregate=aggregate)


def _by_ordinal(s: Spots) -> tuple[int, ...]:
    """Return the GPU that `the first gpu` is: GPU 0."""
    spot, noun = s.find("ordinal"), s.find("noun", "device")
    if spot is None or noun is None or noun.first != spot.last + 1:
        return ()
    number = int(spot.value("ordinal"))
    s.use(spot)
    return (number - 1,) if number > 0 else ()


def _measure(r: QueryReader) -> str:
    """Return the measure that is asked for: of several words, what they mean together."""
    s = r.s
    found = _first_measure(s)
    spent = s.find("measure", "energy") or (
        s.find("topic", "consumed") and s.time is not None and not s.time.span.point
    )
    if found in ("power", "energy") and spent:
        s.has("measure", "power", "energy")  # "consommation d'énergie", "strom verbraucht"
        return "energy"
    if found == "mem_used" and (_use(s) == "idle" or s.find("topic", "eta")):
        return "mem_free"  # "memory left"
    if found == "util" and s.find("measure", "mem_used"):
        s.has("measure", "util")  # "memory usage"
        return "mem_used"
    if found == "name" and (other := next(
        (x.value("measure") for x in s.spots if x.means("measure")
         and x.value("measure") != "name"), "")):  # fmt: skip
        s.has("measure", "name")
        return other
    return found


def _first_measure(s: Spots) -> str:
    """Return the first measure that is named: one of devices, if there is one."""
    named = [spot.value("measure") for spot in s.spots if spot.means("measure")]
    if named == ["progress"] and s.find("noun", "device") and not s.find("noun", "job"):
        return "util"  # "what percentage of gpu 2 is used"
    return next((name for name in named if name not in _OF_JOBS), named[0] if named else "")


def _bound_measure(s: Spots, place: int) -> str:
    """Return the measure that a bound without one is about, by its unit."""
    unit = s.tokens[place].unit
    measure = _BOUND_MEASURES.get(kind_of(unit), "util" if unit == "%" else "")
    if measure == "mem_used" and s.find("state", "idle"):
        s.has("state", "idle")
        return "mem_free"
    return measure


def _use(s: Spots) -> str:
    """Return `idle` or `busy` if a state of devices is named."""
    named = (x for x in s.spots if x.means("state", "idle") or x.means("state", "busy"))
    spot = next(named, None)
    if spot is None:
        return ""
    if spot.means("state", "idle") and s.loose(("quantity",)) and s.find("bound"):
        return ""  # "less than 10 GB free" is about memory
    use = "idle" if spot.means("state", "idle") else "busy"
    refused = s.find("not")
    if refused is not None and refused.last == spot.first - 1:
        s.use(refused)
        use = "busy" if use == "idle" else "idle"
    return use


def _asks_about_devices(r: QueryReader) -> bool:
    s = r.s
    best, measure = s.find("super"), _first_measure(s)
    of_super = best.value("super").rpartition(" ")[0].strip("-") if best else ""
    device = s.find("noun", "device") is not None or s.find("noun", "cpu") is not None
    if measure in _OF_JOBS or of_super == "duration":
        return False
    if _of_that_job(r, measure) and not s.targets["device"]:
        return False
    if s.find("noun", "job") and s.targets["device"] and not measure and not of_super:
        return False  # "jobs on gpu 0"
    if (s.find("noun", "job") or s.targets["job"]) and not s.targets["device"]:
        return measure == "holder" or (
            device and not s.targets["job"] and bool(measure or of_super or _use(s))
        )
    about = bool(measure or of_super or _use(s))
    of_job = any(x.means("state") and x.value("state") in JOB_STATES for x in s.spots)
    runs = s.find("state", "running") and s.find("all") and s.has("state", "running")
    return about or (device and (not of_job or bool(runs))) or bool(device and r.bound())


def _of_that_job(r: QueryReader, measure: str) -> bool:
    """Return whether `it` is a job and the measure is one of jobs: "how much energy did it use"."""
    spoken = r.state.about == "job" and (r.s.find("pron", "it") or r.s.find("state", "running"))
    named = r.s.find("noun", "device") is not None
    return bool(spoken) and (measure in JOB_MEASURES if measure else named)


def _in_use(
    r: QueryReader, use: str, found: tuple[int, ...], aggregate: str, time: Span | None
) -> Query:
    """Return the query for devices that are idle or busy, or for whether these are."""
    s = r.s
    s.has("state", "idle", "busy")
    s.has("ask", "why", "how much", "who")
    s.has("agg", "count")
    s.has("all")
    s.has("topic", "used now", "capacity", "eats")
    if time is not None:  # what is kept of the past is how much they did
        return Query("devices", "util", devices=found, time=time)
    if found and aggregate != "count":
        return Query("devices", "use", devices=found)
    return Query("devices", "use", devices=found, states=(use,), aggregate=aggregate)


def _use_measure(s: Spots, measure: str) -> None:
    for spot in s.spots:
        if spot.means("measure", measure):
            s.use(spot)
    if measure == "mem_free":
        s.has("measure", "mem_used")
        s.has("state", "idle")
        s.has("topic", "eta", "eats")
