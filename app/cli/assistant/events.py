"""Show what the assistant waits for, and where its model runs."""

from __future__ import annotations

import re
import sys
from argparse import Namespace

from gpudeck.app.cli.output import show_progress
from gpudeck.assistant.host_protocol import DeviceChoice, Event, Waiting
from gpudeck.language.text import Message
from gpudeck.scheduler.protocol.progress import printable

_CPU_HINT = "--cpu: run on the CPU now"
_TOLD = set[str]()
"""The reasons that a script was told, without their numbers."""


def device(args: Namespace) -> DeviceChoice:
    """Return where the model runs."""
    return "cpu" if args.cpu else "auto"


def show_event(event: Event) -> None:
    """Show what the assistant waits for."""
    if isinstance(event, Waiting):
        show_wait(event.reason, event.cpu)


def show_wait(reason: Message, cpu: bool) -> None:
    """Show why something waits, and how to avoid a wait for a GPU if the CPU can do it.

    A script, which sees no progress line, is only told about a wait for a GPU, which may be long,
    and once for each reason, not at each second of a countdown.
    """
    hint = f"{_CPU_HINT}; " if cpu else ""
    show_progress(f"{hint}{reason}")
    without_numbers = re.sub(r"\d+", "", str(reason))
    if hint and not sys.stderr.isatty() and without_numbers not in _TOLD:
        _TOLD.add(without_numbers)
        sys.stderr.write(f"{printable(str(reason))} ({_CPU_HINT})\n")
