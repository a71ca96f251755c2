"""Keep the journal of the trash: one file a move, one line an item, on disk before anything moves.

The file system is the truth: an item is moved if it is in the trash under the name in its line. So
nothing needs to be written after a move, and a process killed at any moment leaves nothing
unrecorded.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

import msgspec

from gpudeck.assistant.housekeeping.findings import Finding, decoded
from gpudeck.assistant.housekeeping.trash import FILES
from gpudeck.language.text import Message, phrase
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.durable import sync
from gpudeck.scheduler.protocol.errors import MALFORMED, NotFound, UserError

_ENDING = ".jsonl"
_ENCODE = msgspec.json.Encoder().encode


class TrashItem(msgspec.Struct, frozen=True):
    """Record something to be moved, and its place in the trash."""

    find: Finding
    trash: str
    """The path of the trash folder, percent-encoded."""
    name: str
    """Its name in the trash, percent-encoded."""
    time: float
    """Seconds since the epoch."""
    top: str = ""
    """The folder that the trash records its path relative to, percent-encoded; empty for the root.
    """

    def is_present(self) -> bool:
        """Return True if the item is in the trash."""
        return os.path.lexists(decoded(self.trash) / FILES / decoded(self.name))


_DECODE = msgspec.json.Decoder(TrashItem).decode


class Skipped(msgspec.Struct, frozen=True):
    """Report something that stays where it is, and why."""

    find: Finding
    why: Message


class Receipt(msgspec.Struct, frozen=True):
    """Describe what one move took to the trash."""

    id: str
    time: float
    """Seconds since the epoch."""
    items: tuple[TrashItem, ...]
    """The items that are in the trash now."""
    left: tuple[Skipped, ...] = ()
    """The findings that were approved but stay; only `move_to_trash` fills them in."""

    @property
    def bytes(self) -> int:
        """Return the bytes that emptying it frees."""
        return sum(item.find.bytes for item in self.items)


class MoveJournal:
    """Write the journal of one move.

    What the journal does not name must not move, so it raises UserError if it cannot be written, as
    on a full disk.
    """

    def __init__(self) -> None:
        self.id = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(4)}"
        self._file = _folder() / (self.id + _ENDING)
        try:
            self._fd = os.open(
                self._file,
                os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC,
                paths.PRIVATE_FILE,
            )
            sync(self._file.parent)
        except OSError as e:
            raise self._failed(e) from e

    def append(self, items: Iterable[TrashItem]) -> None:
        """Write items; they are on disk when this returns."""
        lines = memoryview(b"".join(_ENCODE(item) + b"\n" for item in items))
        try:
            while lines:
                lines = lines[os.write(self._fd, lines) :]
            os.fsync(self._fd)
        except OSError as e:
            raise self._failed(e) from e

    def _failed(self, error: OSError) -> UserError:
        return UserError(
            phrase(
                "nothing more is moved: {folder} cannot be written: {problem}. To put "
                "back what was moved: gpudeck clean --undo",
                folder=str(self._file.parent),
                problem=error.strerror or str(error),
            )
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


@contextmanager
def locked() -> Iterator[None]:
    """Let one process at a time move, restore and empty.

    Raises:
        UserError: Another process holds the lock.
    """
    fd = os.open(_folder() / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, paths.PRIVATE_FILE)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as e:
            raise UserError(
                phrase("another clean-up is running; try again when it has finished")
            ) from e
        yield
    finally:
        os.close(fd)


def recorded_items(receipt: str) -> tuple[TrashItem, ...]:
    """Return all items that a journal names, in the trash or not.

    A line that was not finished was never acted on.

    Raises:
        NotFound: There is no such journal.
    """
    file = _folder() / (Path(receipt).name + _ENDING)
    try:
        lines = file.read_bytes().split(b"\n")[:-1]
    except OSError as e:
        raise NotFound(
            phrase(
                "there is no clean-up {receipt}: it was undone, or the trash was emptied",
                receipt=ascii(receipt),
            )
        ) from e
    found = []
    for line in lines:
        with suppress(
            *MALFORMED
        ):  # A crash of the machine cut the line short, and the file system filled it up.
            found.append(_DECODE(line))
    return tuple(found)


def load(receipt: str) -> Receipt:
    """Return the receipt of a move with the items that are still in the trash. Raises NotFound."""
    items = recorded_items(receipt)
    return Receipt(
        receipt, items[0].time if items else 0.0, tuple(item for item in items if item.is_present())
    )


def receipts() -> tuple[Receipt, ...]:
    """Return the moves of which something is still in the trash, newest first."""
    found = [load(receipt) for receipt in all_receipts()]
    return tuple(sorted((r for r in found if r.items), key=lambda r: (r.time, r.id), reverse=True))


def all_receipts() -> list[str]:
    """Return the names of all moves that have a journal, oldest first."""
    return sorted(file.name.removesuffix(_ENDING) for file in _folder().glob(f"*{_ENDING}"))


def forget(receipt: str) -> None:
    """Delete the journal of a move that has nothing left in the trash."""
    (_folder() / (receipt + _ENDING)).unlink(missing_ok=True)


def _folder() -> Path:
    paths.ensure(paths.home())
    return paths.ensure(paths.home() / "trash")
