"""Make questions of what the encoder found."""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from gpudeck.assistant.intents.comparisons import Comparisons
from gpudeck.assistant.intents.prices import seconds_ahead
from gpudeck.assistant.intents.question_parts import CURRENCY, OWNERS, PERIODS
from gpudeck.assistant.intents.tokens import tokens, unaccented, unit_of
from gpudeck.assistant.intents.values import Unknown, Unread
from gpudeck.assistant.intents.version_names import named_versions
from gpudeck.assistant.language.glossary import term_of
from gpudeck.assistant.query.conversion import convert, kind_of
from gpudeck.assistant.query.request import COST, NEWEST, Query, Span, Target, Where
from gpudeck.assistant.query.table import SUBJECTS
from gpudeck.assistant.reader.reading import Reading

DEVICE_FIELDS = {
    "use": "use", "util": "util", "memory_used": "mem_used", "memory_free": "mem_free",
    "memory_total": "mem_total", "temperature": "temp", "memory_temperature": "temp_mem",
    "power": "power", "power_limit": "power_limit", "energy": "energy", "cost": "energy",
    "clock": "clock_sm", "fan": "fan", "rate": "tflops", "bandwidth": "bandwidth",
    "slowed": "throttle", "health": "health", "link": "pcie_gen", "model": "name",
    "driver": "driver", "uptime": "uptime", "holder": "holder",
    "flops_per_watt": "flops_per_watt", "tokens_per_watt": "tokens_per_joule", "cpu": "util",
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
    "group": "group", "other": "",
}  # fmt: skip
_RUNNING, _FAILED = ("running", "starting"), ("failed", "lost", "rejected")
_HELD = {"holder": "user", "use": ""}
"""What a job says of a past use of GPUs, by the measure of GPUs."""
_TOLD = frozenset({"throttle", "health"})
"""Measures without a history, which alerts tell of."""
_WORDS = frozenset({"failure", "reason", "log", "command", "files", "user", "devices", "stall"})
"""Measures of jobs that are words, so that nothing can be added up."""
_OF_DEVICES = frozenset({"temp", "temp_mem", "power", "power_limit", "clock_sm", "fan", "bandwidth",
                         "throttle", "health", "pcie_gen"})  # fmt: skip
"""Measures that jobs have none of, so that the GPUs of a job answer for it."""
_MOMENTS = frozenset({"start", "end", "estimate", "submitted"})
_ABOUT = {"failure": _FAILED, "end": ("done", *_FAILED, "cancelled"), "reason": ("queued",),
          "start": (*_RUNNING, "queued"), "log": (*_RUNNING, "done", *_FAILED, "cancelled"),
          "stall": _RUNNING, "progress": _RUNNING, "estimate": _RUNNING}  # fmt: skip
"""The jobs that a measure is asked of where none is named."""
_PROCESSES = {"memory": "memory", "util": "util", "user": "user", "job": "job", "command": "memory",
              "pid": "memory"}  # fmt: skip


_OUTCOME = re.compile(
    r"(?i)(?:which|what|the) (?:result|outcome)|welche[mnrs]* (?:ergebnis|ausgang)"
    r"|que(?:l|ls|lle) (?:résultat|issue)|(?:qué|que|cuál) (?:resultado|fue el resultado)"
)
"""Words that ask how jobs ended, so that those that failed have ended, too."""


def _has_history(measure: str) -> bool:
    """Return whether a measure of GPUs has values over a time that say something."""
    return measure != "pcie_gen" and SUBJECTS["devices"].measures[measure or "util"].history


