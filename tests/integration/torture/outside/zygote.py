"""Run command lines of gpudeck, each in a forked process of its own, one after another.

Starting Python and importing the program takes most of a command's time; a fork has that behind it.
A request is a line of JSON on standard input: the arguments, and the files for the output and the
errors. The answer is a line with the process's number at its start, and one with its exit status.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from importlib import import_module

from gpudeck.app.cli.main import main

WARM = (
    "gpudeck.app.cli.queue.submit",
    "gpudeck.app.cli.queue.jobs",
    "gpudeck.app.cli.queue.cancel",
    "psutil",
    "gpudeck.scheduler.background.launch",
)


def serve() -> None:
    """Run the commands that arrive, until standard input ends."""
    for module in WARM:
        import_module(module)
    for line in sys.stdin:
        words, out, err = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _become(words, out, err)
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


def _become(words: list[str], out: str, err: str) -> None:
    """Run one command as a process that a shell started, and end."""
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number, name, flags in (
            (0, os.devnull, os.O_RDONLY),
            (1, out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
            (2, err, os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
        ):
            os.dup2(os.open(name, flags, 0o600), number)
        sys.argv = ["gpudeck", *words]
        status = main(words)
    except SystemExit as e:
        status = int(e.code or 0)
    except BaseException:  # noqa: BLE001 - as Python itself does at the end of a program
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    serve()
