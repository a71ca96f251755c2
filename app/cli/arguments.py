"""Read arguments of the command line.

Each function is an argparse type: it raises ArgumentTypeError with a message that says what is
expected.
"""

from __future__ import annotations

import re
import time
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Sequence
from typing import TypeVar

from scheduler.protocol import job_options
from scheduler.protocol.errors import UserError
from scheduler.protocol.units import parse_bytes, parse_moment, parse_seconds

T = TypeVar("T")
MAX_SECONDS = 86400.0


def add_job(parser: ArgumentParser) -> None:
    """Add the argument of a command on one job."""
    parser.add_argument("job", type=count, metavar="JOB", help="the job's number")


def integer(text: str) -> int:
    """Read a whole number, which may be negative."""
    try:
        return int(text)
    except ValueError as e:
        raise ArgumentTypeError(f"expected a whole number; got {text!r}") from e


def count(text: str) -> int:
    """Read a whole number that is not negative."""
    if not text.isascii() or not text.isdigit():
        raise ArgumentTypeError(f"expected a whole number, 0 or more; got {text!r}")
    return int(text)


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


def job_or_range(text: str) -> int | range:
    """Read a job's number, or a range of numbers such as 9-200."""
    if not (match := re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", text, re.ASCII)):
        raise ArgumentTypeError(f"expected a job's number, or a range such as 9-200; got {text!r}")
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first:
        raise ArgumentTypeError(f"write the range upwards, as {last}-{first}; got {text!r}")
    return range(first, last + 1) if match[2] else first


def job_list(text: str) -> tuple[int, ...]:
    """Read the numbers of jobs, separated by commas."""
    return tuple(count(part) for part in text.split(","))


def array_indices(text: str) -> list[int]:
    """Read the indices of an array of jobs, such as 0-9."""
    return _parse(job_options.parse_indices, text)


def memory(text: str) -> int:
    """Read an amount of memory, in bytes; 0 stands for none."""
    size = 0 if text == "0" else _parse(parse_bytes, text)
    if 0 < size < 2**20:
        raise ArgumentTypeError(f"{text} is less than 1 MiB. Add a unit, as in 20GiB")
    return size


def duration(text: str) -> float:
    """Read a span of time such as 2h, in seconds; 0 stands for none."""
    return 0.0 if text == "0" else _parse(parse_seconds, text)


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
