"""status: what the devices do now."""

from __future__ import annotations

import shutil
import sys
import time
from argparse import Namespace

from app.cli.output import colored, paint, say, say_json
from app.cli.terminal import status_lines
from app.format.job_line import describe
from scheduler.client import Client
from scheduler.protocol.devices import NA
from scheduler.protocol.fields import FIELDS, HEADLINE
from scheduler.protocol.snapshot import SLEEP_NOTICE, Snapshot, printable


def first_reading(deck: Client, timeout: float = 10.0, live: bool = True) -> Snapshot:
    """The daemon's snapshot once it has a reading; one without where none comes in time, or the devices are left to sleep.

    `live`: for somebody who looks.
    """
    end = time.monotonic() + timeout
    while True:
        snapshot = deck.snapshot(live)
        read = snapshot.devices and all(d.reading for d in snapshot.devices)
        if read or (not live and SLEEP_NOTICE in snapshot.notices) or time.monotonic() > end:
            return snapshot
        time.sleep(0.05)


def status(args: Namespace) -> int:
    with Client() as deck:
        snapshot = first_reading(deck)
    if args.json:
        say_json(printable(snapshot))
        return 0
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    for row in status_lines(snapshot, width):
        print(paint(row, colored(sys.stdout)).rstrip())
    for alert in snapshot.alerts:
        say(f"alert {alert.id}: {alert.text}")
    notes = {d.device.note for d in snapshot.devices if d.device.note} | set(snapshot.notices)
    for line in sorted(notes) + _reasons(snapshot):
        say(line)
    active = [j for j in snapshot.jobs if j.active]
    for job in active:
        say(f"job {job.id} ({job.spec.name}): {describe(job)}")
    if not active:
        say("no jobs wait or run")
    return 0


def _reasons(snapshot: Snapshot) -> list[str]:
    """Why a headline field has no value, once for each reason."""
    found: dict[str, None] = {}
    for state in snapshot.devices:
        for field in HEADLINE:
            if state.reading is not None and isinstance(value := state.reading.get(field), NA):
                found[f"{FIELDS[field].label}: N/A, {value.reason}"] = None
    return list(found)
