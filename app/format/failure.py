"""Why a job failed, the line of its log that shows it, and what to do about it. Free of Qt."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from gpudeck.language.text import Bytes, Message, Span, Text, phrase
from gpudeck.scheduler.protocol.jobs import Done, Failed, Job, Lost
from gpudeck.scheduler.protocol.memory_errors import OUT_OF_MEMORY
from gpudeck.scheduler.protocol.retries import retry_changes

LOG_END = 64 * 1024
"""Bytes at the end of a log that are searched for the cause."""
_MODULE = re.compile(r"ModuleNotFoundError: No module named '([^']+)'")
_FILE = re.compile(
    r"FileNotFoundError: .*?'([^']+)'|(?:can't open file|No such file or directory:?) '([^']+)'"
)
_ERROR = re.compile(r"^\s*([A-Za-z_][\w.]*(?:Error|Exception|Interrupt)\b.*)$")
_PORT = re.compile(r"Address already in use")


@dataclass(frozen=True)
class Remedy:
    """Describe how to queue the job again so that it may succeed."""

    title: Text
    """What a button says, such as "Retry with 40 GiB"."""
    changes: dict[str, Any]
    """The fields of Spec that differ."""


@dataclass(frozen=True)
class Failure:
    """Explain a failed job."""

    cause: Message
    line: str
    """The line of the log that shows the cause; empty where none does."""
    remedy: Remedy


def has_failed(job: Job) -> bool:
    """Return whether there is a failure to explain."""
    return isinstance(job.state, Failed | Lost)


def explain_failure(job: Job, log: str, largest: float | None) -> Failure:
    """Return why a job failed.

    Args:
        log: the end of what it printed.
        largest: bytes of the largest GPU; None where unknown.
    """
    state = job.state
    assert isinstance(state, Failed | Lost)
    again = Remedy(phrase("Retry"), {})
    if isinstance(state, Lost):
        return Failure(state.reason, "", again)
    lines = log.splitlines()
    line = _last(OUT_OF_MEMORY, lines)
    changes = retry_changes(job, log if line else "", largest)
    if line:
        return _memory_full(job, line, changes)
    if limit := changes.get("timeout"):
        text = phrase("It ran longer than its limit of {time}.", time=Span(job.spec.timeout or 0))
        title = phrase("Retry with a limit of {time}", time=Span(limit))
        return Failure(text, _last(_ERROR, lines), Remedy(title, changes))
    if line := _last(_MODULE, lines):
        name = _found(_MODULE, line)
        text = phrase(
            "Python found no module {name}: install it in the job's environment.", name=name
        )
        return Failure(text, line, again)
    if line := _last(_FILE, lines):
        text = phrase("The job found no file {name}.", name=_found(_FILE, line))
        return Failure(text, line, again)
    if line := _last(_PORT, lines):
        text = phrase("Another program uses the port: end it, or choose another port.")
        return Failure(text, line, again)
    return Failure(state.reason, _last(_ERROR, lines), again)


def attempts_text(job: Job) -> Text | None:
    """Return how many attempts failed before the newest one; None where none did."""
    if not job.tries:
        return None
    if isinstance(job.state, Done):
        return phrase("attempt {n}, after {failed} that failed", n=job.tries + 1, failed=job.tries)
    return phrase("attempt {n}", n=job.tries + 1)


def _memory_full(job: Job, line: str, changes: dict[str, Any]) -> Failure:
    """Explain that the memory of the GPU was full."""
    if not changes:
        text = phrase(
            "The memory of the GPU was full, and the job had the GPU to itself: make its batches "
            "smaller, or ask for a GPU with more memory."
        )
        return Failure(text, line, Remedy(phrase("Retry"), {}))
    memory, reserved = changes["memory"], Bytes(job.spec.memory or 0)
    text = phrase("The job needed more than its {size} of GPU memory.", size=reserved)
    title = (
        phrase("Retry with {size}", size=Bytes(memory))
        if memory
        else phrase("Retry with a whole GPU")
    )
    return Failure(text, line, Remedy(title, changes))


def _last(pattern: re.Pattern[str], lines: list[str]) -> str:
    """Return the last line that a pattern is found in; empty where there is none."""
    return next((line.strip() for line in reversed(lines) if pattern.search(line)), "")


def _found(pattern: re.Pattern[str], line: str) -> str:
    match = pattern.search(line)
    return next(filter(None, match.groups()), "") if match else ""
