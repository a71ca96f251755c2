"""Turn what the router model writes into queries and orders.

The model was trained on the routes of `assistant.intents.table`; this is their meaning in the one
table of queries and orders. A retraining would have the model write queries and orders itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from assistant.intents.masks import filled
from assistant.intents.table import Route
from assistant.query.request import NEWEST, Order, Query, Request, Span, Target

_METRICS = {"memory": "mem_used", "clock": "clock_sm", "processes": "holder"}
_UNITS = {"minutes": 60.0, "hours": 3600.0, "days": 86400.0, "weeks": 7 * 86400.0}
_SPANS = {"hour": 3600.0, "day": 86400.0, "week": 7 * 86400.0, "month": 30 * 86400.0}
_STATES = {
    "failed": ("failed", "lost", "rejected"),
    "running": ("running", "starting"),
    "all": (),
}


class _Route:
    """Hold a route with its slots filled."""

    def __init__(self, route: Route, values: Mapping[str, str], now: float) -> None:
        self.values = {name: filled(text, dict(values)) for name, text in route.arguments.items()}
        self.now = now

    def job(self, name: str = "job") -> tuple[Target, ...]:
        value = self.values.get(name)
        if value is None:
            return ()
        return (NEWEST,) if value == "last" else (int(value),) if value.isdecimal() else (value,)

    def devices(self, name: str = "gpu") -> tuple[int, ...]:
        value = self.values.get(name)
        return () if value is None else (_whole(value),)

    def states(self) -> tuple[str, ...]:
        value = self.values.get("state", "all")
        return _STATES.get(value, (value,))

    def metric(self) -> str:
        value = self.values.get("metric", "")
        return _METRICS.get(value, value)

    def span(self) -> Span | None:
        for unit, seconds in _UNITS.items():
            if (count := self.values.get(unit)) is not None:
                return Span(self.now - float(count) * seconds, self.now)
        midnight = datetime.fromtimestamp(self.now).replace(
            hour=0, minute=0, second=0, microsecond=0
        )
        if since := self.values.get("since"):
            return Span(_since(since, midnight, self.now), self.now)
        match self.values.get("period"):
            case None:
                return None
            case "all":
                return Span(0.0, self.now)
            case "today":
                return Span(midnight.timestamp(), self.now)
            case "yesterday":
                return Span((midnight - timedelta(days=1)).timestamp(), midnight.timestamp())
            case "night":
                begin = midnight - timedelta(hours=4)
                return Span(begin.timestamp(), min(begin.timestamp() + 12 * 3600, self.now))
            case "weekend":
                saturday = midnight - timedelta(days=(midnight.weekday() - 5) % 7)
                end = (saturday + timedelta(days=2)).timestamp()
                return Span(saturday.timestamp(), min(end, self.now))
            case str(name):
                return Span(self.now - _SPANS[name], self.now)


def _since(text: str, midnight: datetime, now: float) -> float:
    if len(text) > 5:
        return min(datetime.fromisoformat(text).timestamp(), now)
    hour, minute = map(int, text.split(":"))
    at = midnight + timedelta(hours=hour, minutes=minute)
    return (at if at.timestamp() <= now else at - timedelta(days=1)).timestamp()


def _whole(text: str) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise ValueError(f"{text[:20]!r} is no whole number")
    return int(text)


def _history(r: _Route) -> Request:
    aggregate = r.values.get("stat", "")
    return Query("devices", r.metric(), devices=r.devices(), time=r.span(), aggregate=aggregate)


def _energy(r: _Route) -> Request:
    if r.job():
        return Query("jobs", "energy", jobs=r.job())
    return Query("devices", "energy", devices=r.devices(), time=r.span(), aggregate="sum")


def _compare(r: _Route) -> Request:
    if r.devices():
        other = Query("devices", devices=r.devices("other"))
        return Query("devices", devices=r.devices(), other=other)
    return Query("jobs", jobs=r.job(), other=Query("jobs", jobs=r.job("other") or (NEWEST,)))


def _jobs_order(verb: str) -> Callable[[_Route], Request]:
    return lambda r: Order(verb, jobs=r.job(), states=r.states() if "state" in r.values else ())


def _submit(r: _Route) -> Request:
    gpus = r.values.get("gpus")
    return Order(
        "submit",
        command=r.values.get("command", ""),
        workload=r.values.get("workload", ""),
        gpus=_whole(gpus) if gpus is not None else None,
    )


_MEANINGS: dict[tuple[str, str], Callable[[_Route], Request]] = {
    ("answer", "device"): lambda r: Query("devices", r.metric(), devices=r.devices()),
    ("answer", "history"): _history,
    ("answer", "job"): lambda r: Query("jobs", jobs=r.job() or (NEWEST,)),
    ("answer", "jobs"): lambda r: Query("jobs", states=r.states(), time=r.span()),
    ("answer", "log"): lambda r: Query("jobs", "log", jobs=r.job() or (NEWEST,)),
    ("answer", "waiting"): lambda r: Query(
        "jobs", "reason", jobs=r.job(), states=() if r.job() else ("queued",)
    ),
    ("answer", "queue"): lambda r: Query("queue"),
    ("answer", "energy"): _energy,
    ("answer", "compare"): _compare,
    ("answer", "alerts"): lambda r: Query("alerts"),
    ("answer", "docs"): lambda r: Query("manual"),
    ("answer", "help"): lambda r: Query("help"),
    ("report", "brief"): lambda r: Query("report", time=r.span()),
    ("report", "daily"): lambda r: Query("report", time=r.span()),
    ("report", "job"): lambda r: Query("report", jobs=r.job() or (NEWEST,)),
    ("housekeep", "scan"): lambda r: Query("debris", text=r.values.get("what", "")),
    ("housekeep", "undo"): lambda r: Order("undo"),
    ("operate", "cancel"): _jobs_order("cancel"),
    ("operate", "retry"): _jobs_order("retry"),
    ("operate", "move"): lambda r: Order(
        "move",
        jobs=r.job(),
        place=r.values.get("place", "first"),
        beside=next(iter(r.job("other")), None),
    ),
    ("operate", "submit"): _submit,
    ("operate", "pause"): lambda r: Order("hold" if r.job() else "pause", jobs=r.job()),
    ("operate", "resume"): lambda r: Order("release" if r.job() else "resume", jobs=r.job()),
    ("operate", "kill"): lambda r: Order("kill", number=_whole(r.values.get("pid", "0"))),
}


def request_of(route: Route, values: Mapping[str, str], now: float) -> Request | None:
    """Return the query or order of a route with its slots filled; None for `answer other`.

    Each slot is filled separately, so that no value can add an argument. Raises ValueError.
    """
    meaning = _MEANINGS.get((route.role, route.tool))
    return meaning(_Route(route, values, now)) if meaning is not None else None
