"""alerts: what is the matter now, and what was."""

from __future__ import annotations

from argparse import Namespace

from app.cli.output import say, say_json, table
from app.format.values import clock, duration
from scheduler.client import Client
from scheduler.protocol.snapshot import Alert


def alerts(args: Namespace) -> int:
    """List them, those that are raised first, or acknowledge one. Exit status 0, as an alert is no failure of ours."""
    with Client() as deck:
        if args.acknowledge is not None:
            deck.acknowledge(args.acknowledge)
        now, log = deck.snapshot().time, deck.alerts(args.limit)
    if args.json:
        say_json(log)
    elif not log:
        say("no alert so far")
    else:
        ordered = sorted(log, key=lambda a: (a.cleared is not None, -a.id))
        table([("ALERT", "STATE", "SINCE", "LASTED", "WHAT"), *(_row(a, now) for a in ordered)])
    return 0


def _row(alert: Alert, now: float) -> tuple[str, ...]:
    state = "over" if alert.cleared is not None else "seen" if alert.acknowledged else "raised"
    lasted = duration((now if alert.cleared is None else alert.cleared) - alert.since)
    return str(alert.id), state, clock(alert.since, now), lasted, alert.text
