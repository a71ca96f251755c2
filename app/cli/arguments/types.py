"""What the words on a command line are read as. Each raises ArgumentTypeError, which says what is needed."""

from __future__ import annotations

import re
import time
from argparse import ArgumentTypeError
from collections.abc import Callable
from typing import TypeVar

from scheduler.protocol import job_options
from scheduler.protocol.errors import UserError
from scheduler.protocol.search import OUTCOMES
from scheduler.protocol.units import parse_bytes, parse_moment, parse_seconds
from scheduler.verbs.devices import MAX_POINTS

T = TypeVar("T")


def kinds(text: str) -> tuple[str, ...]:
    from assistant.housekeeping import KINDS

    wanted = tuple(part.strip() for part in text.split(","))
    if unknown := [part for part in wanted if part not in KINDS]:
        raise ArgumentTypeError(f"there is no kind {unknown[0]!r}. There are: {', '.join(KINDS)}")
    return wanted


def count(text: str) -> int:
    if not text.isdigit():
        raise ArgumentTypeError(f"a whole number, 0 or more, is needed; got {text!r}")
    return int(text)


def jobs(text: str) -> int | range:
    if not (match := re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", text, re.ASCII)):
        raise ArgumentTypeError(
            f"the number of a job, or a range such as 9-200, is needed; got {text!r}"
        )
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first:
        raise ArgumentTypeError(f"ranges go upwards, as in {last}-{first}; got {text!r}")
    return range(first, last + 1) if match[2] else first


def integer(text: str) -> int:
    try:
        return int(text)
    except ValueError as e:
        raise ArgumentTypeError(f"a whole number, also below 0, is needed; got {text!r}") from e


def some(text: str) -> int:
    if (number := count(text)) < 1:
        raise ArgumentTypeError(f"a whole number, 1 or more, is needed; got {text!r}")
    return number


def points(text: str) -> int:
    if not 1 <= (number := count(text)) <= MAX_POINTS:
        raise ArgumentTypeError(f"a number from 1 to {MAX_POINTS} is needed; got {text!r}")
    return number


def amount(text: str) -> int:
    amount = 0 if text == "0" else _understood(parse_bytes, text)
    if 0 < amount < 2**20:
        raise ArgumentTypeError(
            f"{text} is less than 1 MiB: say with a unit what is meant, such as 20GiB"
        )
    return amount


def seconds(text: str) -> float:
    return 0.0 if text == "0" else _understood(parse_seconds, text)


def indices(text: str) -> list[int]:
    return _understood(job_options.parse_indices, text)


def moment(text: str) -> float:
    return _understood(lambda given: parse_moment(given, time.time()), text)


def outcomes(text: str) -> tuple[str, ...]:
    wanted = tuple(part.strip() for part in text.split(","))
    if unknown := [part for part in wanted if part not in OUTCOMES]:
        raise ArgumentTypeError(f"no job is {unknown[0]!r}. There are: {', '.join(OUTCOMES)}")
    return wanted


def ids(text: str) -> tuple[int, ...]:
    return tuple(count(part) for part in text.split(","))


def _understood(parse: Callable[[str], T], text: str) -> T:
    try:
        return parse(text)
    except UserError as e:
        raise ArgumentTypeError(str(e)) from e


def positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 86400:
        raise ArgumentTypeError(f"a number of seconds is needed; got {text!r}")
    return value
