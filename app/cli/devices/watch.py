"""Show the devices live in a terminal."""

from __future__ import annotations

import os
import shutil
import sys
from argparse import Namespace

import msgspec

from app.cli.devices.screen import watch_lines
from app.cli.output import render, supports_color
from scheduler.client import Client
from scheduler.protocol.errors import UserError
from scheduler.protocol.snapshot import everywhere, printable

_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_HOME, _REST_OF_LINE, _REST_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"


def run(args: Namespace) -> int:
    """Follow the daemon until interrupted; with --json, print each snapshot on a line."""
    with Client() as client:
        if args.json:
            for snapshot in client.subscribe():
                _write(msgspec.json.encode(printable(snapshot)).decode() + "\n")
        if not sys.stdout.isatty() or os.environ.get("TERM", "dumb") == "dumb":
            raise UserError(
                "watch needs a terminal. In a script, use gpudeck status --json "
                "or gpudeck watch --json"
            )
        _write(_ENTER)
        try:
            for snapshot in client.subscribe():
                lines = watch_lines(everywhere(snapshot), *shutil.get_terminal_size())
                text = (render(line, supports_color(sys.stdout)) + _REST_OF_LINE for line in lines)
                _write(_HOME + "\r\n".join(text) + _REST_OF_SCREEN)
        finally:
            _write(_LEAVE)
    return 0


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
