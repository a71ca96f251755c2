"""Turn meanings, as the router model writes them, into queries and orders, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from gpudeck.assistant.intents.slots import Quantity, Value
from gpudeck.assistant.intents.state import State
from gpudeck.assistant.query.conversion import convert, kind_of
from gpudeck.assistant.query.request import COST, NEWEST, Order, Query, Request, Span, Target, Where
from gpudeck.assistant.query.setting_units import in_setting_unit
from gpudeck.assistant.query.table import SUBJECTS, USES, VERBS
from gpudeck.assistant.router.symbols import AND, PLAN, Part, joined, parts

_STATES: dict[str, tuple[str, ...]] = {
    "running": ("running", "starting"),
    "queued": ("queued",),
    "failed": ("failed", "lost", "rejected"),
    "done": ("done", "rejected"),
    "cancelled": ("cancelled",),
    "lost": ("lost",),
    "held": ("held",),
    "ended": ("done", "rejected", "failed", "cancelled", "lost"),
    "active": ("queued", "starting", "running"),
}
_OF_ORDERS = _STATES | {"failed": ("failed", "lost"), "done": ("done",)}
_UNITS = {"temp": "°C", "power": "W", "util": "%", "clock_sm": "MHz"}
_ORDINALS = {"o1": 0, "o2": 1, "o3": 2, "o-1": -1}
_VALUES = {"on": "True", "off": "off"}
_AHEAD_S = {"h": 3600.0, "d": 86400.0, "w": 7 * 86400.0, "mo": 30 * 86400.0, "y": 365 * 86400.0}
"""How long the next hour, day, week, month and year last."""


class Unclear(Exception):
    """The request leaves open what it is about."""


class Meant(NamedTuple):
    """Hold what a request means."""

    requests: tuple[Request, ...] = ()
    refusal: str = ""
    """`negated`, `condition`, `cannot` or `unclear`: why there is no query or order."""
    plan: bool = False
    """The effect of the order is asked for; it is not to be proposed."""
    resolved: tuple[str, ...] = ()
    """What `it` and `the second one` stand for."""


def meant(meaning: str, slots: Mapping[str, Value], state: State, now: float) -> Meant:
    """Return what a meaning asks for.

    Raises:
        Unclear: It is about what was said before, and nothing was.
        ValueError: A slot is of the wrong kind.
    """
    if meaning.startswith("no:"):
        return Meant(refusal=meaning.removeprefix("no:"))
    found: list[Request] = []
    resolved: list[str] = []
    for side in meaning.split(f" {AND} "):
        reader = _Side(side.removeprefix(f"{PLAN} "), slots, state, now)
        found.append(reader.request())
        resolved += reader.resolved
    if len(found) == 2 and all(isinstance(one, Order) for one in found):
        found = [msgspec.structs.replace(found[0], then=found[1])]
    return Meant(tuple(found), plan=meaning.startswith(PLAN), resolved=tuple(resolved))


class _Side:
    """Read one query or order."""

    def __init__(self, side: str, slots: Mapping[str, Value], state: State, now: float) -> None:
        self.subject, self.parts = side.split(maxsplit=1)[0], parts(side)
        self.kinds = {kind for kind, _ in self.parts}
        self.slots, self.state, self.now = slots, state, now
        self.resolved: list[str] = []

    def request(self) -> Request:
        """Return the query or the order."""
        if self.subject.startswith("do:"):
            return self._order(self.subject.removeprefix("do:"))
        reader = {"conversion": self._conversion, "manual": self._manual}.get(self.subject)
        query = reader() if reader else self._query()
        return (
            _compared(query, self._jobs_of(), self._devices_of()) if "vs" in self.kinds else query
        )

    # ---- values

    def value(self, kind: str) -> str:
        """Return the value of the first part of a kind."""
        return next((value for name, value in self.parts if name == kind), "")

    def slot(self, kind: str) -> Value | None:
        """Return what the slot of a part stands for."""
        name = self.value(kind)
        return self.slots[name] if name and name != "prev" else None

    def numbers(self, kind: str) -> tuple[int, ...]:
        """Return the whole numbers of a part."""
        return _whole(self.slot(kind))

    def number(self, kind: str) -> int:
        """Return the number of a part, or 0."""
        return (*self.numbers(kind), 0)[0]

    def _jobs_of(self) -> list[tuple[Target, ...]]:
        """Return the targets of each part that names jobs."""
        return [self._named(value) for kind, value in self.parts if kind == "job:"]

    def _named(self, name: str) -> tuple[Target, ...]:
        if name != "prev":
            value = self.slots[name]
            return _texts(value) if name[0] in "jg" else _whole(value)
        jobs = self.state.jobs
        if not jobs:
            raise Unclear
        for ordinal, place in _ORDINALS.items():
            if ordinal in self.kinds:
                if place >= len(jobs):
                    raise Unclear
                jobs = (max(jobs),) if place < 0 else (jobs[place],)
        if count := self.number("first:"):
            jobs = tuple(sorted(jobs))[:count]
        if count := self.number("last:"):
            jobs = tuple(sorted(jobs))[-count:]
        if step := self.value("step"):
            jobs = (max(1, jobs[0] + int(step)),)
        self.resolved += [f"job {job}" for job in jobs]
        return jobs

    def jobs(self) -> tuple[Target, ...]:
        """Return the jobs that are named, or that the last request was about."""
        found = [job for each in self._jobs_of() for job in each]
        return tuple(dict.fromkeys(found))

    def _devices_of(self) -> list[tuple[int, ...]]:
        return [self._indices(value) for kind, value in self.parts if kind == "dev:"]

    def _indices(self, name: str) -> tuple[int, ...]:
        if name != "prev":
            return _whole(self.slots[name])
        last = self.state.last
        found = self.state.devices or (last.devices if last else ())
        if self.kinds & {"who", "vs"} and len(found) < 2:
            found = (*self.state.earlier, *found)
        if step := self.value("step"):
            found = tuple(max(0, index + int(step)) for index in found)
        self.resolved += [f"GPU {index}" for index in found]
        return found

    def devices(self) -> tuple[int, ...]:
        """Return the GPUs that are named, or that the last request was about."""
        return tuple(dict.fromkeys(i for each in self._devices_of() for i in each))

    def time(self) -> Span | None:
        """Return the time that is asked about."""
        if "since" in self.kinds:
            return Span(0.0, self.now)
        name = self.value("time:")
        if name == "prev":
            return self.state.last.time if self.state.last else None
        found = self.slots[name] if name else None
        return found if isinstance(found, Span) else None

    def group(self) -> str:
        """Return the group that is named, or that the last request was about."""
        name = self.value("group:")
        if name == "prev":
            if not self.state.group:
                raise Unclear
            return self.state.group
        found = self.slots[name] if name else ""
        return found if isinstance(found, str) else ""

    def amount(self, kind: str, unit: str) -> float:
        """Return the quantity of a part in a unit, or 0."""
        found = self.slot(kind)
        if isinstance(found, Quantity):
            fits = kind_of(found.unit) and kind_of(found.unit) == kind_of(unit)
            return convert(found.value, found.unit, unit) if fits else found.value
        return float(found[0]) if isinstance(found, tuple) and found else 0.0

    # ---- queries

    def _query(self) -> Query:
        measure, subject = self.value("m"), self.subject
        states = self.value("s")
        if subject == "devices":
            known: tuple[str, ...] = (states,) if states in USES else ()
        else:
            known = _STATES.get(states, ())
        aggregate = self.value("a")
        query = Query(
            subject,
            measure,
            devices=self.devices(),
            jobs=self.jobs() if "vs" not in self.kinds else (),
            states=known,
            group=self.group(),
            where=self._where(measure),
            time=None if "ahead" in self.kinds else self.time(),
            aggregate=aggregate,
            extreme="who" in self.kinds,
            when="when" in self.kinds,
            by=self.value("by"),
            order="down" if "sort" in self.kinds else "",
            limit=self.number("limit:"),
            gpus=self.number("gpus:"),
            amount=self._wanted() if subject == "capacity" else 0.0,
            to=self.value("to"),
            tag=_text(self.slot("tag:")),
            ahead=self._ahead(),
            text=self._text(),
        )
        return _settled(query, self.now)

    def _wanted(self) -> float:
        """Return the bytes that a job needs; a bare number is in GB."""
        found, bare = self.amount("amount:", "B"), not isinstance(self.slot("amount:"), Quantity)
        return convert(found, "GB", "B") if bare else found

    def _ahead(self) -> float:
        """Return how many seconds from now on are asked about."""
        if self.value("ahead") != "span":
            return _AHEAD_S.get(self.value("ahead"), 0.0)
        if "amount:" in self.kinds:
            return self.amount("amount:", "s")
        time = self.time()
        if time is None:
            raise ValueError("no time ahead")
        length = (time.since - self.now) % 86400.0 if time.point else time.until - time.since
        return length

    def _text(self) -> str:
        if "cost" in self.kinds:
            return COST
        if self.subject == "settings":
            return self.value("set")
        if self.subject == "report":
            return "pdf" if "pdf" in self.kinds else ""
        if self.subject == "processes" and "number:" in self.kinds:
            return str(self.number("number:"))
        found = self.slot("text:")
        return found if isinstance(found, str) else ""

    def _where(self, measure: str) -> tuple[Where, ...]:
        unit = _UNITS.get(measure, "B" if measure.startswith("mem") else "")
        default = "GB" if unit == "B" else unit
        found: list[Where] = []
        for kind in ("above:", "below:"):
            if kind in self.kinds and self.value(kind) != "prev":
                bare = not isinstance(self.slot(kind), Quantity)
                value = self.amount(kind, unit)
                value = convert(value, default, unit) if bare and unit == "B" else value
                found.append(Where(measure, **{kind[:-1]: value}))
        return tuple(found)

    def _conversion(self) -> Query:
        slots = [self.slots[value] for kind, value in self.parts if kind == "amount:"]
        amounts = [slot for slot in slots if isinstance(slot, Quantity)]
        to = self.value("to")
        if len(amounts) == 1:
            return Query("conversion", amount=amounts[0].value, unit=amounts[0].unit, to=to)
        if sorted(kind_of(one.unit) for one in amounts) != ["power", "time"]:
            raise ValueError("not a power and a time")
        watts, seconds = (
            next(convert(one.value, one.unit, unit) for one in amounts
                 if kind_of(one.unit) == kind_of(unit)) for unit in ("W", "s")
        )  # fmt: skip
        return Query("conversion", amount=watts * seconds, unit="J", to=to)

    def _manual(self) -> Query:
        what = [value for kind, value in self.parts if kind == "what"]
        other = Query("manual", f"what {what[1]}") if len(what) > 1 else None
        measure = self.value("how")
        if what:
            measure = f"what {what[0]}"
        elif guide := self.value("guide"):
            measure = f"how {guide}"
        return Query("manual", measure, other=other)

    # ---- orders

    def _order(self, verb: str) -> Order:
        takes = VERBS[verb].takes
        states = _OF_ORDERS.get(self.value("s"), ())
        if self.value("s") == "active":
            states = VERBS[verb].states
        exclude = [
            target for kind, value in self.parts if kind == "exc:" for target in self._named(value)
        ]
        jobs = (NEWEST,) if self.value("a") == "last" else self.jobs()
        group = self.group()
        order = Order(
            verb,
            jobs=jobs,
            states=states,
            group=group,
            exclude=tuple(exclude),
            devices=self.devices(),
            place=self.value("place"),
            beside=next(iter(self._named(self.value("beside:"))), None)
            if self.value("beside:")
            else None,
            command=_text(self.slot("command:")),
            workload=self.value("workload"),
            options=self._options(),
            number=self.number("number:") if "number:" in self.kinds else None,
            setting=self.value("set"),
            text=self._value()
            if verb == "set"
            else _text(self.slot("text:") or self.slot("name:")),
            take=(self.number("first:") or -self.number("last:")) if group else 0,
            leave=(self.number("notfirst:") or -self.number("notlast:")),
            one="one" in self.kinds,
        )
        if exclude and not (jobs or states or group):
            raise Unclear
        unplaced = [
            name for name in ("devices", "group") if getattr(order, name) and name not in takes
        ]
        if unplaced and verb != "submit":  # whose request is read again
            raise ValueError(f"{verb} takes no {unplaced[0]}")
        return order

    def _options(self) -> dict[str, str]:
        """Return what is said about a new job; the whole request is read again for it."""
        memory = round(self.amount("mem:", "B"))
        found = {"gpus": str(self.number("gpus:"))} if "gpus:" in self.kinds else {}
        return found | ({"memory": str(memory)} if memory else {})

    def _value(self) -> str:
        found = self.slot("value:")
        if found is None:
            return _VALUES.get(self.value("value"), self.value("value"))
        name = self.value("set")
        if isinstance(found, Quantity):
            value = in_setting_unit(name, found.value, found.unit)
            if value is None:
                raise ValueError(f"{name} is not in {found.unit}")
            return f"{value:g}"
        return f"{float(found[0]):g}" if isinstance(found, tuple) and found else ""


def _whole(value: Value | None) -> tuple[int, ...]:
    """Return whole numbers. Raises ValueError for fractions and words."""
    if not isinstance(value, tuple) or isinstance(value, Quantity | Span):
        return ()
    if any(isinstance(each, str) or each % 1 for each in value):
        raise ValueError("not whole numbers")
    return tuple(int(each) for each in value)


def _texts(value: Value) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(map(str, value))  # type: ignore[arg-type]


def _text(value: Value | None) -> str:
    return value if isinstance(value, str) else ""


def _settled(query: Query, now: float) -> Query:
    """Return a query in the form that the rules give it as well."""
    replace = msgspec.structs.replace
    if query.subject == "overview" and query.time is not None:
        return Query("report", time=query.time)
    if query.subject == "devices" and query.when and query.time is None:
        query = replace(query, time=Span(now - 86400.0, now))
    if query.subject == "jobs":
        one = len(query.jobs) == 1 and isinstance(query.jobs[0], str)
        if one and query.extreme:
            query = replace(query, jobs=(), text=str(query.jobs[0]))
        if query.aggregate == "last" and not query.limit:
            query = replace(query, limit=1)
        elif query.aggregate == "last":
            query = replace(query, aggregate="")
        if query.measure in _OF_MEASURE and not (
            query.jobs or query.states or query.group or query.text
        ):
            query = replace(query, states=_STATES[_OF_MEASURE[query.measure]])
    if query.measure == "energy" and query.subject == "devices" and len(query.devices) != 1:
        query = replace(query, aggregate=query.aggregate or "sum")
    return query


_OF_MEASURE = {"estimate": "running", "progress": "running", "stall": "running"}
"""The jobs that are meant where none is named."""


def _compared(
    query: Query, jobs: Sequence[tuple[Target, ...]], devices: Sequence[tuple[int, ...]]
) -> Query:
    """Return a comparison of two sides, or the query for all of more than two."""
    replace = msgspec.structs.replace
    plain = replace(query, devices=(), jobs=())
    if query.subject == "devices":
        each = [(i,) for side in devices for i in side]
        if len(each) == 2:
            other = replace(plain, devices=each[1])
            return replace(plain, devices=each[0], other=other)
        return query
    found = [job for side in jobs for job in side]
    if len(found) == 2:
        return replace(plain, jobs=(found[0],), other=replace(plain, jobs=(found[1],)))
    if len(found) == 1 and isinstance(found[0], str):
        return replace(plain, text=found[0])
    return replace(query, jobs=tuple(found))


# ---- and back


def described(request: Request | None, state: State) -> str:
    """Return the last request as a meaning without slots, with what its answer named."""
    if request is None:
        return ""
    meaning = _order_parts(request) if isinstance(request, Order) else _query_parts(request)
    if isinstance(request, Order) or request.subject in ("jobs", "report"):
        answer = "jobs" if len(state.jobs) > 1 else "one job" if state.jobs else ""
    else:
        found = state.devices or request.devices
        answer = "gpus" if len(found) > 1 else "one gpu" if found else ""
    return f"{meaning} ; {answer}" if answer else meaning


def _query_parts(query: Query) -> str:
    found: list[Part] = []
    for kind, value in (
        ("m", query.measure),
        ("a", query.aggregate),
        ("by", query.by),
        ("to", query.to),
    ):
        if value and not value.startswith(("what ", "how ")):
            found.append((kind, value))
    names = {states: name for name, states in reversed(_STATES.items())}
    if query.states:
        found.append(
            (
                "s",
                query.states[0]
                if query.subject == "devices"
                else names.get(query.states, "active"),
            )
        )
    for kind, there in (
        ("who", query.extreme), ("when", query.when), ("sort", bool(query.order)),
        ("vs", query.other is not None), ("dev:", bool(query.devices)),
        ("job:", bool(query.jobs or (query.subject == "jobs" and query.text))),
        ("group:", bool(query.group)), ("limit:", query.limit > 1),
        ("since", query.time is not None and not query.time.since),
        ("time:", query.time is not None and bool(query.time.since)),
    ):  # fmt: skip
        if there:
            found.append((kind, ""))
    if query.subject == "settings" and query.text:
        found.append(("set", query.text))
    if query.subject not in SUBJECTS or query.subject == "manual":
        return query.subject
    return joined(query.subject, found)


def _order_parts(order: Order) -> str:
    found: list[Part] = []
    names = {states: name for name, states in reversed(_OF_ORDERS.items())}
    if order.states:
        found.append(("s", names.get(order.states, "active")))
    for kind, there in (
        ("job:", bool(order.jobs)), ("group:", bool(order.group)), ("exc:", bool(order.exclude)),
        ("dev:", bool(order.devices)), ("number:", order.number is not None),
    ):  # fmt: skip
        if there:
            found.append((kind, ""))
    if order.setting:
        found.append(("set", order.setting))
    return joined(f"do:{order.verb}", found)
