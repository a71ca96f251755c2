"""The journal of the trash: what goes there is written down, and on disk, before it goes. One file a move, a line an item.

The file system is the truth: what is in the trash under the name of a line has been moved, and the rest has not. So nothing has to be
written after a move, and a process that is killed at any moment leaves nothing that nobody knows of.
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

from assistant.housekeeping.findings import Finding, decoded
from assistant.housekeeping.trash import FILES
from scheduler.protocol import paths
from scheduler.protocol.errors import MALFORMED, NotFound, UserError

_ENDING = ".jsonl"
_ENCODE = msgspec.json.Encoder().encode


class Item(msgspec.Struct, frozen=True):
    """Something that was to go, and its place in the trash."""

    find: Finding
    trash: str
    """Path of the trash folder, percent-encoded."""
    name: str
    """Its name there, percent-encoded."""
    time: float
    """Seconds since the epoch."""
    top: str = ""
    """The folder that the trash tells its path from, percent-encoded; empty: the root."""

    def there(self) -> bool:
        """Whether it is in the trash."""
        return os.path.lexists(decoded(self.trash) / FILES / decoded(self.name))


_DECODE = msgspec.json.Decoder(Item).decode


class Skipped(msgspec.Struct, frozen=True):
    """Something that stays where it is, and why."""

    find: Finding
    why: str


class Receipt(msgspec.Struct, frozen=True):
    """What one move took to the trash."""

    id: str
    time: float
    """Seconds since the epoch."""
    items: tuple[Item, ...]
    """What is in the trash."""
    left: tuple[Skipped, ...] = ()
    """What was to go, and stays; told once, by the move."""

    @property
    def bytes(self) -> int:
        """What emptying it sets free."""
        return sum(item.find.bytes for item in self.items)


class Journal:
    """The file of one move. Raises UserError where it cannot be written, as on a full disk: what it does not name may not be moved."""

    def __init__(self) -> None:
        self.id = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(4)}"
        self._file = _folder() / (self.id + _ENDING)
        try:
            self._fd = os.open(
                self._file,
                os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC,
                paths.PRIVATE_FILE,
            )
            paths.sync(self._file.parent)
        except OSError as e:
            raise self._failed(e) from e

    def append(self, items: Iterable[Item]) -> None:
        """On disk when this returns."""
        lines = memoryview(b"".join(_ENCODE(item) + b"\n" for item in items))
        try:
            while lines:
                lines = lines[os.write(self._fd, lines) :]
            os.fsync(self._fd)
        except OSError as e:
            raise self._failed(e) from e

    def _failed(self, error: OSError) -> UserError:
        return UserError(
            f"nothing more is moved, as it cannot be written down in {self._file.parent}: {error.strerror}. "
            "Back again with what was: gpudeck clean --undo"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


@contextmanager
def locked() -> Iterator[None]:
    """One process at a time moves, takes back and empties. Raises UserError where another does."""
    fd = os.open(_folder() / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, paths.PRIVATE_FILE)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as e:
            raise UserError("another clean-up is under way; try again once it is done") from e
        yield
    finally:
        os.close(fd)


def written(receipt: str) -> tuple[Item, ...]:
    """All that a journal names, in the trash or not. Raises NotFound. A line that was not finished was never acted on."""
    file = _folder() / (Path(receipt).name + _ENDING)
    try:
        lines = file.read_bytes().split(b"\n")[:-1]
    except OSError as e:
        raise NotFound(
            f"nothing is known of a clean-up {receipt!a}: it was undone, or emptied from the trash"
        ) from e
    found = []
    for line in lines:
        with suppress(
            *MALFORMED
        ):  # cut short by a crash of the machine, which the file system filled up
            found.append(_DECODE(line))
    return tuple(found)


def load(receipt: str) -> Receipt:
    """Raises NotFound."""
    items = written(receipt)
    return Receipt(
        receipt, items[0].time if items else 0.0, tuple(item for item in items if item.there())
    )


def receipts() -> tuple[Receipt, ...]:
    """The moves of which something is still in the trash, the newest first."""
    found = [load(receipt) for receipt in every()]
    return tuple(sorted((r for r in found if r.items), key=lambda r: (r.time, r.id), reverse=True))


def every() -> list[str]:
    """All moves that have a journal, the oldest first."""
    return sorted(file.name.removesuffix(_ENDING) for file in _folder().glob(f"*{_ENDING}"))


def forget(receipt: str) -> None:
    """Of a move of which nothing is in the trash any more."""
    (_folder() / (receipt + _ENDING)).unlink(missing_ok=True)


def _folder() -> Path:
    paths.ensure(paths.home())
    return paths.ensure(paths.home() / "trash")
