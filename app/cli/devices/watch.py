"""Show the devices live in a terminal."""

from __future__ import annotations

import os
import select
import shutil
import sys
import termios
import time
import tty
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from gpudeck.app.cli.devices.screen import watch_lines
from gpudeck.app.cli.output import render, supports_color
from gpudeck.language.text import phrase
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.devices import Detail
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.snapshot import everywhere, printable

_DETAILS_S = 2.0
"""Seconds between two looks at the processes, which cost more than a reading."""
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_HOME, _REST_OF_LINE, _REST_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"


def run(args: Namespace) -> None:
    """Follow the daemon until interrupted; with --json, print each snapshot on a line."""
    with Client() as client:
        if args.json:
            for snapshot in client.subscribe():
                _write(msgspec.json.encode(printable(snapshot)).decode() + "\n")
        if not sys.stdout.isatty() or os.environ.get("TERM", "dumb") == "dumb":
            raise UserError(
                phrase(
                    "watch needs a terminal. In a script, use gpudeck status --json "
                    "or gpudeck watch --json"
                )
            )
        with Client() as second, _screen():
            _follow(client, second)


def _follow(client: Client, second: Client) -> None:
    """Draw each snapshot until the user presses q; `second` reads the processes meanwhile."""
    details: tuple[Detail, ...] = ()
    read_at = 0.0
    for snapshot in client.subscribe():
        if time.monotonic() - read_at >= _DETAILS_S:
            details, read_at = second.details(), time.monotonic()
        size = shutil.get_terminal_size()
        lines = watch_lines(everywhere(snapshot), *size, details)
        text = (render(line, supports_color(sys.stdout)) + _REST_OF_LINE for line in lines)
        _write(_HOME + "\r\n".join(text) + _REST_OF_SCREEN)
        if _quits():
            return


@contextmanager
def _screen() -> Iterator[None]:
    """Draw on a screen of its own, and read keys as they are pressed."""
    typed = termios.tcgetattr(sys.stdin) if sys.stdin.isatty() else None
    if typed is not None:
        tty.setcbreak(sys.stdin)
    _write(_ENTER)
    try:
        yield
    finally:
        _write(_LEAVE)
        if typed is not None:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, typed)


def _quits() -> bool:
    """Return whether the user pressed q since the last look."""
    if not sys.stdin.isatty() or not select.select([sys.stdin], [], [], 0)[0]:
        return False
    return b"q" in os.read(sys.stdin.fileno(), 64).lower()


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
