"""What a person asks for, as values: a query, whose answer is rows, or an order, which acts.

Both are the same whoever wrote them: the command line, the parser of requests, or a model.
"""

from __future__ import annotations

import time
from typing import Literal

import msgspec

Role = Literal["answer", "report", "housekeep", "operate"]
Target = int | str
"""A job's number or its name."""
NEWEST = -1
"""Stands for the newest job, whatever its name is."""


PREVIOUS = "previous"
"""The text of the other side of a comparison that is the earlier run of the same name."""


COST = "cost"
"""The text of a query of the energy of devices, and `to` of one of jobs, whose cost is asked for;
its amount is the price of a kWh."""


class Span(msgspec.Struct, frozen=True, omit_defaults=True):
    """Delimit a span of time, in seconds since the epoch."""

    since: float
    until: float
    point: bool = False
    """One moment was asked for, `since`; readings up to `until` stand for it."""


class Where(msgspec.Struct, frozen=True, omit_defaults=True):
    """Keep the rows whose measure is above or below a value, which is in the measure's unit."""

    measure: str
    above: float | None = None
    below: float | None = None


class Query(msgspec.Struct, frozen=True, omit_defaults=True, tag="query"):
    """Ask for rows. `gpudeck.assistant.query.table` says which subjects have which measures."""

    subject: str
    measure: str = ""
    """Empty: the subject's headline measures."""
    devices: tuple[int, ...] = ()
    """Indices of GPUs; empty: all devices."""
    exclude: tuple[int, ...] = ()
    """Indices of GPUs that are left out."""
    model: str = ""
    """Only GPUs whose model or name has these words."""
    jobs: tuple[Target, ...] = ()
    states: tuple[str, ...] = ()
    user: str = ""
    """Only processes or jobs of this user."""
    group: str = ""
    where: tuple[Where, ...] = ()
    time: Span | None = None
    """None: now."""
    aggregate: str = ""
    """One of the table's aggregates; empty: every row by itself."""
    extreme: bool = False
    """The row with the highest (`max`) or lowest (`min`) value is asked for, not the value."""
    when: bool = False
    """The moment of the highest or lowest value is asked for."""
    by: str = ""
    """Rows are added up by one of the table's groupings; without a measure they are counted."""
    order: Literal["", "up", "down"] = ""
    limit: int = 0
    """The most rows; of capacity, so many jobs at once; of jobs' output, the most lines of each,
    which are the first ones where `order` is `up`."""
    other: Query | None = None
    """What it is compared with."""
    amount: float = 0.0
    """Bytes that a job would need, or the value to convert."""
    unit: str = ""
    """The unit of the amount; of a cost, the currency that it is asked for in."""
    to: str = ""
    gpus: int = 0
    tag: str = ""
    """Only jobs with this tag."""
    ahead: float = 0.0
    """Energy or its cost is asked for so many seconds from now on, at the present power; of jobs,
    what runs then, or whether they have ended by then."""
    text: str = ""
    """Words to search for, or the name of a setting, an error or a command."""

    @property
    def role(self) -> Role:
        """Return the role of the assistant that answers."""
        found: Role = "answer"
        if self.subject in ("report", "debris"):
            found = "report" if self.subject == "report" else "housekeep"
        return found

    @property
    def name(self) -> str:
        """Return the role and the subject, such as `answer devices`."""
        return f"{self.role} {self.subject}"

    @property
    def line(self) -> str:
        """Return the query as one line of text."""
        return _line(self.name, self)

    @property
    def acts(self) -> bool:
        """Return False: it changes nothing."""
        return False


class Order(msgspec.Struct, frozen=True, omit_defaults=True, tag="order"):
    """Ask for a change. `gpudeck.assistant.query.table` says what each verb takes."""

    verb: str
    jobs: tuple[Target, ...] = ()
    states: tuple[str, ...] = ()
    """All jobs in these states."""
    group: str = ""
    user: str = ""
    """Only jobs of this user."""
    exclude: tuple[Target, ...] = ()
    devices: tuple[int, ...] = ()
    place: str = ""
    """`first`, `last`, or `before` or `after` the job `beside`."""
    beside: Target | None = None
    command: str = ""
    workload: str = ""
    params: dict[str, str] = {}
    options: dict[str, str] = {}
    """What is said about a new job: values by the names of JOB_OPTIONS, as the command line takes
    them. Jobs in `after` may be named. A booking has `begin`, `until` and `group`; one that ends
    has the day of its `begin`; the verbs
    `free`, `hold` and `suspend` have `until`."""
    changes: dict[str, str] = {}
    """What is said of options in relation to what the job has, by the names of JOB_OPTIONS: `more`
    or `less` without an amount, `x2`, `+4h`, `-1`, or `?4h` for one that is open."""
    number: int | None = None
    """The PID of a process, the number of an alert, a priority, the limit of a group, or how many
    GPUs are booked where none is named."""
    setting: str = ""
    text: str = ""
    """The value of a setting, a note, a name, or the kind of debris."""

    @property
    def role(self) -> Role:
        """Return the role of the assistant that carries it out."""
        return "housekeep" if self.verb == "undo" else "operate"

    @property
    def name(self) -> str:
        """Return the role and the verb, such as `operate cancel`, which permissions name."""
        return f"{self.role} {self.verb}"

    @property
    def line(self) -> str:
        """Return the order as one line of text."""
        return _line(self.name, self)

    @property
    def acts(self) -> bool:
        """Return True."""
        return True


Request = Query | Order
_LAST = 2.0**33
"""Seconds since 1970 beyond which a number is no moment."""
_YEAR_S = 366 * 24 * 3600.0
"""Seconds since 1970 that are a moment, and no length of time, in a request."""


def _line(name: str, request: Request) -> str:
    """Return the name and all fields that differ from their defaults."""
    fields = msgspec.to_builtins(request)
    parts = [
        f"{field}={_shown(value)}"
        for field, value in fields.items()
        if field not in ("type", "subject", "verb")
    ]
    return " ".join([name, *parts])


def _shown(value: object) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(_shown, value))
    if isinstance(value, dict):
        return "(" + " ".join(f"{key}={_shown(part)}" for key, part in value.items()) + ")"
    if isinstance(value, float) and _YEAR_S < value < _LAST:
        return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(value))
    return "newest" if value == NEWEST and value is not True else str(value)
