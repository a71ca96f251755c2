"""Make orders of what the encoder found."""

from __future__ import annotations

import re

from gpudeck.assistant.intents.moments import with_digits
from gpudeck.assistant.intents.names import named
from gpudeck.assistant.intents.order_options import OrderOptions
from gpudeck.assistant.intents.setting_words import value_in
from gpudeck.assistant.intents.tokens import tokens
from gpudeck.assistant.intents.values import STATES, Unread
from gpudeck.assistant.query.request import Order, Target
from gpudeck.assistant.query.setting_units import in_setting_unit
from gpudeck.assistant.query.table import VERBS

_VERBS = {"cancel": "cancel", "retry": "retry", "kill": "kill", "drain": "drain",
          "undrain": "undrain", "limit": "limit", "book": "book", "note": "note", "undo": "undo",
          "edit": "edit", "move": "move", "acknowledge": "acknowledge", "set": "set",
          "free": "free", "unbook": "unbook"}  # fmt: skip
_BEFORE = re.compile(
    r"(?i)(?<!\w)(?:before|ahead of|in front of|vor|avant|devant|antes|delante)(?: de[l]?)?"
    r"(?: (?:job|the|le|el|la|dem|den|des|du))*\s*$"
)
_LETTERS_OF = {"devices": "gpus", "exclude": "except"}
"""The fields of a reading whose letters have another name in an order."""
_NUMBERS = {"limit": "number", "acknowledge": "alert", "kill": "pid", "book": "count"}
"""The field that is the number of an order."""
_OF_ONE_JOB = frozenset({"retry", "edit"})
"""Verbs of orders that may say an amount in relation to what a job has."""
_BOOKING_NUMBER = re.compile(
    r"(?i)(?<!\w)(?:bookings?|buchung(?:en)?|r[eé]servations?|reservas?|reservaci[oó]n(?:es)?)"
    r"\s+(?:n\S{1,5}\s+)?#?\d+"
)
"""It is no GPU's: a booking is described by its GPUs, its day, or whom it is for."""
_PLACES = re.compile(
    r"(?i)\d+ (?:places?|positions?|spots?|slots?|pl[aä]tze?|stellen?|rangs?|puestos?"
    r"|posicion(?:es)?|lugar(?:es)?)(?!\w)"
)


class Orders(OrderOptions):
    """Read orders."""

    def read(self, name: str) -> Order:
        """Return the order of a verb.

        Raises:
            Unread: A part of it has no value, or no order has a place for it.
        """
        self.refuse_other_times(name)
        self.refuse_two_values()
        self.refuse_counts()
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
            options=self.options(verb, to_group=to_group),
            changes=self.relations() if verb in _OF_ONE_JOB else {},
            place=self._place() if verb == "move" else "",
            beside=self._beside() if verb == "move" else None,
            number=self._number_of(verb), text=self._text(verb), command=self._flags(verb),
            setting=self.setting() if verb == "set" else "",
            user=self.user(),
        )  # fmt: skip
        for field in ("devices", "group", "states", "jobs", "user", "exclude"):
            if getattr(order, field) and field not in VERBS[verb].takes:
                raise Unread(" ".join(self.letters(_LETTERS_OF.get(field, field))) or field)
        self.refuse_rest()
        return order

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
            self.itself(self.letters(field)[0])
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

    def _gpus_of_order(self, verb: str, *, named: bool) -> tuple[int, ...]:
        """Return the GPUs of an order, or those that a job has that is named.

        Jobs that are run again or changed may get a GPU by it (`order_options`).
        """
        letters = [one for one in self.letters("gpus") if not re.search(r"\d", one)]
        if letters and verb in ("drain", "undrain", "book", "free", "kill"):
            raise Unread(letters[0])
        if verb == "unbook" and (number := _BOOKING_NUMBER.search(self.text)):
            raise Unread(number[0])
        if "jobs" not in VERBS[verb].takes and "devices" in VERBS[verb].takes:
            return self.devices()
        if not named:
            self.refuse("gpus")
        return () if verb in _OF_ONE_JOB else self.devices()
