"""Print a text to paste into a bug report."""

from __future__ import annotations

from argparse import Namespace

from app.cli.output import print_result
from app.settings.diagnostics import diagnostics
from scheduler.client import Client
from scheduler.protocol.errors import DaemonGone


def run(args: Namespace) -> int:
    """Print the diagnostics; if no daemon runs, leave out what only a daemon knows."""
    try:
        with Client(start=False, timeout=5.0) as client:
            text = diagnostics(client.snapshot(), client.alerts(20))
    except DaemonGone:
        text = diagnostics(None)
    print_result(args, {"diagnostics": text}, *text.splitlines())
    return 0
