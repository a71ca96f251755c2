"""Describe jobs for the tests: each appends its number, attempt and pid to a file."""

from __future__ import annotations

from pathlib import Path

from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.jobs import Job, Running
from tests.integration.deck import log_of

WAIT_S = 120.0
RAN = 'echo "$GPUDECK_JOB $GPUDECK_ATTEMPT $$" >> "$0"; '
HOLD = RAN + 'echo up; while [ ! -e "$1" ]; do sleep 0.1; done; echo down'


def shell(script: str, *arguments: object) -> list[str]:
    """Return the command for a shell script."""
    return ["sh", "-c", script, *map(str, arguments)]


def lines(ran: Path) -> list[list[str]]:
    """Return the job, the attempt and the pid of each run."""
    return [line.split() for line in ran.read_text().splitlines()] if ran.exists() else []


def up(job: Job) -> bool:
    """Return whether the job printed that it runs."""
    return "up" in log_of(job)


def state(deck: Client, job: Job) -> Running:
    """Return the state of a job that runs."""
    found = deck.job(job.id).state
    assert isinstance(found, Running), found
    return found
