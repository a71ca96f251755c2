"""Run a shell as a job: it lives in a terminal of its own, to which windows attach and detach.

    python -m gpudeck.app.sessions.terminal IDLE_SECONDS COMMAND [ARGUMENT ...]

A client sends frames (see `attach`); it receives what the terminal shows, beginning with the last
of it. The Unix socket is in a folder that only the user can open.
"""

from __future__ import annotations

import fcntl
import os
import pty
import selectors
import signal
import socket
import struct
import sys
import termios
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from gpudeck.app.sessions import files
from gpudeck.app.sessions.idle import IdleClock, cpu_seconds, look
from gpudeck.language.numbers import span
from gpudeck.scheduler.protocol import paths

INPUT, SIZE = b"i", b"s"
"""The kinds of frames: what was typed, and the rows and columns of the window."""
HEAD = struct.Struct("!cI")
"""The head of a frame: its kind, and the length of its body in bytes."""
WINDOW = struct.Struct("!HH")
CHECK_S = 5.0
_KEPT, _MOST, _UNSENT = 32 * 2**10, 2**20, 2**20
"""Bytes of output that a new window is shown, of a frame, and that wait for a slow window or for a
command that does not read, at most."""


class _Window:
    """Hold one client with the rest of its last frame, and what waits for it."""

    def __init__(self, connection: socket.socket, shown: bytes) -> None:
        self.connection, self.received, self.unsent = connection, b"", shown

    def frames(self) -> list[tuple[bytes, bytes]]:
        """Take the whole frames that have arrived. Raises OSError where the client is gone."""
        data = self.connection.recv(65536)
        if not data:
            raise ConnectionResetError("the window is gone")
        self.received += data
        found = []
        while len(self.received) >= HEAD.size:
            kind, length = HEAD.unpack_from(self.received)
            if length > _MOST:
                raise ConnectionResetError("the frame is too long")
            if len(self.received) < HEAD.size + length:
                break
            found.append((kind, self.received[HEAD.size : HEAD.size + length]))
            self.received = self.received[HEAD.size + length :]
        return found

    def flush(self) -> None:
        """Send as much as it takes now. Raises OSError where the client is gone, or too slow."""
        with suppress(BlockingIOError):
            while self.unsent:
                self.unsent = self.unsent[self.connection.send(self.unsent) :]
        if len(self.unsent) > _UNSENT:
            raise ConnectionResetError("the window does not read")


class Terminal:
    """Run the command in a terminal, and serve the windows."""

    def __init__(self, command: Sequence[str], idle: float) -> None:
        self._selector = selectors.DefaultSelector()
        self._windows: set[_Window] = set()
        self._shown, self._typed, self._used = b"", bytearray(), time.time()
        folder = files.own_folder()
        with paths.short(folder / files.SOCKET) as name:
            self._door = socket.socket(socket.AF_UNIX)
            self._door.bind(name)
        self._door.listen()
        self._door.setblocking(False)
        self.pid, self._master = pty.fork()
        if self.pid == 0:
            os.execvp(command[0], list(command))
        os.set_blocking(self._master, False)
        self._selector.register(self._door, selectors.EVENT_READ, self._accept)
        self._selector.register(self._master, selectors.EVENT_READ, self._show)
        self._clock = IdleClock(idle, look, cpu_seconds)

    def run(self) -> int:
        """Serve until the command ends or nobody uses it; return the exit status."""
        check = time.monotonic()
        while True:
            self._type()
            self._listen()
            for key, _ in self._selector.select(0.5):
                key.data()
            for window in tuple(self._windows):
                self._guard(window, window.flush)
            done, status = os.waitpid(self.pid, os.WNOHANG)
            if done:
                self._show()
                return os.waitstatus_to_exitcode(status) & 0xFF
            if time.monotonic() >= check:
                check = time.monotonic() + min(CHECK_S, self._clock.limit / 4 or CHECK_S)
                over = self._clock.check(self._used)
                idle = self._clock.limit
                files.write(files.Session(files.TERMINAL, self._clock.active, idle))
                if over:
                    print(f"The shell ends, as nobody used it for {span(idle)}.", flush=True)
                    self.hang_up()
                    return 0

    def hang_up(self) -> None:
        """Tell the command that its terminal is gone; the runner of the job ends what stays."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGHUP)

    def _accept(self) -> None:
        with suppress(OSError):
            connection, _ = self._door.accept()
            connection.setblocking(False)
            self._windows.add(_Window(connection, self._shown))
            self._used = time.time()

    def _listen(self) -> None:
        """Wait for what the windows send, but not while too much waits for the command."""
        full = len(self._typed) >= _UNSENT
        for window in self._windows:
            if full:
                self._ignore(window)
            elif window.connection not in self._selector.get_map():
                act = partial(self._guard, window, partial(self._take, window))
                self._selector.register(window.connection, selectors.EVENT_READ, act)

    def _ignore(self, window: _Window) -> None:
        if window.connection in self._selector.get_map():
            self._selector.unregister(window.connection)

    def _type(self) -> None:
        """Give the command as much of what was typed as it takes now."""
        try:
            while self._typed:
                del self._typed[: os.write(self._master, self._typed)]
        except BlockingIOError:
            pass  # it does not read now, which must not stop the windows
        except OSError:  # EIO: the command has closed its terminal
            self._typed.clear()
        writes = selectors.EVENT_WRITE if self._typed else 0
        self._selector.modify(self._master, selectors.EVENT_READ | writes, self._show)

    def _take(self, window: _Window) -> None:
        """Keep what was typed for the command, and pass on the size of the window."""
        for kind, body in window.frames():
            self._used = time.time()
            if kind == INPUT:
                self._typed += body
            elif kind == SIZE and len(body) == WINDOW.size:
                rows, columns = WINDOW.unpack(body)
                size = struct.pack("HHHH", rows, columns, 0, 0)
                fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)

    def _show(self) -> None:
        """Send what the terminal shows to all windows."""
        try:
            data = os.read(self._master, 65536)
        except (BlockingIOError, OSError):  # EIO: the command has closed its terminal
            return
        self._used = time.time()
        self._shown = (self._shown + data)[-_KEPT:]
        for window in self._windows:
            window.unsent += data

    def _guard(self, window: _Window, act: Callable[[], None]) -> None:
        """Act for a window, and forget it where its client is gone."""
        try:
            act()
        except OSError:
            self._ignore(window)
            window.connection.close()
            self._windows.discard(window)


def main(idle: float, command: list[str]) -> int:
    """Run the command in a terminal; return the exit status."""
    terminal = Terminal(command, idle)
    signal.signal(signal.SIGTERM, lambda *_: terminal.hang_up())
    print(f"To open this shell: gpudeck shell open {os.environ['GPUDECK_JOB']}", flush=True)
    return terminal.run()


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))
