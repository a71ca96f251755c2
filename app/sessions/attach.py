"""Attach this terminal to the shell of a job, until the shell ends or the person detaches."""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import socket
import sys
import termios
import tty
from pathlib import Path

from gpudeck.app.sessions.terminal import HEAD, INPUT, SIZE, WINDOW
from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.errors import UserError

DETACH = b"\x1d"
"""Ctrl+], which leaves the shell running."""


def attach(file: Path) -> bool:
    """Show the shell behind a socket in this terminal.

    Returns:
        True if the shell ended, False if the person detached.

    Raises:
        UserError: Nobody listens, or there is no terminal.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError(phrase("a shell needs a terminal. Run this command in one"))
    door = _connect(file)
    keys, screen = sys.stdin.fileno(), sys.stdout.fileno()
    before = termios.tcgetattr(keys)
    resized = signal.signal(signal.SIGWINCH, lambda *_: _send_size(door))
    try:
        tty.setraw(keys, termios.TCSADRAIN)  # what was typed ahead goes to the shell
        _send_size(door)
        return _exchange(door, keys, screen)
    finally:
        signal.signal(signal.SIGWINCH, resized)
        termios.tcsetattr(keys, termios.TCSADRAIN, before)
        door.close()


def _connect(file: Path) -> socket.socket:
    door = socket.socket(socket.AF_UNIX)
    try:
        with paths.short(file) as name:
            door.connect(name)
    except OSError as e:
        door.close()
        raise UserError(phrase("the shell has ended, or has not begun yet")) from e
    return door


def _exchange(door: socket.socket, keys: int, screen: int) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(door, selectors.EVENT_READ)
        selector.register(keys, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is door:
                    try:
                        data = door.recv(65536)
                    except ConnectionResetError:
                        data = b""
                    if not data:
                        return True
                    _write(screen, data)
                else:
                    typed = os.read(keys, 4096)
                    if not typed or DETACH in typed:
                        return False
                    door.sendall(HEAD.pack(INPUT, len(typed)) + typed)


def _write(screen: int, data: bytes) -> None:
    while data:
        data = data[os.write(screen, data) :]


def _send_size(door: socket.socket) -> None:
    columns, rows = shutil.get_terminal_size()
    door.sendall(HEAD.pack(SIZE, WINDOW.size) + WINDOW.pack(rows, columns))
