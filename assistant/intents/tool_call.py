"""A call of a tool of `assistant.intents.table` with typed arguments within their limits."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping

import msgspec

from assistant.intents.masks import filled
from assistant.intents.roles import Role
from assistant.intents.table import BY_NAME, Route
from scheduler.protocol.errors import UserError

Value = int | float | str
MAX_TEXT = 4000
"""The most characters of a command or a name."""


class ToolCall(msgspec.Struct, frozen=True):
    """Name the tool that a request needs, with its arguments.

    A job is a number, a name, or `last`.
    """

    role: Role
    tool: str
    arguments: dict[str, Value] = {}
    params: dict[str, str] = {}
    """The parameters of a workload that the request names."""

    @property
    def name(self) -> str:
        """Return the role and the tool, such as `operate cancel`."""
        return f"{self.role} {self.tool}"

    @property
    def line(self) -> str:
        """Return the call as a line, such as `operate cancel job=7`."""
        values = (self.arguments | self.params).items()
        return " ".join([self.name, *(f"{name}={value}" for name, value in values)])

    @property
    def acts(self) -> bool:
        """Return whether it changes something, so that a person must approve it."""
        return self.role == "operate" or (self.role, self.tool) == ("housekeep", "undo")

    def with_job(self, job: int) -> ToolCall:
        """Return the same call for the job with this number."""
        return msgspec.structs.replace(self, arguments=self.arguments | {"job": job})

    def job(self, name: str = "job") -> int | str | None:
        """Return the number or name of the job, or None if the call names none."""
        value = self.arguments.get(name)
        return value if value is None or isinstance(value, int) else str(value)

    def integer(self, name: str) -> int | None:
        """Return an argument that is a whole number, or None."""
        value = self.arguments.get(name)
        return value if isinstance(value, int) else None

    def number(self, name: str) -> float | None:
        """Return an argument that is a number, or None."""
        value = self.arguments.get(name)
        return float(value) if isinstance(value, int | float) else None

    def text(self, name: str) -> str:
        """Return an argument as text; empty if the call does not have it."""
        return str(self.arguments.get(name, ""))


def tool_call(role: Role, tool: str, /, **arguments: Value | None) -> ToolCall:
    """Return a call with the arguments that are not None.

    Raises ValueError for an unknown tool, argument or value.
    """
    given = {name: str(value) for name, value in arguments.items() if value is not None}
    known = BY_NAME.get((role, tool))
    if known is None:
        raise ValueError(f"there is no tool {role} {tool}")
    places = {argument.name: argument for argument in known.arguments}
    for name, value in given.items():
        if name not in places or not (places[name].slots or value in places[name].words):
            raise ValueError(f"the tool {role} {tool} takes no {name}={value}")
    return ToolCall(role, tool, {name: read_value(name, value) for name, value in given.items()})


def checked_call(given: ToolCall) -> ToolCall:
    """Check a call from another process as strictly as one of a model. Raises UserError."""
    try:
        read_again = tool_call(given.role, given.tool, **given.arguments)
    except ValueError as e:
        raise UserError(f"there is no such request: {e}") from e
    return msgspec.structs.replace(read_again, params=given.params)


def call_from_route(route: Route, values: Mapping[str, str]) -> ToolCall:
    """Return the call of a route with its slots filled. Raises ValueError.

    Each slot is filled separately, so that no value can add an argument.
    """
    return tool_call(
        _role(route.role),
        route.tool,
        **{name: filled(text, dict(values)) for name, text in route.arguments.items()},
    )


def _role(text: str) -> Role:
    role: Role = msgspec.convert(text, Role)
    return role


def read_value(name: str, text: str) -> Value:
    """Parse the value of an argument. Raises ValueError, which says what it takes."""
    return _READ[name](text) if name in _READ else text


def _whole(low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not re.fullmatch(r"\d{1,18}", text, re.ASCII) or not low <= int(text) <= high:
            raise ValueError(f"use a whole number from {low} to {high}, not {text[:40]!r}")
        return int(text)

    return read


def _amount(high: float) -> Callable[[str], float]:
    def read(text: str) -> float:
        if not re.fullmatch(r"\d{1,9}(\.\d{1,6})?", text, re.ASCII) or not 0 < float(text) <= high:
            raise ValueError(f"use a number above 0, up to {high:g}, not {text[:40]!r}")
        return float(text) if "." in text else int(text)

    return read


def _words(text: str) -> str:
    if not text.strip() or len(text) > MAX_TEXT or "\0" in text:
        raise ValueError(f"use 1 to {MAX_TEXT} characters")
    return text.strip()


def _job(text: str) -> Value:
    return _whole(0, 10**18)(text) if re.fullmatch(r"\d+", text, re.ASCII) else _words(text)


def _moment(text: str) -> str:
    for form in ("%H:%M", "%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M"):
        try:
            time.strptime(text, form)
        except ValueError:
            continue
        return text
    raise ValueError(f"use a time such as 14:30 or 2026-11-20, not {text[:40]!r}")


_READ: dict[str, Callable[[str], Value]] = {
    "job": _job,
    "other": _job,
    "gpu": _whole(0, 1023),
    "gpus": _whole(0, 1024),
    "pid": _whole(1, 2**22),
    "minutes": _amount(60 * 24 * 366),
    "hours": _amount(24 * 366),
    "days": _amount(366),
    "weeks": _amount(53),
    "since": _moment,
    "command": _words,
}