class Questions(Comparisons):
    """Read questions."""

    def read(self, name: str) -> list[Query]:
        """Return the questions of a subject, one for each measure.

        Raises:
            Unknown: The table has no such question.
            Unread: A part of it has no value.
        """
        readers: dict[str, Callable[[], list[Query]]] = {
            "gpus": self._gpus, "jobs": self._jobs, "processes": self._processes,
            "alerts": self._alerts, "actions": self._actions,
            "queue": lambda: [Query("queue", group=self.group())],
            "users": self._users, "capacity": self._capacity, "settings": self._settings,
            "models": self._models, "overview": lambda: [self._overview()],
            "disk": lambda: [Query("debris")], "log_search": self._log_search,
            "bookings": self._bookings, "machines": lambda: [Query("machines")],
            "conversion": self._conversion,
            "backend": self._backend,
            "code": self._code,
        }  # fmt: skip
        if name not in readers:
            raise Unknown(name)
        self.subject, self.lacking = name, []
        spans = [(self._field_of(field, letters), letters) for field, letters in self.found.spans]
        self.found = self.found._replace(spans=tuple(spans))
        return readers[name]()

    def reading(self, found: Reading) -> Questions:
        """Return the questions of another reading of the same request."""
        return Questions(found, self.known, self.state, self.now, self.text)

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
        if {"highest", "lowest"} <= {*which}:
            which = []  # no one value is asked for, and all are shown
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
        at_once = query.time is None or query.time.point
        peak = changes.get("aggregate") == "max" and query.measure != "energy"
        if self.marked("when") or (query.subject == "devices" and peak and not at_once):
            changes["when"] = not query.by
        if (self.letters("above") or self.letters("below")) and query.subject == "jobs":
            query = msgspec.structs.replace(query, measure=query.measure or "duration")
        said = (*self.letters("above"), *self.letters("below"))
        if said and not query.measure:
            raise Unread(said[0])
        bounds = []
        for field in ("above", "below"):
            if self.letters(field):
                bounded = msgspec.structs.replace(query, measure=self._bounded(query, field))
                value = self._bound(bounded, field)
                bounds.append(Where(bounded.measure, **{field: value}))
        return msgspec.structs.replace(query, where=tuple(bounds), **changes)

    def _gpus(self) -> list[Query]:
        others = self.marked("user") == ["@others"]  # anybody's use answers for them
        jobs, user = self.jobs(), "" if others else self.user()
        span, found = self._device_time(), []
        counted = self._by("devices") or {"idle", "busy"} & {*self.marked("states")}
        owned = bool(jobs or user or self.group() or OWNERS & {*self.marked("by")})
        for measure in self.measures(DEVICE_FIELDS):
            held = measure in _HELD
            if measure == "driver" and (versions := self._versions()):
                found += versions
            elif measure == "tokens_per_joule":
                found.append(self._compared(self._shaped(self._of_running(measure, jobs, span))))
            elif held and "newest" in self.marked("which"):
                past = Span(0.0, self.now) if span is None else span
                found.append(self._shaped(self._of_jobs(measure, jobs, user, past)))
            elif self.letters("ahead") and (held or not measure):
                found.append(self._then())
            elif jobs and measure in _OF_DEVICES and not self._by("jobs"):
                found.append(self._of_their_gpus(measure, jobs))
            elif owned or (held and span is not None and not counted):
                found.append(self._of_jobs(measure, jobs, user, span))
            elif self.letters("ahead"):
                found.append(self._ahead(measure))
            elif measure == "holder" and self.marked("when"):
                found.append(Query("jobs", "start", states=_RUNNING, devices=self.devices()))
            elif span is not None and measure in _TOLD:  # its counters tell of the past, too
                found.append(self._shaped(Query("devices", measure, devices=self.devices())))
                found.append(Query("alerts", devices=self.devices(), time=span))
            else:
                found.append(self._compared(self._of_devices(measure, span)))
        return found

    def _of_devices(self, measure: str, span: Span | None) -> Query:
        cost = "cost" in self.marked("measure") and measure == "energy"
        use = [s for s in self.marked("states") if s in ("idle", "busy")]
        said = " ".join(self.letters("time"))
        if span is not None and span.point and measure == "energy":
            self.lacking += [("time", said)] if said else []
            span = None  # a moment has no energy
        if span is not None and not _has_history(measure):
            self.lacking += [("time", said)] if measure != "use" and said else []
            span = span if measure == "use" else None
            measure = "util" if measure == "use" else measure
        devices, model = self._cards()
        text = "cpu" if "cpu" in self.marked("measure") and not devices else ""
        counted = span is not None and not span.point and not self._by("devices")
        if use and counted and measure in ("", "use", "util"):
            measure = f"{use[0]}_time"
        elif use and span is not None:
            self.lacking.append(("states", use[0]))
        query = Query("devices", measure, devices=devices, model=model, exclude=self._excluded(),
                      time=span, states=tuple(use[:1]) if span is None else (),
                      by=self._by("devices"), text=text)  # fmt: skip
        if cost:
            priced = {"amount": self._price(), "unit": self._currency()}
            query = msgspec.structs.replace(query, text=COST, **priced)
        elif to := self._unit_of(measure):
            query = msgspec.structs.replace(query, to=to)
        if measure == "energy" and not devices and not query.by:
            query = msgspec.structs.replace(query, aggregate="sum")
        query = self._shaped(query)
        if measure == "energy" and query.when:  # the highest energy is that of a day
            how = "min" if query.aggregate == "min" else "max"
            return msgspec.structs.replace(query, when=False, by="day", extreme=True, aggregate=how)
        return query

    def _versions(self) -> list[Query]:
        """Return the versions that are asked for; none if only those of the GPUs' driver are."""
        named = named_versions(self.text)
        if named == ["driver"] or self.letters("gpus") or self.marked("compare"):
            return []
        if "cuda" in named:  # its answer has those of the driver and of torch
            named = [name for name in named if name not in ("driver", "torch")]
        return [Query("versions", name) for name in named or ("",)]

    def _of_running(self, measure: str, jobs: tuple[Target, ...], span: Span | None) -> Query:
        """Return a question about GPUs that the jobs on them answer."""
        return Query("jobs", measure, jobs=jobs, user=self.user(), group=self.group(), time=span,
                     states=_RUNNING if not jobs and span is None else (),
                     devices=self.devices() if not jobs else ())  # fmt: skip

    def _backend(self) -> list[Query]:
        """Return which backend a job ran, or which would compute attention on a GPU."""
        if jobs := self.jobs():
            return [Query("jobs", "backend", jobs=jobs)]
        devices, model = self._cards()
        return [Query("attention", devices=devices, model=model, text=self.text)]

    def _then(self) -> Query:
        """Return the question which jobs run at a time to come."""
        begin, _ = self._coming()
        return Query("jobs", ahead=max(begin - self.now, 1.0), user=self.user(),
                     devices=self.devices())  # fmt: skip

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
        query = Query("devices", "energy", devices=self.devices(), ahead=seconds, text=cost,
                      states=("idle",) if "idle" in self.marked("states") else (),
                      aggregate="sum")  # fmt: skip
        if not cost:
            return query
        return msgspec.structs.replace(query, amount=self._price(), unit=self._currency())

    def _costed(self, query: Query) -> Query:
        """Return a question for the energy of jobs with the price, if its cost is asked for."""
        asked = "cost" in self.marked("measure") or bool(self.letters("price"))
        asked = asked or CURRENCY.search(" ".join(self.letters("to"))) is not None
        if query.measure != "energy" or not asked:
            return query
        priced = {"to": COST, "amount": self._price(), "unit": self._currency()}
        if query.other is not None:
            query = msgspec.structs.replace(
                query, other=msgspec.structs.replace(query.other, **priced)
            )
        return msgspec.structs.replace(query, **priced)

    def _of_jobs(
        self, measure: str, jobs: tuple[Target, ...], user: str, span: Span | None
    ) -> Query:
        """Return a question about GPUs that only jobs can answer: who had them, and their energy.

        Raises Unread if no job says what is asked.
        """
        held, by = measure in _HELD, self._by("jobs")
        if not held and measure not in ("energy", "power"):
            if by:
                raise Unread("by")
            raise Unread(" ".join(self.letters("user") or self.letters("group")) or "user")
        wanted = "gpu_hours" if held and by else _HELD.get(measure, "energy")
        query = Query("jobs", wanted, jobs=jobs, user=user, group=self.group(), time=span, by=by,
                      states=_RUNNING if held and span is None and not by else (),
                      devices=() if jobs else self.devices())  # fmt: skip
        query = self._costed(query)
        if by:
            return self._shaped(query)
        if not held and len(jobs) != 1:
            query = msgspec.structs.replace(query, aggregate="sum")
        return query if held else self._compared(query)

    def _jobs(self) -> list[Query]:
        self.refuse("except", "words")
        jobs, group = ((), self.group()) if self._speaks_of_nothing() else self.targets()
        jobs = self.known_jobs(jobs) or self.jobs_of_model()
        asked = {*self.marked("measure")}
        theirs = [self._of_their_gpus(measure, jobs) for name, measure in DEVICE_FIELDS.items()
                  if name in asked and measure in _OF_DEVICES]  # fmt: skip
        if theirs and not asked & {*JOB_FIELDS}:
            return theirs
        self.lacking += [("jobs", "@it")] if self._speaks_of_nothing() else []
        measures, by = self._moments(self.measures(JOB_FIELDS), jobs), self._by("jobs")
        if by and {*measures} <= _WORDS:  # each job has words of its own, and its user beside them
            measures += [by] if by in ("user", "group") and by not in measures else []
            by = ""
        found = [
            Query("jobs", self._about(measure, jobs), jobs=jobs,
                  states=self._states_of(jobs, measure),
                  user=self.user(), group=group, time=self.time(), by=by,
                  devices=self.devices() if not jobs else (),
                  tag=(self.letters("tag") or [""])[0])
            for measure in measures
        ]  # fmt: skip
        found = [self._until(self._of_newest(self._shaped(one))) for one in found]
        return [*(self._costed(self._compared(one)) for one in found), *theirs]

    def _of_their_gpus(self, measure: str, jobs: tuple[Target, ...]) -> Query:
        """Return a question about the GPUs that jobs hold or held."""
        asked = self._of_devices(measure, self._device_time())
        return self._compared(msgspec.structs.replace(asked, jobs=jobs))

    def _moments(self, measures: list[str], jobs: tuple[Target, ...]) -> list[str]:
        """Return measures with the moment that is asked for, the ends behind all others."""
        if self.marked("when") and not _MOMENTS & {*measures}:
            runs = {"running", "queued"} & {*self.marked("states")} and not jobs
            measures = [*filter(None, measures), "start" if runs else "end"]
        if self._speaks_of_nothing():  # it runs, and its end is to come
            measures = ["estimate" if one == "end" else one for one in measures]
        return sorted(measures, key="end".__eq__)

    def _until(self, query: Query) -> Query:
        """Return a question with the time to come by which jobs shall have ended, or at which they
        shall run, if one is named. Raises Unread for other measures."""
        if not self.letters("ahead"):
            return query
        begin, end = self._coming()
        if query.measure not in ("", "state", "estimate", "start", "end"):
            raise Unread(" ".join(self.letters("ahead")))
        at = begin if query.measure in ("", "state") else end
        return msgspec.structs.replace(query, ahead=max(at - self.now, 1.0))

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
            return msgspec.structs.replace(query, measure="loss", aggregate="min",
                                           states=self.states())  # fmt: skip
        if query.measure == "estimate":
            return msgspec.structs.replace(query, aggregate="")
        name = len(query.jobs) == 1 and isinstance(query.jobs[0], str)
        if query.measure == "failure" and (name or query.jobs == (NEWEST,)):
            return msgspec.structs.replace(query, jobs=query.jobs if name else (), states=_FAILED,
                                           aggregate="last", limit=1)  # fmt: skip
        return query

    def _speaks_of_nothing(self) -> bool:
        """Return whether `it` stands for a job, and no job was spoken of."""
        pointed = {*self.marked("jobs")} - {"@newest", "@oldest", "@all"}
        return bool(pointed) and not self.state.jobs and not self.letters("jobs")

    def _states_of(self, jobs: tuple[Target, ...], measure: str) -> tuple[str, ...]:
        named = [job for job in jobs if isinstance(job, str)]
        if self.states() == ("done",) and _OUTCOME.search(self.text):
            return ("done", *_FAILED, "cancelled") if not jobs else ()
        if self.states() and (len(named) == len(jobs) or len(jobs) > 1):
            return self.states()
        if jobs:
            return ()
        if measure == "start" and (self.marked("which") or self.letters("time")):
            return ()  # those that have ended have started, too
        if self._speaks_of_nothing() and measure not in ("failure", "end", "reason", "log"):
            return _RUNNING
        waiting = ("queued",) if measure == "estimate" and self.letters("user") else ()
        return (*_ABOUT.get(measure, ()), *waiting)

    def _processes(self) -> list[Query]:
        self.refuse("time2")
        if self.time() is not None:
            raise Unread(" ".join(self.letters("time")))
        pid = self.letters("pid") or self.letters("words") or self.letters("jobs")
        (measure, *_) = self.measures(_PROCESSES)
        query = Query("processes", measure, devices=self.devices(), user=self.user(),
                      text=pid[0] if pid else "")  # fmt: skip
        return [self._shaped(query)]

    def _users(self) -> list[Query]:
        asked, user, span = self.marked("measure"), self.user(), self.time()
        if "limits" in asked:
            more = ["gpu_hours"] if "gpu_hours" in asked else []
            limit = Query("limits", user=user)
            limit = Query("queue", group=self.group()) if self.group() else limit
            return [limit, *(self._of_user(one, user, span) for one in more)]
        table = {"gpu_hours": "gpu_hours", "energy": "energy", "jobs": "", "activity": "",
                 "gpus": "gpus" if span is None else "gpu_hours", "memory": "memory"}  # fmt: skip
        if {"activity", "jobs", "gpus"} & {*asked} and PERIODS & {*self.marked("by")}:
            return [self._shaped(Query("devices", "util", time=span, by=self._by("devices")))]
        return [self._of_user(one, user, span) for one in self.measures(table)]

    def _of_user(self, measure: str, user: str, span: Span | None) -> Query:
        """Return what a user used, or each user or group."""
        several = self.marked("which") or self.marked("compare") in (["each"], ["others"])
        user = "" if several and "," not in user else user
        several = bool(several) or "," in user
        group, by = self.group(), self._by("jobs")
        whole = bool((user and not several) or group or "sum" in self.marked("combine")) and not by
        held = measure == "gpus" or (not span and "activity" in self.marked("measure"))
        query = Query("jobs", measure, user=user, group=group, time=span,
                      by="" if whole else by or "user",
                      states=self.states() or (_RUNNING if held else ()))  # fmt: skip
        query = self._shaped(query)
        if whole and not query.aggregate:
            how = "sum" if measure else "count"
            query = msgspec.structs.replace(query, aggregate=how)
        compared = query if several else self._compared(query)
        return self._costed(compared)

    def _alerts(self) -> list[Query]:
        measure = "rules" if "thresholds" in self.marked("measure") else ""
        if measure and (setting := self.setting()):
            return [Query("settings", text=setting)]
        return [Query("alerts", measure, devices=self.devices(), jobs=self.jobs(),
                      time=self.time())]  # fmt: skip

    def _actions(self) -> list[Query]:
        """Return the question what was done with jobs, and when."""
        jobs = () if self._speaks_of_nothing() else self.jobs()
        newest = 1 if "newest" in self.marked("which") else 0
        return [Query("events", jobs=jobs, states=self.states() if not jobs else (),
                      user=self.user(), group=self.group(), time=self.time(),
                      limit=self.number("limit") or newest)]  # fmt: skip

    def _bookings(self) -> list[Query]:
        span = self.time()
        if self.letters("ahead") or self.letters("begin"):
            begin, end = self._coming()
            span = Span(begin, end)
        return [Query("bookings", devices=self.devices(), user=self.user(), time=span)]

    def _capacity(self) -> list[Query]:
        span = None
        if self.letters("begin") or self.letters("ahead"):
            begin, end = self._coming()
            span = Span(begin, end)
        return [Query("capacity", devices=self.devices(), gpus=self.number("count") or 0,
                      amount=self.size("memory"), model=" ".join(self.letters("gpu_type")),
                      time=span, limit=self.number("limit") or 0)]  # fmt: skip

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
        if job := self._of_size():
            return [job]
        if (parameters := self._parameters()) and {"size", "requests", "speed", "fits"} & {*asked}:
            self.lacking += [("measure", one) for one in asked if one in ("requests", "speed")]
            return [Query("models", "largest", amount=parameters)]
        self.lacking += [("measure", one) for one in asked if one in ("size", "requests")]
        if "speed" in asked or "other" in asked:
            raise Unknown(", ".join(asked))
        if "assistant" in asked:
            return [Query("models")]
        measure = "served" if "served" in asked else "largest" if "fits" in asked else ""
        amount = self._parameters() if measure == "largest" else 0.0
        return [Query("models", measure, amount=amount)]

    def _of_size(self) -> Query | None:
        """Return a question about a job that is called by the size of its model, if somebody's is
        asked for: `when is ben's 70b next`. Behind it, `it` is that job."""
        if self.letters("user") and (jobs := self.jobs_of_model()):
            return Query("jobs", "start", jobs=jobs, user=self.user())
        last = self.state.last
        pointed = "@it" in self.marked("model") and last is not None and last.subject == "jobs"
        return Query("jobs", "gpus", jobs=self.state.jobs) if pointed and self.state.jobs else None

    def _parameters(self) -> float:
        """Return how many parameters a model has by its name, such as `llama 70b`; 0: unknown."""
        last = self.state.last
        if "@it" in self.marked("model") and last is not None and last.subject == "models":
            return last.amount
        sizes = re.search(
            r"(?:(\d+)x)?(\d+(?:[.,]\d+)?)\s?(?:b\b|billion|milliard|mrd|mil millones|er\b)",
            " ".join((*self.letters("model"), *self.letters("amount"))).casefold(),
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
