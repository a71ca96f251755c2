"""Run the helper: a child of the daemon, and the only process that asks the driver to suspend.

A call to the driver can hang, so each is made in a thread of its own; the daemon limits its time
and replaces this process. What was suspended lives in the suspended process itself, and any later
helper can go on from there. The helper ends when the daemon closes its standard input.

    python -m gpudeck.scheduler.suspension.helper
"""

from __future__ import annotations

import os
import sys
import time
from threading import Lock, Thread

import msgspec

from gpudeck.scheduler.suspension.calls import Answer, Command, Done, DriverCall
from gpudeck.scheduler.suspension.driver import Driver

_DECODE = msgspec.json.Decoder(Command).decode
_ENCODE = msgspec.json.Encoder().encode
_WRITING = Lock()


def _send(answer: Answer) -> None:
    data = _ENCODE(answer) + b"\n"
    with _WRITING:
        while data:
            data = data[os.write(1, data) :]


def _carry_out(driver: Driver, command: Command) -> None:
    started = called = time.monotonic()
    state = None
    if isinstance(command, DriverCall):
        if command.release:
            driver.release(command.pid)
            called = time.monotonic()
        code, state = driver.call(command.call, command.pid, command.limit_ms)
    else:
        code = driver.hold(command.pid, command.rooms)
    name = driver.name(code) if code else ""
    _send(Done(command.id, code, name, state, time.monotonic() - called, called - started))


def main() -> int:
    """Introduce the helper, and carry out commands until the standard input ends."""
    driver = Driver()
    _send(driver.capability)
    for line in sys.stdin.buffer:
        Thread(target=_carry_out, args=(driver, _DECODE(line)), daemon=True).start()
    return 0


if __name__ == "__main__":
    try:
        code = main()
    except (BrokenPipeError, KeyboardInterrupt):
        code = 0
    os._exit(code)  # a thread may hang in the driver, and would keep the process
