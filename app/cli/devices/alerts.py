"""List current and past alerts, or acknowledge one."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from gpudeck.app.cli import arguments
from gpudeck.app.cli.output import print_list
from gpudeck.app.format.values import clock, duration
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.snapshot import Alert


def add_arguments(parser: ArgumentParser) -> None:
    """Add the number of alerts, and the alert to acknowledge."""
    parser.add_argument(
        "--limit",
        type=arguments.positive_count,
        default=20,
        metavar="N",
        help="the number of alerts to list (default: 20)",
    )
    parser.add_argument(
        "--acknowledge", type=arguments.count, metavar="ALERT", help="mark this alert as seen"
    )


def run(args: Namespace) -> None:
    """Print the alerts, current ones first."""
    with Client() as client:
        if args.acknowledge is not None:
            client.acknowledge(args.acknowledge)
        now, alerts = client.snapshot().time, client.alerts(args.limit)
    ordered = sorted(alerts, key=lambda alert: (alert.cleared is not None, -alert.id))
    print_list(
        args, alerts, ("ALERT", "STATE", "SINCE", "LASTED", "DESCRIPTION"),
        [_row(alert, now) for alert in ordered], "No alerts so far.",
    )  # fmt: skip


def _row(alert: Alert, now: float) -> tuple[str, ...]:
    state = "acknowledged" if alert.acknowledged else "active"
    end = now
    if alert.cleared is not None:
        state, end = "resolved", alert.cleared
    return (
        str(alert.id),
        state,
        clock(alert.since, now),
        duration(end - alert.since),
        str(alert.text),
    )
