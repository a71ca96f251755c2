"""Make questions of what the encoder found."""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from gpudeck.assistant.intents.prices import price_of, seconds_ahead
from gpudeck.assistant.intents.tokens import tokens, unaccented, unit_of
from gpudeck.assistant.intents.values import Unknown, Unread, Values
from gpudeck.assistant.language.glossary import term_of
from gpudeck.assistant.query.conversion import convert, kind_of
from gpudeck.assistant.query.request import COST, NEWEST, PREVIOUS, Query, Span, Target, Where
from gpudeck.assistant.query.table import SUBJECTS

DEVICE_FIELDS = {
    "use": "use", "util": "util", "memory_used": "mem_used", "memory_free": "mem_free",
    "memory_total": "mem_total", "temperature": "temp", "memory_temperature": "temp_mem",
    "power": "power", "power_limit": "power_limit", "energy": "energy", "cost": "energy",
    "clock": "clock_sm", "fan": "fan", "rate": "tflops", "bandwidth": "bandwidth",
    "slowed": "throttle", "health": "health", "link": "pcie_gen", "model": "name",
    "driver": "driver", "holder": "holder", "flops_per_watt": "flops_per_watt", "cpu": "util",
    "other": "",
}  # fmt: skip
JOB_FIELDS = {
    "state": "state", "why_waiting": "reason", "why_failed": "failure", "progress": "progress",
    "time_left": "estimate", "start": "start", "end": "end", "duration": "duration",
    "waited": "waited", "submitted": "submitted", "user": "user", "command": "command",
    "output": "log", "files": "files", "memory": "memory", "util": "util", "rate": "tflops",
    "energy": "energy", "cost": "energy", "gpu_hours": "gpu_hours", "gpus": "devices",
    "priority": "priority", "stuck": "stall", "tags": "tags", "loss": "loss", "result": "log",
    "options": "command", "place": "reason", "why_slow": "util", "retries": "state",
    "group": "state", "other": "",
}  # fmt: skip
_RUNNING, _FAILED = ("running", "starting"), ("failed", "lost", "rejected")
_HELD = {"holder": "user", "use": ""}
"""What a job says of a past use of GPUs, by the measure of GPUs."""
_TOLD = frozenset({"throttle", "health"})
"""Measures without a history, which alerts tell of."""
_TEXTS = frozenset({"command", "log", "files", "state", "driver", "name"})
"""Measures that are words, so that no difference can be computed."""
_ABOUT = {"failure": _FAILED, "end": ("done", *_FAILED, "cancelled"), "reason": ("queued",),
          "stall": _RUNNING, "progress": _RUNNING, "estimate": _RUNNING}  # fmt: skip
"""The jobs that a measure is asked of where none is named."""
_PROCESSES = {"memory": "memory", "util": "util", "user": "user", "job": "job", "command": "memory",
              "pid": "memory"}  # fmt: skip


