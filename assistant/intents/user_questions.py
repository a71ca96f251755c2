"""Read questions about the users of jobs, and about the GPU hours that jobs held."""

from __future__ import annotations

import msgspec

from gpudeck.assistant.intents.job_questions import job_question, jobs
from gpudeck.assistant.intents.reading import JOB_STATES, QueryReader, states
from gpudeck.assistant.intents.spots import Spot, Spots
from gpudeck.assistant.query.request import Query

_OF_PROCESSES = ("mem_used", "util")
"""Measures that processes have for users, and ended jobs do not."""
_MOMENTS = ("start", "end", "submitted")
_WHO = frozenset({"who", "whose", "wer", "wem", "wessen", "qui", "a", "quien", "quienes"})
_EACH = frozenset({"per", "by", "each", "every", "pro", "je", "jeder", "jede", "nach", "par",
                   "chaque", "por", "cada"})  # fmt: skip


def user_question(r: QueryReader) -> Query | None:
    """Read what a user ran or used, what each did, and how many GPU hours that took."""
    s = r.s
    if (asked := _whose(r)) is not None:
        return asked
    if (each := _each_uses(r)) is not None:
        return each
    hours, grouped = s.find("measure", "gpu_hours"), _grouped(r)
    if not (s.person.name or hours or grouped) or s.find("noun", "process"):
        return None
    if s.person.name and not hours and any(s.find("measure", one) for one in _OF_PROCESSES):
        return None  # memory that is used now
    s.has("noun", "device", "user")
    s.has("measure", "holder")
    s.has("ask", "who", "how long", "how much")
    found = job_question(r) or jobs(r) or _ran(r)
    if found.measure in _MOMENTS and not any(spot.means("state") for spot in s.spots):
        found = msgspec.structs.replace(found, states=(), aggregate="last")
    if s.find("agg", "count") and s.find("noun", "device") and not hours and not found.measure:
        found = msgspec.structs.replace(found, measure="gpus", states=JOB_STATES["running"],
                                        aggregate="sum")  # fmt: skip
    if grouped:
        aggregate = found.aggregate if found.aggregate in ("max", "min") else ""
        extreme = bool(aggregate)
        found = msgspec.structs.replace(found, by="user", aggregate=aggregate, extreme=extreme)
    s.used |= s.person.places
    s.has("topic", "used now", "consumed", "start", "status", "eats")
    return msgspec.structs.replace(found, user=s.person.name)


def _each_uses(r: QueryReader) -> Query | None:
    """Read `gpu memory by user`: what the processes of each user use now."""
    s = r.s
    each = {i for i, token in enumerate(s.tokens) if token.norm in _EACH}
    measure = "memory" if s.find("measure", "mem_used") else "util"
    if not each or not s.find("noun", "user") or s.find("noun", "job") or s.time is not None:
        return None
    if not s.has("measure", "mem_used", "util"):
        return None
    s.used |= each
    s.has("noun", "device", "user", "process")
    return Query("processes", measure, by="user")


def _who(s: Spots) -> Spot | None:
    """Return the word that asks for a person."""
    holder = s.find("measure", "holder")
    asks = holder is not None and s.tokens[holder.first].norm in _WHO
    return s.find("ask", "who") or (holder if asks else None)


def _whose(r: QueryReader) -> Query | None:
    """Read `whose job is 7` and `who submitted it`."""
    s = r.s
    if _who(s) is None or s.find("noun", "process"):
        return None
    then = bool(s.targets["device"]) and s.time is not None  # "who used gpu 0 an hour ago"
    numbers = () if s.targets["device"] else r.jobs() or (
        r.lone_job() if s.find("noun", "job") else ())  # fmt: skip
    if not numbers and not then:
        return None
    s.has("noun", "job", "user", "device")
    s.has("ask", "who")
    s.has("measure", "holder")
    s.has("topic", "submitted", "start", "used now")
    s.has("state", "running", "ended")
    devices = r.devices() if then else ()
    return Query("jobs", "user", jobs=numbers, devices=devices, time=r.time())


def _grouped(r: QueryReader) -> bool:
    """Return whether each user is asked for, or the one with the most."""
    s = r.s
    about = s.find("noun", "job") or s.find("measure", "gpu_hours") or s.find("measure", "energy")
    who = s.find("noun", "user") or _who(s)
    if about is None or who is None or s.person.name or s.targets["job"]:
        return False
    most = any(spot.means("super") for spot in s.spots)
    each = {i for i, token in enumerate(s.tokens) if token.norm in _EACH}
    s.used |= each if each and not most else set()
    return most or bool(each)


def _ran(r: QueryReader) -> Query:
    """Return the question of `what did bob run yesterday`."""
    return Query("jobs", states=states(r), time=r.time())
