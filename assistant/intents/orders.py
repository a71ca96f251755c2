"""Make orders of what the encoder found."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta

from gpudeck.assistant.intents import amounts
from gpudeck.assistant.intents.moments import (
    LENGTH,
    is_day,
    is_evening,
    is_whole_day,
    length_of,
    of_same_month,
    with_digits,
)
from gpudeck.assistant.intents.names import named
from gpudeck.assistant.intents.related_amounts import RelatedAmounts
from gpudeck.assistant.intents.setting_words import value_in
from gpudeck.assistant.intents.thresholds import PLAIN
from gpudeck.assistant.intents.tokens import tokens
from gpudeck.assistant.intents.values import STATES, Unread
from gpudeck.assistant.query.request import Order, Target
from gpudeck.assistant.query.setting_units import in_setting_unit
from gpudeck.assistant.query.table import VERBS

_VERBS = {"cancel": "cancel", "retry": "retry", "kill": "kill", "drain": "drain",
          "undrain": "undrain", "limit": "limit", "book": "book", "note": "note", "undo": "undo",
          "edit": "edit", "move": "move", "acknowledge": "acknowledge", "set": "set",
          "free": "free", "unbook": "unbook"}  # fmt: skip
_DEADLINE = re.compile(
    r"(?i)(?<!\w)(?:by|bis|spätestens(?: um)?|d'ici|no later than|(?<!not )before|(?<!pas )avant"
    r"|(?<!no )antes de)(?: the| las?| les?| um)?\s*$"
)
"""It stands before a moment by which a job shall have ended."""
_ENDING = re.compile(
    r"(?i)\b(?:job|termin|finish|end(?:e|s|ed)?\b|done|over\b|fertig|beendet|fini|fin\b|final\b"
    r"|acab|through\b)"
)
"""A word for the end of a job, which is no moment that is known."""
_IS_END = re.compile(
    r"(?i)(?<!\w)(?:until|till?|to|through|thru|by|before|ending|bis|jusqu\w*|vor|avant|hasta|antes"
    r"|al?|aux?|à)(?!\w)"
)
"""A word before the end of a booking."""
_UNTIL_END = re.compile(
    rf"(?i)\b(?:until|till|bis|jusqu|hasta)\b[^,.;]*{_ENDING.pattern[4:]}[^,.;]*$"
)
"""It stands before a number that is the job that ends: `hasta que termine el 14`."""
_HAS_ENDED = re.compile(rf"(?i)\s+(?:\w+\s+)?{_ENDING.pattern[4:].replace('job|', '')}")
"""It stands behind one: `14 is done`."""
_BEFORE = re.compile(
    r"(?i)(?<!\w)(?:before|ahead of|in front of|vor|avant|devant|antes|delante)(?: de[l]?)?"
    r"(?: (?:job|the|le|el|la|dem|den|des|du))*\s*$"
)
_SOON = re.compile(rf"(?:in|dans|en|dentro de) {LENGTH}", re.IGNORECASE)
_FROM_TO = re.compile(
    r"(?P<from>(?!.*\d{4}-\d\d).*?\d(?:[:h]\d\d)?) ?[-–] ?(?P<to>\d{1,2}(?:[:h]\d\d)?.*)"
)
"""A time and its end in one, such as `tomorrow 9-13`."""
_NUMBERS = {"limit": "number", "acknowledge": "alert", "kill": "pid", "book": "count"}
"""The field that is the number of an order."""
_OF_ONE_JOB = frozenset({"retry", "edit"})
"""Verbs of orders that may say an amount in relation to what a job has."""
_MOMENTS = frozenset({"begin", "from", "until"})
_RELATIVE = re.compile(
    r"(?i)(?<!\w)(?:over|above|than|by|vor|[uü]ber|als|um|devant|sobre|que)\s+"
    r"(?:(?:job|the|le|la|el)\s+)?$"
)
"""Before a number that is how much more, or the job that something comes before."""
_JOBS_BEHIND = re.compile(
    r"(?i)\s+(?:jobs|runs|tasks|trainings|auftr[aä]ge|läufe|t[aâ]ches|trabajos|tareas)(?!\w)"
)
"""Behind a number that counts jobs, and is that of none."""
_BOOKING_NUMBER = re.compile(
    r"(?i)(?<!\w)(?:bookings?|buchung(?:en)?|r[eé]servations?|reservas?|reservaci[oó]n(?:es)?)"
    r"\s+(?:n\S{1,5}\s+)?#?\d+"
)
"""It is no GPU's: a booking is described by its GPUs, its day, or whom it is for."""
_HOST = re.compile(r"(?i)(?!gpus?\d|cuda|cards?\d)[^\W\d_][\w.-]*\d[\w.-]*")
"""The name of another machine, such as `node2`."""
_PLACES = re.compile(
    r"(?i)\d+ (?:places?|positions?|spots?|slots?|pl[aä]tze?|stellen?|rangs?|puestos?"
    r"|posicion(?:es)?|lugar(?:es)?)(?!\w)"
)
_SINGLE = ("begin", "from", "until", "timeout", "duration", "count", "memory", "retries", "name",
           "user", "gpu_type")  # fmt: skip
