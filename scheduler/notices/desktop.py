"""Show a notice on the user's desktop, and do what the user chooses there.

Importing this needs jeepney, of the extra `window`.

Sources: the Desktop Notifications Specification of freedesktop.org; the portal
org.freedesktop.portal.OpenURI.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from jeepney import (
    DBusAddress,
    DBusErrorResponse,
    HeaderFields,
    MatchRule,
    Message,
    MessageType,
    message_bus,
    new_method_call,
)
from jeepney.io.blocking import DBusConnection, open_dbus_connection

from gpudeck.scheduler.notices.bodies import Wording
from gpudeck.scheduler.notices.notice import Action
from gpudeck.scheduler.protocol.progress import printable

_NAME, _PATH = "org.freedesktop.Notifications", "/org/freedesktop/Notifications"
_NOTICES = DBusAddress(_PATH, _NAME, _NAME)
_OPENER = DBusAddress(
    "/org/freedesktop/portal/desktop",
    "org.freedesktop.portal.Desktop",
    "org.freedesktop.portal.OpenURI",
)
_ANSWER_S = 5.0
_USUAL, _CRITICAL = 1, 2
_LISTENS_S = 600.0
"""Seconds for which a process stays to do what the user chooses."""
_COMMAND_S = 60.0
"""Seconds for the command of an action."""


def show(wording: Wording, actions: Sequence[tuple[str, Action]] = ()) -> None:
    """Show the notice. Raises OSError where there is no desktop, or it does not answer.

    Where it has actions, a process of its own stays until the notice is closed, as desktops remove
    the notices of programs that have left the bus.

    Args:
        wording: The words of the notice.
        actions: The label of each action, and the action.
    """
    # a daemon that was started at boot has no such variable
    os.environ.setdefault("DBUS_SESSION_BUS_ADDRESS", f"unix:path=/run/user/{os.getuid()}/bus")
    try:
        with open_dbus_connection(enable_fds=bool(actions)) as bus:
            if actions:
                signals = MatchRule(type="signal", interface=_NAME, path=_PATH)
                _call(bus, message_bus.AddMatch(signals))
            number = _show(bus, wording, [label for label, _ in actions])
            if actions and os.fork() == 0:  # this process has one thread
                _detach()
                _follow(bus, number, wording, actions)
                os._exit(0)
    except (TimeoutError, EOFError) as e:
        raise OSError(0, "the desktop does not answer") from e
    except DBusErrorResponse as e:
        raise OSError(0, "the desktop shows no notices") from e
    except OSError as e:
        raise OSError(0, f"no desktop: {e.strerror or e}") from e


def _show(bus: DBusConnection, wording: Wording, labels: Sequence[str], replaced: int = 0) -> int:
    """Show a notice, or change the one with a number. Return its number."""
    hints = {"urgency": ("y", _CRITICAL if wording.urgent else _USUAL)}
    escaped = wording.text.replace("&", "&amp;").replace("<", "&lt;")  # the body may hold markup
    keys = [word for key, label in enumerate(labels) for word in (str(key), label)]
    call = new_method_call(
        _NOTICES, "Notify", "susssasa{sv}i",
        ("GPU Deck", replaced, "gpudeck", wording.title, escaped, keys, hints, -1),
    )  # fmt: skip
    number = _call(bus, call).body[0]
    assert isinstance(number, int)
    return number


def _call(bus: DBusConnection, call: Message) -> Message:
    """Return the reply. Raises DBusErrorResponse, TimeoutError, OSError."""
    reply: Message = bus.send_and_get_reply(call, timeout=_ANSWER_S)
    if reply.header.message_type is MessageType.error:
        raise DBusErrorResponse(reply)
    return reply


def _detach() -> None:
    """Leave the courier, which waits for the end of what the sender prints."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)


def _follow(
    bus: DBusConnection, number: int, wording: Wording, actions: Sequence[tuple[str, Action]]
) -> None:
    """Do what the user chooses, until the notice is closed."""
    try:
        chosen = _chosen(bus, number)
        if chosen is not None:
            label, action = actions[chosen]
            answer = Wording(f"{label}: {wording.title}", _perform(bus, action), {}, urgent=False)
            _show(bus, answer, [], number)
    except (OSError, EOFError, DBusErrorResponse):
        pass  # the desktop session has ended


def _chosen(bus: DBusConnection, number: int) -> int | None:
    """Return which action the user chooses; None where the notice is closed or has become old."""
    end = time.monotonic() + _LISTENS_S
    while (left := end - time.monotonic()) > 0:
        try:
            message = bus.receive(timeout=left)
        except TimeoutError:
            return None
        if message.header.message_type is not MessageType.signal or message.body[:1] != (number,):
            continue
        match message.header.fields.get(HeaderFields.member):
            case "ActionInvoked":
                return int(message.body[1])
            case "NotificationClosed":
                return None
    return None


def _perform(bus: DBusConnection, action: Action) -> str:
    """Carry out an action, and return what came of it."""
    if action.file:
        return _open(bus, Path(action.file))
    command = [sys.executable, "-P", "-m", "gpudeck", *action.command]
    try:
        done = subprocess.run(
            command, check=False, capture_output=True, timeout=_COMMAND_S, text=True,
            errors="replace", stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"gpudeck {' '.join(action.command)}: no answer within {_COMMAND_S:g} s"
    return "\n".join(map(printable, (done.stdout + done.stderr).strip().split("\n")))


def _open(bus: DBusConnection, file: Path) -> str:
    """Have the desktop open a file, and return its name. A daemon's process has no display."""
    try:
        with file.open("rb") as opened:
            _call(bus, new_method_call(_OPENER, "OpenFile", "sha{sv}", ("", opened, {})))
    except OSError as e:
        return f"{file}: {e.strerror or e}"
    except DBusErrorResponse:
        return f"The desktop opens no files for other programs. The file is {file}"
    return str(file)
