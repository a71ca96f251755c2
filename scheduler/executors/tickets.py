"""Tickets: the evidence, outside the jobs' own folders, of which attempts have begun.

The daemon issues a ticket before it opens the gate of a runner. The runner takes it before it
starts the command: it renames the ticket, and waits until the new name is on disk. So an attempt
whose ticket is still there has never run anything, whatever happened to its runner, the daemon or
the disk. An attempt without a ticket may have run, and must not run again.

A ticket holds what the daemon writes on it: the job as it starts. It stays until the end of the
attempt cannot get lost with the write-ahead log of the store, so that a daemon whose store lost
that finds out what ran.

Standard library only, as the runner imports it.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from gpudeck.scheduler.protocol.durable import sync

BEGAN = ".began"
"""The suffix of a ticket that was taken."""
ENDED = ".ended"
"""The suffix of the note on what became of the job after the attempt."""


class Began(NamedTuple):
    """Describe an attempt that began, by its ticket."""

    attempt: str
    content: bytes
    ended: bytes | None
    """The note on what became of the job; None while there is none."""


def issue(ticket: Path, content: bytes) -> None:
    """Issue the ticket of an attempt, which is named after the attempt. Raises OSError.

    It need not be on disk at once: where it is missing, the attempt counts as begun.
    """
    fd = os.open(ticket, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        while content:
            content = content[os.write(fd, content) :]
    finally:
        os.close(fd)


def take(ticket: Path) -> int:
    """Take the ticket, so that it is on disk that the attempt began.

    Returns a descriptor that locks the ticket for as long as this process lives.

    Raises:
        OSError: The attempt must not begin.
    """
    fd = os.open(ticket, os.O_RDWR | os.O_NOFOLLOW)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.fsync(fd)
    ticket.rename(_taken(ticket))
    try:
        sync(ticket.parent)
    except OSError:
        _taken(ticket).rename(ticket)  # nothing begins, and that is known then
        raise
    return fd


def is_untaken(ticket: Path) -> bool:
    """Return whether the ticket is there, so that the attempt never began.

    Raises OSError where that cannot be found out.
    """
    try:
        ticket.lstat()
    except FileNotFoundError:
        return False
    return True


def is_locked(ticket: Path) -> bool:
    """Return whether the runner that took the ticket lives, in whichever PID namespace it is."""
    try:
        fd = os.open(_taken(ticket), os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as e:
        return e.errno == errno.EWOULDBLOCK
    finally:
        os.close(fd)
    return False


def note_end(ticket: Path, content: bytes) -> None:
    """Note what became of the job after the attempt.

    It need not be on disk: nobody reads it unless the store lost the end without a power cut. A
    note that cannot be written does no harm, as the record in the job's folder says most of it.
    """
    try:
        ticket.with_name(ticket.name + ENDED).write_bytes(content)
    except OSError:
        pass


def discard(ticket: Path) -> None:
    """Remove the ticket of an attempt of which nothing needs to be known any more.

    One that cannot be removed does no harm, as no other attempt has its name.
    """
    for file in (ticket, _taken(ticket), ticket.with_name(ticket.name + ENDED)):
        try:
            file.unlink()
        except OSError:
            pass


def began(folder: Path) -> Iterator[Began]:
    """Yield the attempts that began. Raises OSError where that cannot be found out."""
    names = _names(folder)
    for name in names:
        if name.endswith(BEGAN):
            attempt = name.removesuffix(BEGAN)
            note = f"{attempt}{ENDED}"
            try:
                ended = (folder / note).read_bytes() if note in names else None
                yield Began(attempt, (folder / name).read_bytes(), ended)
            except (FileNotFoundError, IsADirectoryError):
                continue  # it is not one of ours


def sweep(folder: Path, attempts: Collection[str]) -> None:
    """Remove the tickets of all but these attempts, except those whose runners live."""
    try:
        names = _names(folder)
    except OSError:
        return  # they do no harm
    for name in names:
        attempt = name.removesuffix(BEGAN).removesuffix(ENDED)
        if attempt not in attempts and not is_locked(folder / attempt):
            discard(folder / attempt)


def _names(folder: Path) -> list[str]:
    return [entry.name for entry in folder.iterdir()] if folder.exists() else []


def _taken(ticket: Path) -> Path:
    return ticket.with_name(ticket.name + BEGAN)
