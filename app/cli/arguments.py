"""Read arguments of the command line.

Each function is an argparse type: it raises ArgumentTypeError with a message that says what is
expected.
"""

from __future__ import annotations

import re
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar, cast

from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.job_options import (
    JOB_OPTIONS,
    JobOptions,
    parse_indices,
    parse_time,
)
from gpudeck.scheduler.protocol.units import parse_bytes, parse_count, parse_moment

T = TypeVar("T")
MAX_SECONDS = 86400.0


def add_job(parser: ArgumentParser) -> None:
    """Add the argument of a command on one job."""
    parser.add_argument("job", type=count, metavar="JOB", help="the job's number")


def add_action(parser: ArgumentParser, *others: str) -> None:
    """Add what a command does with its entries: it lists them, or what one of `others` names."""
    actions = ("list", *others)
    parser.add_argument(
        "action", choices=actions, nargs="?", default="list", metavar="|".join(actions),
        help="what to do (default: list)",
    )  # fmt: skip


def number_or_name(text: str) -> int | str:
    """Read a job's number, or its name, which is no number."""
    return count(text) if text[:1].isdecimal() or not text.strip() else text


def add_job_options(parser: ArgumentParser, edit: bool = False) -> None:
    """Add the options of a job; with `edit`, those that can be changed."""
    for option in JOB_OPTIONS:
        if edit and not option.editable:
            continue
        flag, help_text = option.flag or f"--{option.name.replace('_', '-')}", option.help
        if edit:
            help_text = help_text.partition(" (default")[0]
        extra: dict[str, Any]
        if option.parse is None:
            extra = {"action": "store_true", "default": None}
        elif option.collect is None:
            extra = {"type": partial(_parse, option.parse), "metavar": option.metavar}
        else:
            extra = {"action": "append", "metavar": option.metavar}
            if edit:
                help_text += "; replaces the present ones; '' removes all"
        parser.add_argument(flag, dest=option.name, help=help_text, **extra)


def job_options(args: Namespace) -> JobOptions:
    """Return the options of a job that were given."""
    given: dict[str, Any] = {}
    for option in JOB_OPTIONS:
        value = getattr(args, option.name, None)
        if value is not None:
            given[option.name] = value if option.collect is None else option.collect(value)
    return cast(JobOptions, given)


def count(text: str) -> int:
    """Read a whole number that is not negative."""
    return _parse(parse_count, text)


def positive_count(text: str) -> int:
    """Read a whole number above 0."""
    if (number := count(text)) < 1:
        raise ArgumentTypeError(f"expected a whole number, 1 or more; got {text!r}")
    return number


def positive_seconds(text: str) -> float:
    """Read a number of seconds, up to a day."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= MAX_SECONDS:
        raise ArgumentTypeError(
            f"expected a number of seconds, above 0 and at most {MAX_SECONDS:.0f}; got {text!r}"
        )
    return value


def job_or_range(text: str) -> int | range | str:
    """Read a job's number, a range of numbers such as 9-200, or a name, which is no number."""
    if text.strip() and not text[:1].isdecimal():
        return text
    if not (match := re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", text, re.ASCII)):
        raise ArgumentTypeError(f"expected a job's number, or a range such as 9-200; got {text!r}")
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first:
        raise ArgumentTypeError(f"write the range upwards, as {last}-{first}; got {text!r}")
    return range(first, last + 1) if match[2] else first


def array_indices(text: str) -> list[int]:
    """Read the indices of an array of jobs, such as 0-9."""
    return _parse(parse_indices, text)


def duration(text: str) -> float:
    """Read a span of time such as 2h, in seconds; 0 stands for none."""
    return _parse(parse_time, text)


def size(text: str) -> int:
    """Read an amount of bytes, such as 4GiB; 0 is none."""
    return 0 if text.strip() == "0" else _parse(parse_bytes, text)


def moment(text: str) -> float:
    """Read a date, or a span of time before now, as seconds since the epoch."""
    return _parse(lambda given: parse_moment(given, time.time()), text)


def names_among(known: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    """Return a type that reads names separated by commas, each of which must be known."""

    def names(text: str) -> tuple[str, ...]:
        given = tuple(part.strip() for part in text.split(","))
        if unknown := [part for part in given if part not in known]:
            raise ArgumentTypeError(f"expected any of {', '.join(known)}; got {unknown[0]!r}")
        return given

    return names


def _parse(parse: Callable[[str], T], text: str) -> T:
    try:
        return parse(text)
    except UserError as e:
        raise ArgumentTypeError(str(e)) from e
