"""watch: the devices, live in a terminal."""

from __future__ import annotations

import os
import shutil
import sys
from argparse import Namespace

import msgspec

from app.cli.output import colored, paint
from app.cli.terminal import watch_lines
from scheduler.client import Client
from scheduler.protocol.errors import UserError
from scheduler.protocol.snapshot import printable

_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_HOME, _REST_OF_LINE, _REST_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"


def watch(args: Namespace) -> int:
    """Follow the daemon until interrupted; with --json each state as one line."""
    with Client() as deck:
        if args.json:
            for snapshot in deck.subscribe():
                sys.stdout.write(msgspec.json.encode(printable(snapshot)).decode() + "\n")
                sys.stdout.flush()
        if not sys.stdout.isatty() or os.environ.get("TERM", "dumb") == "dumb":
            raise UserError(
                "watch needs a terminal. In a script: gpudeck status --json, or gpudeck watch --json"
            )
        color = colored(sys.stdout)
        sys.stdout.write(_ENTER)
        try:
            for snapshot in deck.subscribe():
                width, height = shutil.get_terminal_size()
                lines = (
                    paint(line, color) + _REST_OF_LINE
                    for line in watch_lines(snapshot, width, height)
                )
                sys.stdout.write(_HOME + "\r\n".join(lines) + _REST_OF_SCREEN)
                sys.stdout.flush()
        finally:
            sys.stdout.write(_LEAVE)
            sys.stdout.flush()
    return 0
