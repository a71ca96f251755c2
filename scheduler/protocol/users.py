"""Name the users of jobs and bookings."""

from __future__ import annotations

import pwd

from gpudeck.language.text import Message, phrase
from gpudeck.scheduler.protocol.errors import NotFound, UserError


def user_name(uid: int) -> str:
    """Return in English what `name_user` returns."""
    return str(name_user(uid))


def user_id(name: str) -> int:
    """Return the number of a user of this machine. Raises NotFound, and UserError for no name."""
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError as e:
        raise NotFound(phrase("this machine has no user {name}", name=name)) from e
    except ValueError as e:
        raise UserError(phrase("{name} is no name of a user", name=ascii(name))) from e


def name_user(uid: int) -> Message:
    """Return the name of a user of this machine, or `user UID` where it knows none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return phrase("user {n}", n=uid)
