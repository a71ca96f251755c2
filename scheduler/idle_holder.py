"""The process that holds a GPU for work that runs while the GPU is idle (see `when_idle`).

    python -m gpudeck.scheduler.idle_holder REPORT RESULT MEMORY COMMAND [ARG ...]

It leases a GPU, runs the command there, and writes to the descriptor REPORT how that ended. When
the GPU is needed, or whoever started it is gone, it ends the command at once, whatever that does.
The command gets the descriptor RESULT.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import subprocess
import sys
import threading
from contextlib import suppress

from gpudeck.language.text import Message, phrase
from gpudeck.scheduler.gpu_lease import GpuLease
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.when_idle import Outcome

_PR_SET_PDEATHSIG = 1


class _Holder:
    def __init__(self, report: int, result: int) -> None:
        self._report, self._result = report, result
        self._work: subprocess.Popen[bytes] | None = None
        self._starting = threading.Lock()

    def run(self, memory: int, words: list[str]) -> None:
        """Lease a GPU, run the command there, and report its exit status."""
        try:
            GpuLease(self._leave).take(memory)
        except UserError as e:
            self.end(Outcome("refused", e.message))
        try:
            with self._starting:  # an eviction waits until there is a process to end
                self._work = subprocess.Popen(words, pass_fds=(self._result,), process_group=0)
        except OSError as e:
            self.end(
                Outcome(
                    "raised",
                    UserError(
                        phrase("{command}: {error}", command=words[0], error=str(e.strerror))
                    ),
                )
            )
        assert self._work is not None
        self.end(Outcome("returned", self._work.wait()))

    def _leave(self, reason: Message) -> None:
        with self._starting:
            self.end(Outcome("evicted", reason))

    def end(self, outcome: Outcome) -> None:
        """End the command with all that it started, report the outcome, and end."""
        if self._work is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._work.pid, signal.SIGKILL)
        with suppress(BrokenPipeError):
            os.write(self._report, pickle.dumps(outcome))
        os._exit(0)


def main() -> None:
    """Hold a GPU for the command of the arguments."""
    report, result, memory, *words = sys.argv[1:]
    holder = _Holder(int(report), int(result))
    signal.signal(signal.SIGTERM, lambda *_: holder.end(Outcome("evicted", "")))
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    holder.run(int(memory), words)


if __name__ == "__main__":
    main()
