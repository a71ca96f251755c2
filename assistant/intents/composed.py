"""Make queries and orders of what the reader found, with the values of their letters.

A time, a job or a number that cannot be read makes it no request at all: nothing is answered for
another time, and nothing is proposed for another target.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from gpudeck.assistant.intents.moments import LENGTH, length_of, moment_of, number_of
from gpudeck.assistant.intents.spots import Known
from gpudeck.assistant.intents.state import State
from gpudeck.assistant.intents.times import read_time
from gpudeck.assistant.intents.tokens import tokens
from gpudeck.assistant.query.conversion import convert, kind_of
from gpudeck.assistant.query.request import COST, NEWEST, Order, Query, Request, Span, Target, Where
from gpudeck.assistant.query.table import SUBJECTS, VERBS
from gpudeck.assistant.reader.reading import Reading

_MOST_GPUS = 64
DEVICE_FIELDS = {
    "use": "use", "util": "util", "memory_used": "mem_used", "memory_free": "mem_free",
    "memory_total": "mem_total", "temperature": "temp", "memory_temperature": "temp_mem",
    "power": "power", "power_limit": "power_limit", "energy": "energy", "cost": "energy",
    "clock": "clock_sm", "fan": "fan", "rate": "tflops", "bandwidth": "bandwidth",
    "slowed": "throttle", "health": "health", "link": "pcie_gen", "model": "name",
    "driver": "driver", "holder": "holder", "flops_per_watt": "flops_per_watt", "cpu": "util",
}  # fmt: skip
JOB_FIELDS = {
    "state": "state", "why_waiting": "reason", "why_failed": "failure", "progress": "progress",
    "time_left": "estimate", "start": "start", "end": "end", "duration": "duration",
    "waited": "waited", "submitted": "submitted", "user": "user", "command": "command",
    "output": "log", "files": "files", "memory": "memory", "util": "util", "rate": "tflops",
    "energy": "energy", "gpu_hours": "gpu_hours", "gpus": "devices", "priority": "priority",
    "stuck": "stall", "tags": "tags",
}  # fmt: skip
_PROCESSES = {"memory": "memory", "util": "util", "user": "user", "job": "job", "command": "memory",
              "pid": "memory"}  # fmt: skip
_STATES = {
    "running": ("running", "starting"), "queued": ("queued",), "done": ("done",),
    "failed": ("failed", "lost", "rejected"), "cancelled": ("cancelled",), "lost": ("lost",),
    "held": ("held",),
}  # fmt: skip
_ORDINALS = {"@first": 0, "@second": 1, "@third": 2}
_VERBS = {"cancel": "cancel", "retry": "retry", "kill": "kill", "drain": "drain",
          "undrain": "undrain", "limit": "limit", "book": "book", "note": "note", "undo": "undo",
          "edit": "edit", "move": "move", "acknowledge": "acknowledge", "free": "free"}  # fmt: skip


class Unread(Exception):
    """A part of the request has no value here; the words say which."""


class Composed(NamedTuple):
    """Hold the request that a reading stands for."""

    request: Request
    also: tuple[Query, ...] = ()
    """The same question about other measures."""
    resolved: tuple[str, ...] = ()
    """What its pronouns stand for."""


def compose(found: Reading, head: str, known: Known, state: State, now: float) -> Composed:
    """Return the request of a reading with one of its heads.

    Raises:
        Unread: A part of it has no value, or the table has no such query or order.
    """
    return _Composer(found, known, state, now).read(*head.split(" ", 1))


class _Composer:
    def __init__(self, found: Reading, known: Known, state: State, now: float) -> None:
        self.found, self.known, self.state, self.now = found, known, state, now
        self.resolved: list[str] = []

    def read(self, kind: str, name: str = "") -> Composed:
        """Return the request with this head."""
        if (kind, name) == ("order", "report"):
            return Composed(Query("report", jobs=self.jobs(), time=self.time()))
        if (kind, name) == ("order", "clean"):
            return Composed(Query("debris"))
        if kind == "order":
            return Composed(self._order(name), resolved=tuple(self.resolved))
        reader: dict[str, Callable[[], list[Query]]] = {
            "gpus": self._gpus, "jobs": self._jobs, "processes": self._processes,
            "alerts": self._alerts, "queue": lambda: [Query("queue", group=self.group())],
            "users": self._users, "capacity": self._capacity, "settings": self._settings,
            "models": self._models, "overview": lambda: [self._overview()],
            "disk": lambda: [Query("debris")], "log_search": self._log_search,
            "bookings": lambda: [Query("bookings")], "machines": lambda: [Query("machines")],
        }  # fmt: skip
        if kind != "ask" or name not in reader:
            raise Unread(name or kind)
        first, *rest = reader[name]()
        return Composed(first, tuple(rest), tuple(self.resolved))

    # ---- parts

    def letters(self, field: str) -> list[str]:
        return [letters.strip() for name, letters in self.found.spans if name == field]

    def marked(self, field: str) -> list[str]:
        start = f"{field}="
        return [mark.removeprefix(start) for mark in self.found.marks if mark.startswith(start)]

    def jobs(self, field: str = "jobs") -> tuple[Target, ...]:
        """Return the jobs that are named or pointed to."""
        named = [job for letters in self.letters(field) for job in self._named(letters)]
        for mark in self.marked(field):
            named += self._pointed(mark)
        return tuple(dict.fromkeys(named))

    def _named(self, letters: str) -> list[Target]:
        found = [token for token in tokens(letters) if token.kind in ("number", "range")]
        names = {name.casefold(): name for name in self.known.jobs}
        if letters.casefold() in names:
            return [names[letters.casefold()]]
        if found and all(token.kind in ("number", "range", "word") for token in tokens(letters)):
            return [n for token in found for n in token.whole_numbers()]
        near = [name for low, name in names.items() if low in letters.casefold()
                or letters.casefold() in low]  # fmt: skip
        if len(near) == 1:
            return [near[0]]
        raise Unread(letters)

    def _pointed(self, mark: str) -> list[Target]:
        jobs = self.state.jobs
        if mark == "@newest":
            return [NEWEST]
        if mark in ("@all", "@oldest"):
            if mark == "@all":
                return []
            raise Unread("")
        if mark == "@last" and not jobs:
            return [NEWEST]
        if not jobs:
            raise Unread("")
        place = _ORDINALS.get(mark, -1 if mark == "@last" else None)
        if place is not None and place >= len(jobs):
            raise Unread("")
        chosen = list(jobs) if place is None else [jobs[place]]
        if mark == "@it" and len(chosen) > 1:
            raise Unread("")
        self.resolved += [f"job {job}" for job in chosen]
        return list(chosen)

    def devices(self) -> tuple[int, ...]:
        """Return the GPUs that are named or pointed to; a model's name names none."""
        found: list[int] = []
        for letters in self.letters("gpus"):
            for token in tokens(letters):
                if token.kind in ("number", "range"):
                    found += [n for n in token.whole_numbers() if n < _MOST_GPUS]
        if not found and {"@it", "@them"} & set(self.marked("gpus")):
            found += self.state.devices
            self.resolved += [f"GPU {index}" for index in found]
        return tuple(dict.fromkeys(found))

    def time(self, field: str = "time") -> Span | None:
        """Return the time that is asked about."""
        if letters := " ".join(self.letters(field)):
            found = read_time(tokens(letters), self.now)
            if found is None:
                raise Unread(letters)
            return found.span
        if "@same" in self.marked(field):
            return self.state.last.time if self.state.last else None
        return None

    def group(self) -> str:
        letters = self.letters("group")
        if "@it" in self.marked("group"):
            return self.state.group
        return letters[0] if letters else ""

    def user(self) -> str:
        if letters := self.letters("user"):
            low = {name.casefold(): name for name in self.known.users}
            return low.get(letters[0].casefold(), letters[0])
        return self.known.me if "@me" in self.marked("user") else ""

    def number(self, field: str) -> int | None:
        letters = self.letters(field)
        if not letters:
            return None
        text = number_of(letters[0])
        if not re.fullmatch(r"-?\d+", text):
            raise Unread(letters[0])
        return int(text)

    def size(self, field: str) -> float:
        """Return bytes; a bare number is in GB."""
        letters = self.letters(field)
        if not letters:
            return 0.0
        found = next((t for t in tokens(letters[0]) if t.kind in ("quantity", "number")), None)
        if found is None or (found.unit and kind_of(found.unit) != "size"):
            raise Unread(letters[0])
        return convert(found.value, found.unit or "GB", "B")

    def states(self) -> tuple[str, ...]:
        return tuple(state for mark in self.marked("states") for state in _STATES.get(mark, ()))

    def measures(self, table: dict[str, str]) -> list[str]:
        """Return the measures that are asked for. Raises Unread for one that nobody measures."""
        found = [table.get(name, "") for name in sorted(self.marked("measure"))]
        if self.marked("measure") and not any(found):
            raise Unread(", ".join(self.marked("measure")))
        return list(dict.fromkeys(filter(None, found))) or [""]

    def _shaped(self, query: Query) -> Query:
        """Return a query with its aggregate, order, bounds and limit."""
        which, combine = self.marked("which"), self.marked("combine")
        changes: dict[str, object] = {}
        if which and which[0] in ("highest", "lowest"):
            changes = {"aggregate": "max" if which[0] == "highest" else "min", "extreme": True}
        elif which:
            changes = {"aggregate": "last" if which[0] == "newest" else "first", "limit": 1}
        elif combine:
            changes = {"aggregate": combine[0]}
        if limit := self.number("limit"):
            changes |= {"limit": limit, "order": "down" if query.measure else ""}
            changes.pop("extreme", None)
        if self.marked("when"):
            changes["when"] = True
        bounds = [
            Where(query.measure, **{field: self._bound(query, field)})
            for field in ("above", "below") if self.letters(field)
        ]  # fmt: skip
        if bounds and not query.measure:
            raise Unread(" ".join((*self.letters("above"), *self.letters("below"))))
        return msgspec.structs.replace(query, where=tuple(bounds), **changes)

    def _bound(self, query: Query, field: str) -> float:
        letters = self.letters(field)[0]
        token = next((t for t in tokens(letters) if t.kind in ("number", "quantity")), None)
        if token is None:
            raise Unread(letters)
        unit = SUBJECTS[query.subject].measures[query.measure].unit
        if token.unit and kind_of(token.unit) and kind_of(token.unit) == kind_of(unit):
            return convert(token.value, token.unit, unit)
        return convert(token.value, "GB", "B") if unit == "B" else token.value

    def _refuse(self, *fields: str) -> None:
        """Raise Unread if the request has one of these parts, which has no place in the query."""
        for field in fields:
            if self.letters(field) or self.marked(field):
                raise Unread(" ".join(self.letters(field)) or field)

    # ---- questions

    def _gpus(self) -> list[Query]:
        self._refuse("time2", "user", "group")
        span, found = self.time(), []
        if self.letters("ahead") or self.jobs():
            raise Unread(" ".join(self.letters("ahead")) or "jobs")
        for measure in self.measures(DEVICE_FIELDS):
            cost = "cost" in self.marked("measure") and measure == "energy"
            use = [s for s in self.marked("states") if s in ("idle", "busy")]
            query = Query("devices", measure, devices=self.devices(), time=span,
                          states=tuple(use[:1]), text=COST if cost else "")  # fmt: skip
            if span is not None and not SUBJECTS["devices"].measures[measure or "util"].history:
                raise Unread(measure)
            found.append(self._shaped(query))
        return [self._compared(one) for one in found]

    def _compared(self, query: Query) -> Query:
        if not self.marked("compare"):
            return query
        sides = query.devices if query.subject == "devices" else query.jobs
        if self.marked("compare") != ["each"] or len(sides) != 2:
            raise Unread("compare")
        field = "devices" if query.subject == "devices" else "jobs"
        other = msgspec.structs.replace(query, **{field: sides[1:]})
        return msgspec.structs.replace(query, **{field: sides[:1], "other": other})

    def _jobs(self) -> list[Query]:
        self._refuse("time2", "ahead", "except", "words", "by")
        jobs = self.jobs()
        found = [
            Query("jobs", measure, jobs=jobs, states=() if jobs else self.states(),
                  user=self.user(), group=self.group(), time=self.time(),
                  devices=self.devices() if not jobs else (),
                  tag=(self.letters("tag") or [""])[0])
            for measure in self.measures(JOB_FIELDS)
        ]  # fmt: skip
        return [self._compared(self._shaped(one)) for one in found]

    def _processes(self) -> list[Query]:
        self._refuse("time", "time2", "jobs")
        pid = self.letters("pid")
        if pid and not pid[0].isdecimal():
            raise Unread(pid[0])
        (measure, *_) = self.measures(_PROCESSES)
        query = Query("processes", measure, devices=self.devices(), user=self.user(),
                      text=pid[0] if pid else "")  # fmt: skip
        return [self._shaped(query)]

    def _users(self) -> list[Query]:
        self._refuse("time2", "ahead", "limit", "above", "below")
        table = {"gpu_hours": "gpu_hours", "energy": "energy", "jobs": "", "gpus": "gpu_hours",
                 "limits": "limits"}  # fmt: skip
        (measure, *_) = self.measures(table) if self.marked("measure") != ["jobs"] else [""]
        if measure == "limits":
            return [Query("queue")]
        user = self.user()
        query = Query("jobs", measure, user=user, time=self.time(), by="" if user else "user",
                      aggregate="sum" if user and measure else "count" if user else "")  # fmt: skip
        return [query]

    def _alerts(self) -> list[Query]:
        measure = "rules" if "thresholds" in self.marked("measure") else ""
        return [Query("alerts", measure, devices=self.devices(), jobs=self.jobs(),
                      time=self.time())]  # fmt: skip

    def _capacity(self) -> list[Query]:
        self._refuse("gpu_type")
        return [Query("capacity", gpus=self.number("count") or 0, amount=self.size("memory"),
                      limit=self.number("limit") or 0)]  # fmt: skip

    def _settings(self) -> list[Query]:
        raise Unread(" ".join(self.letters("setting")))

    def _models(self) -> list[Query]:
        asked = self.marked("measure")
        if "speed" in asked or "other" in asked:
            raise Unread(", ".join(asked))
        measure = "served" if "served" in asked else "largest" if "fits" in asked else ""
        return [Query("models", measure)]

    def _overview(self) -> Query:
        span = self.time()
        return Query("report", time=span) if span is not None else Query("overview")

    def _log_search(self) -> list[Query]:
        words = " ".join(self.letters("words"))
        if not words:
            raise Unread("")
        return [Query("logs", jobs=self.jobs(), text=words)]

    # ---- orders

    def _order(self, name: str) -> Order:
        self._refuse("at", "if")
        if name == "pause":
            name = self._pausing("hold", "pause")
        elif name == "resume":
            name = self._pausing("release", "resume")
        verb = name if name in ("hold", "release", "pause", "resume") else _VERBS.get(name, "")
        if not verb:
            raise Unread(name)
        order = Order(
            verb, jobs=self.jobs(), group=self.group(), exclude=self.jobs("except"),
            states=self.states(), devices=self._gpus_of_order(verb), options=self._options(verb),
            place=(self.marked("place") or [""])[0] if verb == "move" else "",
            beside=next(iter(self.jobs("beside")), None) if verb == "move" else None,
            number=self.number("number") if verb == "limit" else self._pid(verb),
            text=" ".join(self.letters("notes")) if verb == "note" else "",
        )  # fmt: skip
        everything = "@all" in self.marked("jobs")
        if everything and not (order.states or order.group):
            order = msgspec.structs.replace(order, states=VERBS[verb].states)
        if order.place in ("up", "down") or (self.user() and verb != "kill"):
            raise Unread(self.user())
        for field in ("devices", "group", "states", "jobs"):
            if getattr(order, field) and field not in VERBS[verb].takes:
                raise Unread(field)
        return order

    def _pausing(self, jobs: str, queue: str) -> str:
        self._refuse("gpus", "until", "duration")
        named = self.letters("jobs") or self.marked("jobs") or self.marked("states")
        return jobs if named else queue

    def _gpus_of_order(self, verb: str) -> tuple[int, ...]:
        named = [letters for letters in self.letters("gpus") if not re.search(r"\d", letters)]
        if named and verb in ("drain", "undrain", "book", "free"):
            raise Unread(named[0])
        if verb == "free" and not self.letters("gpus"):
            raise Unread("gpus")  # a program is meant
        return self.devices() if "devices" in VERBS[verb].takes else ()

    def _pid(self, verb: str) -> int | None:
        pid = self.letters("pid")
        if verb != "kill" or not pid:
            return None
        if not pid[0].isdecimal():
            raise Unread(pid[0])
        return int(pid[0])

    def _options(self, verb: str) -> dict[str, str]:
        """Return the options of a job, as the command line takes them."""
        if verb == "free":
            self._refuse("from", "group")
        if verb in ("book", "free"):
            return self._booking()
        if verb not in ("retry", "edit"):
            return {}
        self._refuse("change", "command", "workload", "array", "folder", "cpus", "host_memory",
                     "gpu_type", "notes")  # fmt: skip
        found: dict[str, str] = {}
        for field, option in (("count", "gpus"), ("retries", "retries"), ("priority", "priority")):
            if (number := self.number(field)) is not None:
                found[option] = str(number)
        if self.letters("memory"):
            found["memory"] = f"{self.size('memory'):.0f}"
        for field, option in (("timeout", "timeout"), ("duration", "timeout")):
            if letters := self.letters(field):
                found[option] = self._length(letters[0])
        if letters := self.letters("begin"):
            found["begin"] = self._moment(letters[0])
        if letters := self.letters("name"):
            found["name"] = letters[0]
        return found

    def _booking(self) -> dict[str, str]:
        self._refuse("user", "count")
        found: dict[str, str] = {}
        if begin := self.letters("from"):
            found["begin"] = self._moment(begin[0])
        if until := self.letters("until"):
            found["until"] = self._moment(until[0])
        elif length := self.letters("duration"):
            found["until"] = f"+{self._length(length[0])}"
        if group := self.group():
            found["group"] = group
        return found

    def _length(self, letters: str) -> str:
        found = re.search(LENGTH, letters, re.IGNORECASE)
        if found is None:
            raise Unread(letters)
        return length_of(found["length"])

    def _moment(self, letters: str) -> str:
        try:
            return moment_of(letters, self.now)
        except ValueError as e:
            raise Unread(letters) from e
