"""Read questions that compare two jobs, two devices or two times."""

from __future__ import annotations

import msgspec

from gpudeck.assistant.intents.lexicon import phrases
from gpudeck.assistant.intents.reading import JOB_MEASURES, QueryReader
from gpudeck.assistant.intents.spots import Spots
from gpudeck.assistant.query.request import PREVIOUS, Query
from gpudeck.assistant.query.table import SUBJECTS


def compare(r: QueryReader) -> Query | None:
    s = r.s
    than, bound = s.find("than"), s.find("bound")
    if bound is not None and s.loose(("number", "quantity")):
        return None
    if not s.find("compare") and than is None and bound is None:
        return None
    measure = than.value("than") if than is not None else ""
    if bound is not None:  # "hotter than" is also the beginning of a bound
        s.use(bound)
        words = tuple(s.tokens[i].norm for i in bound.tokens)
        known = (phrases().get(words[:size], ()) for size in range(len(words), 0, -1))
        measure = next((m.value for one in known for m in one if m.kind == "than" and m.value),
                       measure)  # fmt: skip
    loose = s.loose(("number",))
    for noun in ("job", "device"):
        if len(s.targets[noun]) + len(loose) == 2 and loose and s.find("noun", noun):
            s.targets[noun] += [int(s.tokens[i].value) for i in loose]
            s.used.update(loose)
            break
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
    elif len(jobs) == 1:
        jobs = [*r.pronoun_jobs()[:1], *jobs]
    ordinal = s.find("ordinal", "-1")
    if len(jobs) == 1 and ordinal is not None:
        s.use(ordinal)
        _use_comparison(s)
        s.has("measure")
        return Query("jobs", jobs=tuple(jobs), other=Query("jobs", text=PREVIOUS))
    if len(jobs) == 2:
        name = JOB_MEASURES.get(measure, measure)
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
