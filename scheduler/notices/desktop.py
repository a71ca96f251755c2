"""Show a notice on the desktop of the user who runs this process, over D-Bus.

Importing this needs jeepney, of the extra `window`.

Source: the Desktop Notifications Specification of freedesktop.org.
"""

from __future__ import annotations

import os

from jeepney import DBusAddress, DBusErrorResponse, MessageType, new_method_call
from jeepney.io.blocking import open_dbus_connection

from gpudeck.scheduler.notices.bodies import Wording

_NAME, _PATH = "org.freedesktop.Notifications", "/org/freedesktop/Notifications"
_ANSWER_S = 5.0
_USUAL, _CRITICAL = 1, 2


def show(wording: Wording) -> None:
    """Show the notice. Raises OSError where there is no desktop, or it does not answer."""
    # a daemon that was started at boot has no such variable
    os.environ.setdefault("DBUS_SESSION_BUS_ADDRESS", f"unix:path=/run/user/{os.getuid()}/bus")
    address = DBusAddress(_PATH, _NAME, _NAME)
    hints = {"urgency": ("y", _CRITICAL if wording.urgent else _USUAL)}
    escaped = wording.text.replace("&", "&amp;").replace("<", "&lt;")  # the body may hold markup
    call = new_method_call(
        address, "Notify", "susssasa{sv}i",
        ("GPU Deck", 0, "gpudeck", wording.title, escaped, [], hints, -1),
    )  # fmt: skip
    try:
        with open_dbus_connection() as connection:
            reply = connection.send_and_get_reply(call, timeout=_ANSWER_S)
    except (TimeoutError, DBusErrorResponse, EOFError) as e:
        raise OSError(0, "the desktop does not answer") from e
    except OSError as e:
        raise OSError(0, f"no desktop: {e.strerror or e}") from e
    if reply.header.message_type is MessageType.error:
        raise OSError(0, "the desktop shows no notices")