"""Fields of which an order has one value."""
OF_NEW_JOBS = frozenset({"command", "count", "gpus", "gpu_type", "memory", "host_memory", "cpus",
                         "timeout", "retries", "priority", "name", "group", "tag", "after",
                         "after_any", "begin"})  # fmt: skip
"""The fields that a new job may have."""


class Orders(RelatedAmounts):
    """Read orders."""

    def read(self, name: str) -> Order:
        """Return the order of a verb.

        Raises:
            Unread: A part of it has no value, or no order has a place for it.
        """
        self._refuse_other_times(name)
        self._refuse_two_values()
        self._refuse_counts()
        jobs, group = self._targets()
        to_group = (
            name == "edit"
            and bool(self.letters("group"))
            and bool(jobs or self.marked("jobs") or self.letters("jobs"))
        )
        group = "" if to_group or name in ("book", "unbook") else group
        verb = self._verb_of(name, bool(group))
        if self.letters("jobs") and self.state.order is not None and self.state.order.verb == verb:
            jobs = self._corrected(jobs)
        exclude, states = self._which(verb, jobs, group)
        order = Order(
            verb, jobs=jobs, group=group, exclude=exclude, states=states,
            devices=self._gpus_of_order(verb, named=bool(jobs)),
            options=self._options(verb, to_group=to_group),
            changes=self.relations() if verb in _OF_ONE_JOB else {},
            place=self._place() if verb == "move" else "",
            beside=self._beside() if verb == "move" else None,
            number=self._number_of(verb), text=self._text(verb), command=self._flags(verb),
            setting=self.setting() if verb == "set" else "",
            user=self.user() if verb != "kill" else "",
        )  # fmt: skip
        for field in ("devices", "group", "states", "jobs", "user", "exclude"):
            if getattr(order, field) and field not in VERBS[verb].takes:
                raise Unread(field)
        self.refuse_rest()
        return order

    def _refuse_other_times(self, name: str) -> None:
        """Refuse what no order has a place for: later times, conditions, and parts of questions."""
        self.refuse(
            *(["at"] if name != "resume" else []),
            "if",
            "limit",
            "which",
            "above",
            "below",
            "combine",
            "by",
            *(["time"] if name != "unbook" and not self._is_past(name) else []),
        )

    def _refuse_two_values(self) -> None:
        """Refuse two values of what has one: the second may take the first back."""
        for field in _SINGLE:
            said = [letters for name, letters in self.found.spans
                    if name == field and self._is_value(field, letters)]  # fmt: skip
            if len(said) > 1 and not (field in ("begin", "from") and is_day(said[0])):
                raise Unread(said[1])

    def _refuse_counts(self) -> None:
        """Refuse a number of jobs, such as `14 jobs`, that was found to be the one of a job."""
        said = [letters for name, letters in self.found.spans if name == "jobs"]
        is_number = len(said) == 1 and said[0].isdigit()
        if is_number and _JOBS_BEHIND.match(self.text, self._where("jobs")[1]):
            raise Unread(said[0])

    def _itself(self, letters: str) -> str:
        """Return the letters of a number. Raises Unread if it is only how much more or less."""
        before, _, behind = self.text.partition(letters)
        if _RELATIVE.search(before) or amounts.is_related(f"{letters} {behind[:12]}"):
            raise Unread(letters)
        return letters

    def _is_value(self, field: str, letters: str) -> bool:
        """Return whether letters of a field are a value by themselves, and no piece of another."""
        if field in ("name", "user", "gpu_type") or re.search(r"\d", with_digits(letters)):
            return True
        try:
            return field in _MOMENTS and bool(self._day(letters))
        except Unread:
            return False

    def _which(
        self, verb: str, jobs: tuple[Target, ...], group: str
    ) -> tuple[tuple[Target, ...], tuple[str, ...]]:
        """Return the jobs that an order leaves out, and the states of those that it is for."""
        exclude, states = self.jobs("except"), self._states()
        if exclude and jobs and not (self.letters("jobs") or {*exclude} & {*jobs} or states):
            raise Unread("")  # "it" without another job is a correction that was not understood
        if "@all" in self.marked("jobs") and not (states or group):
            states = VERBS[verb].states
        return exclude, states

    def _is_past(self, name: str) -> bool:
        """Return whether a time only says of a job that is named when it failed or ran today.

        The job that a name stands for is the newest one that ended. What may be a later time, as
        `heute Nacht`, is none of these; it is the encoder's `plain` that excludes the others.
        """
        said = self.letters("time")
        if name != "retry" or not (said and self.letters("jobs")) or self.found.plain < PLAIN:
            return False
        span = self.time()
        today = datetime.fromtimestamp(self.now).replace(hour=0, minute=0, second=0, microsecond=0)
        return (
            span is not None and today.timestamp() <= span.since <= span.until <= self.now
            and not any(is_evening(letters) for letters in said)
        )  # fmt: skip

    def jobs(self, field: str = "jobs") -> tuple[Target, ...]:
        """Return the jobs that are named; none for "it" where nothing was said before.

        Who plans the order then takes the only job that it can be for, or names those there are.
        """
        spoken_of = self.state.jobs or self.state.before or self.letters(field)
        if field == "jobs" and self.marked(field) == ["@it"] and not spoken_of:
            return ()
        return super().jobs(field)

    def _targets(self) -> tuple[tuple[Target, ...], str]:
        """Return the jobs and the group of an order, which may stand anywhere in it."""
        jobs, group = self.targets()
        pointed = jobs or group or self.marked("jobs") or self.marked("states")
        return jobs, group if pointed else named(self.outside(), self.known.groups)

    def _corrected(self, jobs: tuple[Target, ...]) -> tuple[Target, ...]:
        """Return the jobs that are named, without those that the same order had before.

        "I meant 13" behind an order for 12 is read as that order for 13 and `it`.
        """
        pointed = [job for mark in self.marked("jobs") for job in self._pointed(mark)]
        self.resolved.clear()
        return tuple(job for job in jobs if job not in pointed) or jobs

    def _verb_of(self, name: str, group: bool) -> str:
        """Return the verb of the table for the encoder's."""
        if name in ("pause", "resume"):
            hold, pause = ("hold", "pause") if name == "pause" else ("release", "resume")
            if group and any(self.letters(field) for field in ("except", "until", "duration")):
                return hold  # a group is paused as a whole, and for good
            if name == "resume" and self.letters("at"):
                return "hold"  # until that moment
            return pause if group and not self.marked("states") else self._pausing(hold, pause)
        if name == "edit" and self.letters("beside"):
            return "move"
        if name not in _VERBS:
            raise Unread(name)
        return _VERBS[name]

    def _place(self) -> str:
        """Return a place in the queue; up is at its begin."""
        place = (self.marked("place") or [""])[0]
        if place in ("up", "down") and (some := _PLACES.search(with_digits(self.text))):
            raise Unread(some[0])
        if beside := self.letters("beside") or self.letters("after"):
            self.letters("priority")  # "bump 12 so it goes right after 10"
            is_before = _BEFORE.search(self.text.partition(beside[0])[0]) is not None
            place = place if place in ("before", "after") else ("after", "before")[is_before]
        return {"up": "first", "down": "last"}.get(place, place)

    def _beside(self) -> Target | None:
        """Return the job before or behind which one shall run."""
        return next(iter((*self.jobs("beside"), *self.jobs("after"))), None)

    def _states(self) -> tuple[str, ...]:
        named = {"failed": ("failed", "lost"), "done": ("done",)}
        found = (named.get(mark, STATES.get(mark, ())) for mark in self.marked("states"))
        return tuple(state for states in found for state in states)

    def _number_of(self, verb: str) -> int | None:
        """Return the limit of a group, the number of an alert or the PID of a process."""
        field = _NUMBERS.get(verb, "")
        if verb == "limit" and not self.letters("number"):
            field = "count"
        if not field or not self.letters(field):
            return None
        if verb == "limit" and len(self.letters("group")) > 1:
            raise Unread(self.letters("group")[1])
        if verb == "limit":
            self._itself(self.letters(field)[0])
        digits = re.findall(r"\d+", self.letters(field)[0])
        if verb == "kill" and not re.fullmatch(r"(?i)(?:pid\W*)?\d+", self.letters(field)[0]):
            return None  # the name of the process
        return int(digits[0]) if len(digits) == 1 else self.number(field)

    def _text(self, verb: str) -> str:
        """Return a note, the name of a process, or the value of a setting."""
        if verb == "note":
            return " ".join(self.letters("notes"))
        if verb == "kill" and self._number_of(verb) is None:
            return " ".join(self.letters("pid"))
        if verb != "set":
            return ""
        setting, letters = self.setting(), " ".join(self.letters("value"))
        if not setting:
            raise Unread(" ".join(self.letters("setting")))
        said = next((t for t in tokens(letters) if t.kind in ("number", "quantity")), None)
        if said is not None:
            value = in_setting_unit(setting, said.value, said.unit)
            if value is None:
                raise Unread(letters)
            return f"{value:g}"
        changes = {"on": "True", "off": "off"}
        value_ = value_in(letters or self.text) or changes.get(
            (self.marked("change") or [""])[0], ""
        )
        if not value_:
            raise Unread(letters)
        return value_

    def _flags(self, verb: str) -> str:
        """Return the flags that the command of a retried job shall have."""
        flags = " ".join(self.letters("command")) if verb == "retry" else ""
        if flags and not flags.startswith("-"):
            raise Unread(flags)
        return flags

    def _pausing(self, jobs: str, queue: str) -> str:
        self.refuse("gpus")
        named = (self.letters("jobs") or self.marked("jobs") or self.marked("states")
                 or self.letters("user") or self.marked("user"))  # fmt: skip
        if not named or jobs == "release":
            self.refuse("until", "duration")
        whole = self.marked("queue") and not named
        return queue if whole else jobs

    def _until(self) -> dict[str, str]:
        """Return until when jobs are held."""
        if until := self.letters("until") or self.letters("at"):
            before, _, behind = self.text.partition(until[0])
            if (_ENDING.search(until[0]) or _UNTIL_END.search(before)
                    or _HAS_ENDED.match(behind)):  # fmt: skip
                raise Unread(until[0])
            soon = _SOON.fullmatch(until[0])
            return {"until": f"+{length_of(soon['length'])}" if soon else self._day(until[0])}
        length = self.letters("duration")
        return {"until": f"+{self.length(length[0])}"} if length else {}

    def _gpus_of_order(self, verb: str, *, named: bool) -> tuple[int, ...]:
        """Return the GPUs of an order; which GPU a job has that is named says nothing more."""
        letters = [one for one in self.letters("gpus") if not re.search(r"\d", one)]
        if letters and verb in ("drain", "undrain", "book", "free", "kill"):
            raise Unread(letters[0])
        if verb == "unbook" and (number := _BOOKING_NUMBER.search(self.text)):
            raise Unread(number[0])
        if "devices" in VERBS[verb].takes:
            return self.devices()
        if not named:
            self.refuse("gpus")
        if hosts := [one for one in self.letters("gpus") if _HOST.fullmatch(one)]:
            raise Unread(hosts[0])
        return ()

    def _day(self, letters: str) -> str:
        """Return a moment; that of a day alone is 8:00, and that of an evening 20:00.

        Raises Unread if that is past, as 8:00 of today may be.
        """
        try:
            return self.moment(letters)
        except Unread:
            if not is_day(letters):
                raise
            found, end = (datetime.fromisoformat(self.moment(f"{letters} {clock}"))
                          for clock in ("8:00", "23:59"))  # fmt: skip
            if (found.date() - end.date()).days == 1:  # the next day is not today
                raise
            return f"{found:%Y-%m-%d %H:%M}"

    def _options(self, verb: str, *, to_group: bool) -> dict[str, str]:
        """Return the options of an order, as the command line takes them."""
        if verb == "hold":
            return self._until()
        if verb == "unbook":
            said = self.letters("from") or self.letters("time") or self.letters("until")
            return {"begin": self.moment(f"{said[0]} 12:00")[:10]} if said else {}
        if verb == "free":
            self.refuse("from")
        if verb in ("book", "free"):
            return self._booking()
        if verb not in ("retry", "edit"):
            return {}
        self.refuse("until", *(["command"] if verb == "edit" else []))
        found = self._of_job() | self._on_gpu()
        return found | ({"group": self.group()} if to_group else {})

    def _of_job(self) -> dict[str, str]:
        """Return the options of a job."""
        if not (self.letters("priority") or self.says_amount()):
            self.refuse("change")
        self.refuse("workload", "array", "folder", "cpus", "host_memory",
                     "notes")  # fmt: skip
        return self.said_of_job(self.relations())

    def said_of_job(self, related: Mapping[str, str]) -> dict[str, str]:
        """Return the options of a job whose letters were found. Raises Unread."""
        level, name = None, self.letters("name")
        if self.letters("priority") or not self.says_amount():
            for letters in self.letters("priority"):
                self._itself(letters)
            level = self.priority()
        lengths = self.lengths()
        found = {
            "gpus": self.number("count") if "gpus" not in related else None,
            "retries": self.number("retries"), "priority": level,
            "after": ",".join(map(str, self.jobs("after"))) or None,
            "after_any": ",".join(map(str, self.jobs("after_any"))) or None,
            "memory": None if "memory" in related else self.size_option("memory") or None,
            "timeout": self.length(lengths[0]) if lengths and "timeout" not in related else None,
            "begin": None if "begin" in related else self._begin(),
            "name": name[0] if name else None,
        }  # fmt: skip
        return {option: str(value) for option, value in found.items() if value is not None}

    def _begin(self) -> str | None:
        """Return when a job shall start: a moment, or so long from now, as in `in 2 hours`.

        Raises Unread for a moment by which it shall have ended.
        """
        ahead = self.ahead()
        if ahead and _ENDING.search(self.text):
            raise Unread(ahead[0])  # it shall have ended by then
        said = self.letters("begin") or ahead
        if len(said) > 1 and is_day(said[0]):  # "tonight, from 23:00 on"
            return self.moment(" ".join(said[:2]))
        for letters in said[:1]:
            before = self.text.partition(letters)[0]
            if _DEADLINE.search(before):
                raise Unread(letters)
            is_delay = re.search(r"(?i)(?<!\w)(?:in|dans|en|dentro de)\s*$", before)
            soon = _SOON.fullmatch(f"in {letters}" if is_delay else letters)
            return f"+{length_of(soon['length'])}" if soon else self._day(letters)
        return None

    def said_of_new_job(self) -> dict[str, str]:
        """Return the options of a job that is not there yet.

        Raises Unread for an amount in relation to another: it has none yet.
        """
        if self.relations(changed=False).keys() - {"tags"}:
            fields = ("memory", "timeout", "duration", "begin", "count")
            raise Unread(" ".join(one for field in fields for one in self.letters(field)))
        found = {"group": self.group(), "host_memory": self.size_option("host_memory"),
                 "cpus": str(self.number("cpus") or ""),
                 "tags": ",".join(self.letters("tag")),
                 "preemptible": "yes" * bool(self.marked("preemptible")),
                 "hold": "yes" * bool(self.marked("hold"))}  # fmt: skip
        if on_gpu := self._on_gpu():
            if self.number("count") not in (None, 1):
                raise Unread(" ".join(self.letters("gpus")))
            found |= {"gpus": "1", **on_gpu}
        return self.said_of_job({}) | {option: value for option, value in found.items() if value}

    def _on_gpu(self) -> dict[str, str]:
        """Return which GPU a job shall have: one by its number, or those of a model.

        Raises Unread for several, or for one that is said in other words.
        """
        said, models = self.letters("gpus"), self.letters("gpu_type")
        found = self.devices()
        if len(found) == 1:
            return {"gpu_type": f"GPU {found[0]}"}
        numbered = [one for one in said if re.search(r"\d{3}", one)]  # "the 4080" is a model
        if len(found) > 1 or len(said) > len(numbered):
            raise Unread(" ".join(said))
        return {"gpu_type": " ".join((*models, *numbered))} if models or numbered else {}

    def _moment(self, letters: str, last: str, after: str = "") -> str:
        """Return a moment; a day alone changes the day of the last one.

        Raises Unread for a length of time, as in `an hour later`.
        """
        if amounts.is_of_clock(letters):
            raise Unread(letters)
        try:
            found = self.moment(letters, after)
        except Unread:
            if not last:
                raise
            return self.moment(f"{letters} {last[11:]}", after)
        return f"{found} {last[11:]}".strip() if " " not in found else found

    def _is_whole_day(self, letters: str) -> bool:
        """Return whether letters name a day of the week or a date, without any time of it."""
        try:
            return is_whole_day(letters) or len(self.moment(letters)) == len("2026-12-01")
        except Unread:
            return False

    def _whole_day(self, letters: str) -> dict[str, str]:
        """Return the begin and the end of a day; what is left of today begins now."""
        last = datetime.fromisoformat(self.moment(f"{letters} 23:59")).date()
        until = {"until": f"{last + timedelta(days=1):%Y-%m-%d}"}
        is_today = last == datetime.fromtimestamp(self.now).date()
        return until if is_today else {"begin": f"{last:%Y-%m-%d}", **until}

    def _where(self, field: str) -> tuple[int, int]:
        """Return the place of the first letters of a field."""
        spans = zip(self.found.spans, self.found.places, strict=True)
        return next(place for (name, _), place in spans if name == field)

    def _booking(self) -> dict[str, str]:
        """Return from when to when GPUs are kept, and for which group."""
        found: dict[str, str] = {}
        last = self.state.order.options if self.state.order is not None else {}
        begin, until = self.letters("from"), self.letters("until")
        if begin and not until and (both := _FROM_TO.fullmatch(begin[0])) is not None:
            begin, until = [both["from"]], [both["to"]]
        is_end = begin or last or not until or not self._is_whole_day(until[0])
        if not (is_end or _IS_END.search(self.text[: self._where("until")[1]])):
            begin, until = until, []  # "le 12"
        if begin and until:
            begin = [of_same_month(begin[0], until[0], self.now)]
        which = self.letters("gpus") or self.letters("count")
        ends = until or last or self.letters("duration")
        if begin and which and not ends and self._is_whole_day(begin[0]):
            found |= self._whole_day(begin[0])
        elif begin and which and not ends and is_day(begin[0]):
            found["begin"] = self._day(begin[0])  # the answer asks for its end
        elif begin:
            found["begin"] = self._moment(begin[0], last.get("begin", ""))
        # "An hour longer, until 14:00" names a booking that exists, and is none from now on.
        length = self.letters("duration") if begin or last or not until else []
        if until:
            behind = found.get("begin", last.get("begin", ""))
            found["until"] = self._moment(until[0], last.get("until", ""), behind)
        elif begin and " " in last.get("until", ""):  # the same time of the other day
            found["until"] = f"{found['begin'][:10]} {last['until'][11:]}"
        elif length:
            whole = slice(*amounts.widened(self.text, *self._where("duration")))
            if last and amounts.is_related(self.text[whole]):
                raise Unread(self.text[whole])  # it is longer than before, or shorter
            found["until"] = f"+{self.length(length[0])}"
        if group := self.group():
            found["group"] = group
        return found
