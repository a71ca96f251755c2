"""Name the users of jobs and bookings."""

from __future__ import annotations

import pwd

from gpudeck.language.text import Message, phrase


def user_name(uid: int) -> str:
    """Return in English what `name_user` returns."""
    return str(name_user(uid))


def name_user(uid: int) -> Message:
    """Return the name of a user of this machine, or `user UID` where it knows none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return phrase("user {n}", n=uid)