class Questions(Values):
    """Read questions."""

    def read(self, name: str) -> list[Query]:
        """Return the questions of a subject, one for each measure.

        Raises:
            Unknown: The table has no such question.
            Unread: A part of it has no value.
        """
        readers: dict[str, Callable[[], list[Query]]] = {
            "gpus": self._gpus, "jobs": self._jobs, "processes": self._processes,
            "alerts": self._alerts, "queue": lambda: [Query("queue", group=self.group())],
            "users": self._users, "capacity": self._capacity, "settings": self._settings,
            "models": self._models, "overview": lambda: [self._overview()],
            "disk": lambda: [Query("debris")], "log_search": self._log_search,
            "bookings": lambda: [Query("bookings")], "machines": lambda: [Query("machines")],
            "conversion": self._conversion,
            "code": self._code,
        }  # fmt: skip
        if name not in readers:
            raise Unknown(name)
        return readers[name]()

    def _code(self) -> list[Query]:
        if jobs := self.letters("jobs"):
            raise Unread(jobs[0])  # code has none: another wish stands behind the one for code
        return [Query("code", text=" ".join(self.letters("folder")))]

    def manual(self) -> Query:
        """Return the question for what a term means, or for the manual's words on the request."""
        term = term_of(" ".join(self.letters("term")))
        return Query("manual", f"what {term}") if term else Query("manual", text=self.text.strip())

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
            if which == ["newest"]:
                changes.pop("aggregate", None)  # jobs are listed from the newest one on
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

    def _gpus(self) -> list[Query]:
        self.refuse("group")
        others = self.marked("user") == ["@others"]  # anybody's use answers for them
        jobs, user = self.jobs(), "" if others else self.user()
        span, found = self._device_time(), []
        for measure in self.measures(DEVICE_FIELDS):
            if measure in _HELD and "newest" in self.marked("which"):
                past = Span(0.0, self.now) if span is None else span
                found.append(self._shaped(self._of_jobs(measure, jobs, user, past)))
                continue
            if jobs or user or (span is not None and measure in _HELD):
                found.append(self._of_jobs(measure, jobs, user, span))
                continue
            if self.letters("ahead"):
                found.append(self._ahead(measure))
                continue
            if span is not None and measure in _TOLD:
                found.append(Query("alerts", devices=self.devices(), time=span))
                continue
            cost = "cost" in self.marked("measure") and measure == "energy"
            use = [s for s in self.marked("states") if s in ("idle", "busy")]
            query = Query("devices", measure, devices=self.devices(), time=span,
                          states=tuple(use[:1]), text=COST if cost else "",
                          amount=self._price() if cost else 0.0)  # fmt: skip
            if span is not None and not SUBJECTS["devices"].measures[measure or "util"].history:
                raise Unread(measure)
            if measure == "energy" and span is not None and not query.devices:
                query = msgspec.structs.replace(query, aggregate="sum")
            found.append(self._shaped(query))
        return [self._compared(one) for one in found]

    def _device_time(self) -> Span | None:
        """Return the time of a question about GPUs; who had one "before" is asked of all time."""
        try:
            return self.time()
        except Unread:
            if self.marked("measure") != ["holder"]:
                raise
            return Span(0.0, self.now)

    def _ahead(self, measure: str) -> Query:
        """Return the energy, or its cost, of a time to come. Raises Unread for other measures."""
        letters = self.letters("ahead")[0]
        seconds = seconds_ahead(letters)
        if measure != "energy" or seconds is None:
            raise Unread(letters)
        cost = COST if "cost" in self.marked("measure") else ""
        return Query("devices", "energy", devices=self.devices(), ahead=seconds, text=cost,
                     amount=self._price() if cost else 0.0, aggregate="sum")  # fmt: skip

    def _price(self) -> float:
        """Return the price of a kWh that is said, now or in the question before; 0: none."""
        if letters := self.letters("price"):
            price = price_of(letters[0])
            if price is None:
                raise Unread(letters[0])
            return price
        last = self.state.last
        return last.amount if last is not None and COST in (last.text, last.to) else 0.0

    def _costed(self, query: Query) -> Query:
        """Return a question for the energy of jobs with the price, if its cost is asked for."""
        asked = "cost" in self.marked("measure") or bool(self.letters("price"))
        if query.measure != "energy" or not asked:
            return query
        return msgspec.structs.replace(query, to=COST, amount=self._price())

    def _of_jobs(
        self, measure: str, jobs: tuple[Target, ...], user: str, span: Span | None
    ) -> Query:
        """Return a question about GPUs that only jobs can answer: who had them, and their energy.

        Raises Unread if no job says what is asked.
        """
        held = measure in _HELD
        if not held and measure not in ("energy", "power"):
            raise Unread(user or "jobs")
        query = Query("jobs", _HELD.get(measure, "energy"), jobs=jobs, user=user, time=span,
                      states=_RUNNING if held and span is None else (),
                      devices=() if jobs else self.devices())  # fmt: skip
        query = self._costed(query)
        return query if held or len(jobs) == 1 else msgspec.structs.replace(query, aggregate="sum")

    def _compared(self, query: Query) -> Query:
        earlier = self.time("time2") if self.letters("time2") else None
        if earlier is not None and query.time is not None:
            query = msgspec.structs.replace(query, aggregate=query.aggregate or "mean")
            return msgspec.structs.replace(
                query, other=msgspec.structs.replace(query, time=earlier)
            )
        if earlier is not None:
            raise Unread("time2")
        if not self.marked("compare"):
            return query
        if query.measure == "use":
            query = msgspec.structs.replace(query, measure="")
        sides = query.devices if query.subject == "devices" else query.jobs
        if query.subject == "jobs" and len(sides) == 1 and "before" in self.marked("compare"):
            return msgspec.structs.replace(query, other=Query("jobs", text=PREVIOUS))
        if self.marked("compare") != ["each"]:
            raise Unread("compare")
        if len(sides) != 2 or query.measure in _TEXTS:
            return query  # its rows stand one below the other
        field = "devices" if query.subject == "devices" else "jobs"
        other = msgspec.structs.replace(query, **{field: sides[1:]})
        return msgspec.structs.replace(query, **{field: sides[:1], "other": other})

    def _jobs(self) -> list[Query]:
        self.refuse("time2", "except", "words")
        timed = {"time_left", "start", "end"} & {*self.marked("measure")}
        if not timed and self.marked("states") != ["queued"]:
            self.refuse("ahead")  # an answer with a moment can be compared with that time
        jobs, group = ((), self.group()) if self._speaks_of_nothing() else self.targets()
        found = [
            Query("jobs", self._about(measure, jobs), jobs=jobs,
                  states=self._states_of(jobs, measure),
                  user=self.user(), group=group, time=self.time(),
                  devices=self.devices() if not jobs else (),
                  tag=(self.letters("tag") or [""])[0])
            # what is still to end is told before what has ended
            for measure in sorted(self.measures(JOB_FIELDS), key="end".__eq__)
        ]  # fmt: skip
        return [self._costed(self._compared(self._of_newest(self._shaped(one)))) for one in found]

    def _about(self, measure: str, jobs: tuple[Target, ...]) -> str:
        """Return a measure; how long a job usually takes is what is expected of it."""
        if measure == "duration" and jobs and self.marked("combine") == ["mean"]:
            return "estimate"
        return "" if measure == "state" and len(jobs) == 1 else measure

    def _of_newest(self, query: Query) -> Query:
        """Return a query whose newest job, if it shall tell why it failed, is one that did; the
        best of all jobs, if nothing that can be compared is measured, is that with the lowest
        loss."""
        if query.extreme and query.measure in ("", "log"):
            return msgspec.structs.replace(query, measure="loss", aggregate="min")
        if query.measure == "estimate":
            return msgspec.structs.replace(query, aggregate="")
        name = len(query.jobs) == 1 and isinstance(query.jobs[0], str)
        if query.measure == "failure" and (name or query.jobs == (NEWEST,)):
            return msgspec.structs.replace(query, jobs=query.jobs if name else (), states=_FAILED,
                                           aggregate="last", limit=1)  # fmt: skip
        return query

    def _speaks_of_nothing(self) -> bool:
        """Return whether `it` stands for a job, and no job was spoken of."""
        pointed = [mark for mark in self.marked("jobs") if mark in ("@it", "@them")]
        return bool(pointed) and not self.state.jobs and not self.letters("jobs")

    def _states_of(self, jobs: tuple[Target, ...], measure: str) -> tuple[str, ...]:
        named = [job for job in jobs if isinstance(job, str)]
        if self.states() and len(named) == len(jobs):
            return self.states()
        if jobs:
            return ()
        return _ABOUT.get(measure, _RUNNING if self._speaks_of_nothing() else ())

    def _processes(self) -> list[Query]:
        self.refuse("time2", "jobs")
        if self.time() is not None:
            raise Unread(" ".join(self.letters("time")))
        pid = self.letters("pid")
        (measure, *_) = self.measures(_PROCESSES)
        query = Query("processes", measure, devices=self.devices(), user=self.user(),
                      text=pid[0] if pid else "")  # fmt: skip
        return [self._shaped(query)]

    def _users(self) -> list[Query]:
        self.refuse("time2", "ahead", "limit", "above", "below")
        table = {"gpu_hours": "gpu_hours", "energy": "energy", "jobs": "", "gpus": "gpu_hours",
                 "limits": "limits"}  # fmt: skip
        (measure, *_) = self.measures(table) if self.marked("measure") != ["jobs"] else [""]
        if measure == "limits":
            return [Query("queue")]
        user = self.user()
        query = Query("jobs", measure, user=user, time=self.time(), by="" if user else "user",
                      states=self.states(),
                      aggregate="sum" if user and measure else "count" if user else "")  # fmt: skip
        return [self._costed(query)]

    def _alerts(self) -> list[Query]:
        measure = "rules" if "thresholds" in self.marked("measure") else ""
        if measure and (setting := self.setting()):
            return [Query("settings", text=setting)]
        return [Query("alerts", measure, devices=self.devices(), jobs=self.jobs(),
                      time=self.time())]  # fmt: skip

    def _capacity(self) -> list[Query]:
        self.refuse("gpu_type")
        return [Query("capacity", gpus=self.number("count") or 0, amount=self.size("memory"),
                      limit=self.number("limit") or 0)]  # fmt: skip

    def _settings(self) -> list[Query]:
        return [Query("settings", text=self.setting())]

    def _conversion(self) -> list[Query]:
        letters = " ".join(self.letters("amount")) or self.text
        found = [t for t in tokens(letters) if t.kind == "quantity"]
        amount = next(iter(found), None)
        units = [unit_of(unaccented(t.norm)) for t in tokens(" ".join(self.letters("to")))]
        to = next(filter(None, units), "")
        if len(found) == 2 and {kind_of(one.unit) for one in found} == {"power", "time"}:
            power, length = sorted(found, key=lambda one: kind_of(one.unit) or "")
            joules = convert(power.value, power.unit, "W") * convert(length.value, length.unit, "s")
            return [Query("conversion", amount=joules, unit="J", to=to or "kWh")]
        if amount is None or not to or kind_of(amount.unit) != kind_of(to):
            raise Unread(letters)
        return [Query("conversion", amount=amount.value, unit=amount.unit, to=to)]

    def _models(self) -> list[Query]:
        asked = self.marked("measure")
        if "speed" in asked or "other" in asked:
            raise Unknown(", ".join(asked))
        if "assistant" in asked:
            return [Query("models")]
        measure = "served" if "served" in asked else "largest" if "fits" in asked else ""
        amount = self._parameters() if measure == "largest" else 0.0
        return [Query("models", measure, amount=amount)]

    def _parameters(self) -> float:
        """Return how many parameters a model has by its name, such as `llama 70b`; 0: unknown."""
        last = self.state.last
        if "@it" in self.marked("model") and last is not None and last.subject == "models":
            return last.amount
        sizes = re.search(
            r"(?:(\d+)x)?(\d+(?:[.,]\d+)?)\s?b\b", " ".join(self.letters("model")).casefold()
        )
        if sizes is None:
            return 0.0
        return float(sizes[1] or 1) * float(sizes[2].replace(",", ".")) * 1e9

    def _overview(self) -> Query:
        span = self.time()
        return Query("report", time=span) if span is not None else Query("overview")

    def _log_search(self) -> list[Query]:
        words = " ".join(self.letters("words"))
        if not words:
            raise Unread("")
        return [Query("logs", jobs=self.jobs(), text=words)]
