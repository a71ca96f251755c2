"""Show what the assistant waits for, and where its model runs."""

from __future__ import annotations

import sys
from argparse import Namespace

from app.cli.output import show_progress
from assistant.messages import DeviceChoice, Event, Waiting
from scheduler.protocol.progress import printable


def device(args: Namespace) -> DeviceChoice:
    """Return where the model runs."""
    return "cpu" if args.cpu else "auto"


def show_event(event: Event) -> None:
    """Show what the assistant waits for.

    A script, which sees no progress line, is told about waits that may be long.
    """
    if not isinstance(event, Waiting):
        return
    hint = ""
    if event.cpu:
        hint = "--cpu: run on the CPU now"
    elif event.reason.startswith("waits for idle"):
        hint = "--now: do not wait"
    show_progress(f"{hint}; waiting: {event.reason}" if hint else f"waiting: {event.reason}")
    if hint and not sys.stderr.isatty():
        sys.stderr.write(f"{printable(event.reason)} ({hint})\n")
