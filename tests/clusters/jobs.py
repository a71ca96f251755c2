"""What jobs in clusters do in the tests: each appends to a file that it ran, by which attempt and as which process."""

from __future__ import annotations

from pathlib import Path

from scheduler.client import Client
from scheduler.protocol.jobs import Job, Running
from tests.integration.deck import log_of

WAIT_S = 120.0
RAN = 'echo "$GPUDECK_JOB $GPUDECK_ATTEMPT $$" >> "$0"; '
HOLD = RAN + 'echo up; while [ ! -e "$1" ]; do sleep 0.1; done; echo down'


def shell(script: str, *arguments: object) -> list[str]:
    return ["sh", "-c", script, *map(str, arguments)]


def lines(ran: Path) -> list[list[str]]:
    """Of each run: job, attempt, pid."""
    return [line.split() for line in ran.read_text().splitlines()] if ran.exists() else []


def up(job: Job) -> bool:
    return "up" in log_of(job)


def state(deck: Client, job: Job) -> Running:
    found = deck.job(job.id).state
    assert isinstance(found, Running), found
    return found
