"""Become another user for good, between fork and exec, as jobs of a shared daemon run as who
submitted them.

Standard library only, as the runner imports it.
"""

from __future__ import annotations

import os
import pwd
from typing import NamedTuple


class Identity(NamedTuple):
    """Hold what a process of a user is."""

    uid: int
    gid: int
    groups: tuple[int, ...]

    def assume(self, folder: str) -> None:
        """Give up every privilege, and go to a folder with the user's own permissions.

        Raises OSError where that fails: then nothing may be executed.
        """
        os.setgroups(self.groups)
        os.setresgid(self.gid, self.gid, self.gid)
        os.setresuid(self.uid, self.uid, self.uid)
        if os.getresuid() != (self.uid,) * 3 or os.getresgid() != (self.gid,) * 3:
            raise PermissionError("the privileges were not given up")
        os.chdir(folder)


def identity_of(uid: int) -> Identity:
    """Return what a process of this user is, by the user database. Raises OSError."""
    try:
        found = pwd.getpwuid(uid)
    except KeyError as e:
        raise OSError(0, f"there is no user {uid} any more") from e
    groups = os.getgrouplist(found.pw_name, found.pw_gid)
    return Identity(uid, found.pw_gid, tuple(groups))
