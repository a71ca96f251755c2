"""A real session bus with a program on it that takes notices and opens files, as desktops do."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

_SERVER = """
import json, sys, threading
from jeepney import (DBusAddress, HeaderFields, MessageType, message_bus, new_method_call,
                     new_method_return, new_signal)
from jeepney.io.blocking import open_dbus_connection
NAME, PATH = "org.freedesktop.Notifications", "/org/freedesktop/Notifications"

def tell(**values):
    print(json.dumps(values), flush=True)

def read():
    for line in sys.stdin:
        member, number, value = json.loads(line)
        signature = "us" if isinstance(value, str) else "uu"
        bus.send(new_signal(DBusAddress(PATH, NAME, NAME), member, signature, (number, value)))

with open_dbus_connection(enable_fds=True) as bus:
    for name in (NAME, "org.freedesktop.portal.Desktop"):
        bus.send_and_get_reply(message_bus.RequestName(name))
    threading.Thread(target=read, daemon=True).start()
    tell(ready=True)
    number = 0
    while True:
        message = bus.receive()
        if message.header.message_type is not MessageType.method_call:
            continue
        if message.header.fields[HeaderFields.member] == "OpenFile":
            with message.body[1].to_file("r") as opened:
                tell(opened=opened.read())
            bus.send(new_method_return(message, "o", ("/request",)))
            continue
        _, replaces, _, title, text, actions, hints, _ = message.body
        number += 1
        bus.send(new_method_return(message, "u", (replaces or number,)))
        tell(number=replaces or number, title=title, text=text, actions=actions,
             urgency=hints["urgency"][1], replaces=replaces)
"""


class FakeDesktop:
    """Stand for a desktop that shows notices."""

    def __init__(self, bus: str) -> None:
        self._bus = bus
        self.process = subprocess.Popen(
            [sys.executable, "-c", _SERVER],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.next()

    def next(self) -> dict[str, Any]:
        """Return what the desktop was asked next."""
        assert self.process.stdout is not None
        told: dict[str, Any] = json.loads(self.process.stdout.readline())
        return told

    def choose(self, number: int, action: str) -> None:
        """Press a button of a notice."""
        self._signal("ActivationToken", number, "token")  # some desktops send it before
        self._signal("ActionInvoked", number, action)

    def close(self, number: int) -> None:
        """Close a notice."""
        self._signal("NotificationClosed", number, 2)

    def clients(self) -> int:
        """Return how many other programs are on the bus."""
        asked = subprocess.run(
            ["dbus-send", f"--bus={self._bus}", "--print-reply", "--dest=org.freedesktop.DBus", "/",
             "org.freedesktop.DBus.ListNames"],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        return asked.stdout.count('":') - 2  # this one and dbus-send

    def _signal(self, member: str, number: int, value: str | int) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([member, number, value]) + "\n")
        self.process.stdin.flush()


def session(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDesktop]:
    """Yield a desktop on a session bus that this process and its children use."""
    if shutil.which("dbus-daemon") is None:
        pytest.skip("dbus-daemon is not installed")
    bus = subprocess.Popen(
        ["dbus-daemon", "--session", "--nofork", "--print-address=1"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert bus.stdout is not None
    address = bus.stdout.readline().strip()
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", address)
    desktop = FakeDesktop(address)
    try:
        yield desktop
    finally:
        for process in (desktop.process, bus):
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()
