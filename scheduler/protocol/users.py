"""Name the users of jobs and bookings."""

from __future__ import annotations

import pwd


def user_name(uid: int) -> str:
    """Return the name of a user of this machine, or `user UID` where it knows none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
