"""Say in which files the queues of this machine lock GPUs.

Without any preparation that is /dev/full, which exists on every Linux, which every user may open
for writing and nobody but root may delete. A lock file in a sticky folder would belong to whoever
made it first: that user could replace it while others hold it, as could a clean-up of old files, or
of a user's files at logout. But any user can lock /dev/full and so keep all others from the GPUs.

So root can make a place for members: a folder with a file that only the group may open, and only
root may replace. Who is no member, and older versions, know /dev/full alone. As long as the folder
says that the machine is mixed, members therefore lock both. Afterwards they lock and heed the file
of the members only, and nobody else's queue uses a GPU.

Containers have a /dev/full of their own: GPUDECK_GPU_LOCKS names a file, or a place for members,
that they share instead.
"""

from __future__ import annotations

import errno
import grp
import os
from pathlib import Path

from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.users import user_name

EVERYBODY = Path("/dev/full")
GPUS = "gpus"
"""The file in a place for members whose ranges they lock."""
MIXED = "mixed"
"""The file beside it that exists as long as queues are left that lock EVERYBODY alone."""


class LocksClosed(UserError):
    """Signal that only members lock the GPUs of this machine, and this user is none."""


def lock_files() -> tuple[Path, ...]:
    """Return the files in which this process locks each GPU, in the order that all queues keep.

    Raises UserError where the place for members can be changed by others, LocksClosed where it is
    closed to this user.
    """
    place = paths.gpu_locks() or EVERYBODY
    file = place / GPUS
    try:
        if not place.is_dir():
            return (place,)
        _check_owned(place, 0o022)
        _check_owned(file, 0o002)
    except OSError as e:
        raise unusable(place, e) from e
    mixed = (EVERYBODY,) if (place / MIXED).exists() else ()
    if os.access(file, os.R_OK | os.W_OK):
        return (file, *mixed)
    if mixed:
        return mixed
    group = _group_of(file)
    raise LocksClosed(
        phrase(
            "only members of the group {group} use the GPUs of this machine, as "
            "{place} says. Ask an administrator for: usermod -aG {group} {user}",
            group=group,
            place=str(place),
            user=user_name(os.getuid()),
        )
    )


def shared_note() -> str:
    """Return a line where this user's locks are in the file that everybody can lock, although there
    is a place for members; empty otherwise."""
    place = paths.gpu_locks()
    if place is None or not place.is_dir() or os.access(place / GPUS, os.R_OK | os.W_OK):
        return ""
    return (
        f"GPUs are locked by {EVERYBODY}, which any user can hold, as this user is not in the "
        f"group that may open {place / GPUS}"
    )


def make_place(place: Path, group: int, *, mixed: bool) -> None:
    """Make a place for members, or change whether it is mixed. Raises OSError.

    A file that exists is kept, as queues hold locks in it.
    """
    place.mkdir(mode=0o755, exist_ok=True)
    place.chmod(0o755)  # everybody sees that there is such a place
    file = place / GPUS
    file.touch(mode=0o600)
    os.chown(file, 0, group)
    file.chmod(0o660)
    if mixed:
        (place / MIXED).touch(mode=0o644)
    else:
        (place / MIXED).unlink(missing_ok=True)


def unusable(file: Path, error: OSError) -> UserError:
    """Return the error that says why a file cannot be used for locks."""
    return UserError(
        phrase(
            "GPUs cannot be locked against other users' queues by {file}: {error}. "
            "Name a file that all of them may write in GPUDECK_GPU_LOCKS",
            file=str(file),
            error=str(error.strerror),
        )
    )


def _group_of(file: Path) -> str:
    number = file.stat().st_gid
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)


def _check_owned(path: Path, others: int) -> None:
    """Raise OSError unless a file is root's or ours, and nobody has the other permissions."""
    found = path.stat(follow_symlinks=False)
    if found.st_uid not in (0, os.getuid()) or found.st_mode & others:
        raise OSError(errno.EPERM, f"{path} can be changed by others", str(path))
