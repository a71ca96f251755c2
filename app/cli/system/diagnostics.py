"""Print a text to paste into a bug report."""

from __future__ import annotations

from argparse import Namespace

from gpudeck.app.cli.output import print_result
from gpudeck.app.settings.diagnostics import diagnostics
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import DaemonGone


def run(args: Namespace) -> None:
    """Print the diagnostics; if no daemon runs, leave out what only a daemon knows."""
    try:
        with Client(start=False, timeout=5.0) as client:
            text = diagnostics(client.snapshot(), client.alerts(20))
    except DaemonGone:
        text = diagnostics(None)
    print_result(args, {"diagnostics": text}, *text.splitlines())
