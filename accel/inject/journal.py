"""Change files so that every change can be undone, also after a kill at any moment.

There is one record for each changed file. It is on disk before the file is replaced, and holds the
original bytes, the new ones and the mode. The file itself tells what has happened: it has the bytes
of before, those of after, or has been edited since. So nothing has to be written after the change.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import os
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from difflib import SequenceMatcher
from pathlib import Path

import msgspec

from gpudeck.accel.runtime.state_folder import state_folder

_TEMPORARY = ".gpudeck-inject-"


class Refused(Exception):
    """Says in one line why a file is left as it is."""


class Record(msgspec.Struct, frozen=True):
    """Describe one changed file."""

    path: str
    before: str
    """The original bytes in base64."""
    after: str
    mode: int


def _folder() -> Path:
    folder = state_folder() / "inject"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _file(path: Path) -> Path:
    return _folder() / (hashlib.sha256(os.fsencode(path)).hexdigest() + ".json")


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    with (_folder() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def record(path: Path) -> Record | None:
    """Return the record of a file, or None if it is not changed.

    A record whose file has its original bytes is of a change that was interrupted or reverted by
    other means; it counts as none.
    """
    try:
        found = msgspec.json.decode(_file(path).read_bytes(), type=Record)
        same = path.read_bytes() == base64.b64decode(found.before)
    except FileNotFoundError:
        return None
    return None if same else found


def changed_files() -> list[Path]:
    """Return all files that are changed now."""
    records = (
        msgspec.json.decode(file.read_bytes(), type=Record) for file in _folder().glob("*.json")
    )
    return sorted(Path(r.path) for r in records if record(Path(r.path)) is not None)


def check(path: Path) -> None:
    """Raise Refused if a file must not be changed."""
    if path.is_symlink():
        raise Refused(f"it is a symbolic link; name its target {path.resolve()}")
    try:
        mode = path.stat().st_mode
    except OSError as e:
        raise Refused(f"it cannot be read: {e.strerror}") from e
    if not stat.S_ISREG(mode):
        raise Refused("it is no regular file")
    if not mode & 0o222 or not os.access(path, os.W_OK):
        raise Refused("you have no permission to write it")
    if not os.access(path.parent, os.W_OK):
        raise Refused(f"you have no permission to write in {path.parent}")


def apply(path: Path, before: bytes, after: bytes) -> None:
    """Replace the bytes of a file, keeping its mode.

    Raises:
        Refused: if the file is not what it was, or must not be changed.
    """
    path = Path(os.path.abspath(path))
    with _locked():
        check(path)
        _sweep(path)
        now = path.read_bytes()
        if now != before:
            raise Refused("it was changed meanwhile; scan it again")
        original = now
        if (earlier := record(path)) is not None:
            original = _restored(earlier, now)
        mode = stat.S_IMODE(path.stat().st_mode)
        made = Record(
            str(path), base64.b64encode(original).decode(), base64.b64encode(after).decode(), mode
        )
        _replace(_file(path), msgspec.json.encode(made), 0o600)
        _replace(path, after, mode)


def amend(path: Path, change: Callable[[bytes], bytes]) -> bool:
    """Rewrite what we wrote into a file, in its record and in the file; later edits stay.

    Return whether anything was rewritten. The record is rewritten first: a kill in between leaves
    a file that the next call rewrites.

    Raises:
        Refused: if the file must not be changed.
    """
    with _locked():
        found = record(path)
        if found is None:
            return False
        now, after = path.read_bytes(), base64.b64decode(found.after)
        if (change(now), change(after)) == (now, after):
            return False
        check(path)
        made = msgspec.structs.replace(found, after=base64.b64encode(change(after)).decode())
        _replace(_file(path), msgspec.json.encode(made), 0o600)
        _replace(path, change(now), stat.S_IMODE(path.stat().st_mode))
    return True


def note_renamed() -> None:
    """Note that all files import us by our present name; see `scheduler.protocol.paths`."""
    (_folder() / "renamed").touch(mode=0o600)


def undo(path: Path) -> str:
    """Restore a file, and return in words what was restored.

    Later edits elsewhere in the file are kept.

    Raises:
        Refused: if the file is not changed by us, or a linked line was edited since.
    """
    path = Path(os.path.abspath(path))
    with _locked():
        _sweep(path)
        found = record(path)
        if found is None:
            _file(path).unlink(missing_ok=True)
            raise Refused("nothing in it is linked")
        check(path)
        now = path.read_bytes()
        before = _restored(found, now)
        untouched = now == base64.b64decode(found.after)
        _replace(path, before, found.mode)
        _file(path).unlink()
    return "restored" if untouched else "restored; later edits elsewhere in it were kept"


def _restored(found: Record, now: bytes) -> bytes:
    """Return the bytes of `now` without our change. Raises Refused."""
    before, after = base64.b64decode(found.before), base64.b64decode(found.after)
    if now == after:
        return before
    return b"".join(_without(*(text.splitlines(keepends=True) for text in (before, after, now))))


def _without(before: list[bytes], after: list[bytes], now: list[bytes]) -> list[bytes]:
    """Return the lines of `now` in which what differs from before to after is reverted.

    Raises Refused where such a line was edited.
    """
    blocks = SequenceMatcher(None, after, now, autojunk=False).get_matching_blocks()
    result, at = list[bytes](), 0
    for tag, first, last, a, b in SequenceMatcher(
        None, after, before, autojunk=False
    ).get_opcodes():
        if tag == "equal":
            continue
        shift = _shift(blocks, first, last, len(after))
        if shift is None:
            raise Refused(
                f"line {first + 1} of the linked file was edited since; undo that edit first, or"
                " restore the file from your version control"
            )
        result += now[at : first + shift] + before[a:b]
        at = last + shift
    return result + now[at:]


def _shift(blocks: Sequence[tuple[int, int, int]], first: int, last: int, end: int) -> int | None:
    """Return by how much lines have moved; None if one of them, or a neighbour of an empty range,
    was edited."""
    low, high = (first, last) if first < last else (max(0, first - 1), min(end, last + 1))
    for start, there, size in blocks:
        if start <= low and high <= start + size:
            return there - start
    return None


def _replace(path: Path, data: bytes, mode: int) -> None:
    """Write a file completely or not at all."""
    handle, name = tempfile.mkstemp(prefix=f"{_TEMPORARY}{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as f:
            f.write(data)
            os.fchmod(f.fileno(), mode)
            f.flush()
            os.fsync(f.fileno())
        Path(name).replace(path)
    except OSError as e:
        Path(name).unlink(missing_ok=True)
        raise Refused(f"it cannot be written: {e.strerror}") from e
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _sweep(path: Path) -> None:
    """Remove what a kill in the middle of writing left behind."""
    for left in path.parent.glob(f"{_TEMPORARY}{path.name}.*"):
        left.unlink(missing_ok=True)
