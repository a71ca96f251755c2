"""Reserve the devices of a real daemon for a time by command, and cancel that."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.bookings import Booking
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Queued
from tests.integration.deck import kill_daemon, python, ready, running
from tests.integration.shell import Shell
from tests.support import eventually

UNTIL = "import os, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.01)"


def test_a_reserved_device_runs_the_jobs_of_its_group_only(alone: Shell, tmp_path: Path) -> None:
    go = tmp_path / "go"
    assert alone("reserve").startswith("Nothing is reserved. Example: gpudeck reserve 0 1")
    with Client() as deck:
        long = ready(deck).submit(python(UNTIL, go), gpus=1, name="long")
        running(deck, long)
    told = alone("reserve", "0", "--from", "+1h", "--until", "+2h", "--group", "night")
    assert told.startswith("Booking 1: CPU for group night from ")
    assert told.splitlines()[1].startswith("Job 1 may run on")
    line = alone.fails("reserve", "0", "--from", "+90m", "--until", "+2h")
    assert line.startswith("gpudeck: booking 1 keeps one of these GPUs for group night")
    go.touch()
    kill_daemon()
    with Client() as deck:
        deck.wait(long.id, 30)
        other = ready(deck).submit(["true"], gpus=1)
        state = eventually(lambda: _queued(deck, other.id))
        assert state.reason.startswith(
            "needs the CPU; 0 free: CPU is reserved for group night from"
        )
        assert deck.submit(["true"], gpus=1, timeout="30m").wait(30).status == "done"
        assert deck.submit(["true"], gpus=1, group="night").wait(30).status == "done"
        assert deck.job(other.id).status == "queued"
        assert "CPU: reserved for group night, " in alone("status")
        assert alone("reserve") == alone("reserve", "list")
        heads, line = alone("reserve", "list").splitlines()
        assert heads.split() == ["NUMBER", "GPUS", "FOR", "FROM", "UNTIL", "STATE"]
        assert line.split()[:4] == ["1", "CPU", "group", "night"] and line.endswith("Upcoming")
        assert alone.json("reserve", "list")["1"]["group"] == "night"
        assert alone("reserve", "cancel", "1") == "Booking 1 was cancelled.\n"
        assert deck.wait(other.id, 30).status == "done"
    assert "there is no booking 1" in alone.fails("reserve", "cancel", "1")
    for wrong in (["cancel"], ["cancel", "x"], ["list", "0"], ["list", "--until", "+1h"]):
        assert "Example: " in alone.fails("reserve", *wrong, status=2)


def _queued(deck: Client, number: int) -> Queued | None:
    state = deck.job(number).state
    return state if isinstance(state, Queued) and "reserved" in state.reason else None


def test_what_makes_no_reservation_is_refused(alone: Shell) -> None:
    with Client() as deck:
        ready(deck)
    assert "needs its end" in alone.fails("reserve", "0", status=2)
    assert "there is no GPU 9" in alone.fails("reserve", "9", "--until", "+1h")
    past = alone.fails("reserve", "0", "--from", "2020-01-01", "--until", "2020-01-02")
    assert "a booking ends after it begins, and in the future" in past
    line = alone.fails("reserve", "0", "--until", "+1h", "--user", "root")
    assert "a queue of your own has one user" in line
    assert "this machine has no user" in alone.fails(
        "reserve", "0", "--until", "+1h", "--user", "nobody-of-this-name"
    )
    assert "no device" not in alone("reserve")
    late = alone.fails("reserve", "0", "--until", "2999-01-01")
    assert late == "gpudeck: a time before 2106 is needed; got '2999-01-01'\n"
    assert "a time before 2106" in alone.fails("submit", "--begin", "2999-01-01", "true", status=2)
    with Client() as deck, pytest.raises(UserError, match="end must be below"):
        deck.reserve(Booking((deck.snapshot().devices[0].device.id,), time.time(), 1e300))
    alone("reserve", "0", "0", "--until", "+1h", "--group", "night")
    assert len(alone.json("reserve", "list")["1"]["gpus"]) == 1
