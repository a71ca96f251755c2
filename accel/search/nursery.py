"""Start processes that have torch loaded, in milliseconds: one process forks them on request.

The nursery itself computes nothing, so that a fork finds no threads and no CUDA context. Whoever
is forked runs `gpudeck.accel.search.worker.serve` on a socket of its own, and ends when the
nursery ends, which ends when the socket of its owner closes.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from gpudeck.accel.search.candidate_protocol import Ended, Hung, read_frame, write_frame

_PR_SET_PDEATHSIG = 1
_START_S = 120.0
"""How long loading torch may take on a busy machine."""
_PID = struct.Struct("i")


class Child:
    """Own one process that was forked: its socket, and the means to stop and to end it."""

    def __init__(self, pid: int, channel: socket.socket) -> None:
        self.pid = pid
        self._fd = os.pidfd_open(pid)
        self._channel = channel

    def ask(self, request: Any, patience_s: float) -> bytes:
        """Send a request and return the reply, as the process wrote it.

        Time in which the process could run and had no processor does not count: a busy machine
        makes nobody hang.

        Raises:
            Hung: if there is no reply in time.
            Ended: if the process ended.
        """
        self._channel.settimeout(patience_s)
        try:
            write_frame(self._channel, request)
            end = time.monotonic() - self._delayed_s() + patience_s
            while (left := end + self._delayed_s() - time.monotonic()) > 0:
                if select.select([self._channel], [], [], left)[0]:
                    return read_frame(self._channel)
        except TimeoutError as e:
            raise Hung from e
        except OSError as e:
            raise Ended from e
        raise Hung

    def _delayed_s(self) -> float:
        """Return for how long the process could run and had no processor, 0 if it has ended.

        It is the second number of `schedstat`, in nanoseconds, of the process's first thread, which
        answers requests (Linux, Documentation/scheduler/sched-stats.rst).
        """
        try:
            return int(Path(f"/proc/{self.pid}/schedstat").read_text().split()[1]) / 1e9
        except (OSError, IndexError):  # it is empty once the process has ended
            return 0.0

    def pause(self) -> None:
        """Stop the process, with all its threads."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let the process run again."""
        self._signal(signal.SIGCONT)

    def end(self) -> None:
        """End the process and all that it started."""
        try:
            family = psutil.Process(self.pid).children(recursive=True)
        except psutil.Error:
            family = []
        for process in family:
            try:
                process.kill()
            except psutil.Error:
                continue
        self._signal(signal.SIGKILL)
        select.select([self._fd], [], [], 10.0)
        self._channel.close()
        os.close(self._fd)

    def _signal(self, number: signal.Signals) -> None:
        try:
            signal.pidfd_send_signal(self._fd, number)
        except ProcessLookupError:
            pass  # it has ended, which the next request will tell


class Nursery:
    """Own the process that forks."""

    def __init__(self) -> None:
        self._channel, theirs = socket.socketpair()
        self._forking = threading.Lock()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
            )
        self._channel.settimeout(_START_S)

    def fork(self, descriptors: Sequence[int] = ()) -> Child:
        """Return a new process, which inherits these descriptors in this order.

        Raises:
            RuntimeError: if the nursery has ended.
        """
        ours, theirs = socket.socketpair()
        try:
            with theirs, self._forking:
                socket.send_fds(self._channel, [b"f"], [theirs.fileno(), *descriptors])
                answer = self._channel.recv(_PID.size)
        except OSError as e:
            ours.close()
            raise RuntimeError(f"the process that starts others has ended: {e}") from e
        if len(answer) != _PID.size:
            ours.close()
            raise RuntimeError("the process that starts others has ended")
        return Child(_PID.unpack(answer)[0], ours)

    def close(self) -> None:
        """End the process, and with it all that it forked."""
        self._channel.close()
        self._process.wait()


def _serve(channel: socket.socket) -> None:
    from gpudeck.accel.search import listing, worker  # loads torch

    listing.prepare()
    with contextlib.suppress(ImportError):  # without Triton there are no templates for GPUs
        from gpudeck.accel.search.fusion import template  # noqa: F401 - loads Triton
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who were forked
    me = os.getpid()
    while True:
        word, descriptors, _, _ = socket.recv_fds(channel, 1, 16)
        if not word:
            return
        pid = os.fork()
        if pid == 0:
            channel.close()
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != me:
                os._exit(1)
            os.setsid()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            worker.serve(socket.socket(fileno=descriptors[0]), descriptors[1:])
        for descriptor in descriptors:
            os.close(descriptor)
        channel.sendall(_PID.pack(pid))


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
