"""Change files so that every change can be undone, also after a kill at any moment.

There is one record for each changed file. It holds the original bytes, the new ones and the mode.
A change goes in this order, and each step is on disk before the next one:

1. The new content is written beside the file, under a name of its own.
2. A record of the change is written beside the earlier record, which stays. It names that new file.
3. The new file replaces the file, if that still has the bytes that were read.
4. The new record replaces the earlier one.

After a kill, the new file tells whether step 3 was done: it has the name of step 1 only before.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec

from gpudeck.accel.inject import staging
from gpudeck.accel.inject.refused import Refused
from gpudeck.accel.inject.reverting import reverted
from gpudeck.accel.runtime.state_files import state_folder
from gpudeck.language.text import Text, phrase

__all__ = [
    "Record", "Refused", "apply", "changed_files", "check", "record",
    "undo",
]  # fmt: skip

_TEMPORARY = ".gpudeck-inject-"


class Record(msgspec.Struct, frozen=True):
    """Describe one changed file."""

    path: str
    before: str
    """The original bytes in base64."""
    after: str
    mode: int
    staged: str = ""
    """The name under which the new bytes were written before they replaced the file."""

    @property
    def original(self) -> bytes:
        """Return the original bytes."""
        return base64.b64decode(self.before)

    @property
    def changed(self) -> bytes:
        """Return the new bytes."""
        return base64.b64decode(self.after)


def _folder() -> Path:
    folder = state_folder() / "inject"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _file(path: Path) -> Path:
    return _folder() / (hashlib.sha256(os.fsencode(path)).hexdigest() + ".json")


def _pending(path: Path) -> Path:
    """Return the file with the record of a change that is being made."""
    return _file(path).with_suffix(".next.json")


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    """Let one process at a time change files, and refuse where the state cannot be written."""
    try:
        with (_folder() / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
    except OSError as e:
        raise Refused(phrase("it cannot be written: {why}", why=str(e.strerror))) from e


def record(path: Path) -> Record | None:
    """Return the record of a file, or None if it is not changed.

    A record whose file has its original bytes is of a change that was interrupted or reverted by
    other means; it counts as none. A file that cannot be read counts as changed.
    """
    found = _latest(path)
    if found is None or found.before == found.after:
        return None
    try:
        return None if path.read_bytes() == found.original else found
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return found


def _latest(path: Path) -> Record | None:
    """Return the record of the latest change that was done."""
    pending = _read(_pending(path))
    if pending is not None and _was_done(pending, path):
        return pending
    return _read(_file(path))


def _read(file: Path) -> Record | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=Record)
    except FileNotFoundError:
        return None


def _was_done(pending: Record, path: Path) -> bool:
    """Return whether the new content has replaced the file.

    The name of the new content may also be gone because somebody removed it; the file tells then.
    """
    if os.path.lexists(path.parent / pending.staged):
        return False
    earlier = _read(_file(path))
    try:
        return earlier is None or path.read_bytes() != earlier.changed
    except OSError:
        return True


def changed_files() -> list[Path]:
    """Return all files that are changed now."""
    records = (_read(file) for file in _folder().glob("*.json"))
    paths = {Path(r.path) for r in records if r is not None}
    return sorted(path for path in paths if record(path) is not None)


def check(path: Path) -> os.stat_result:
    """Return what the system says about a file; raise Refused if the file must not be changed."""
    if path.is_symlink():
        target = str(path.resolve())
        raise Refused(phrase("it is a symbolic link; name its target {path}", path=target))
    try:
        found = path.stat()
    except OSError as e:
        raise Refused(phrase("it cannot be read: {why}", why=str(e.strerror))) from e
    if not stat.S_ISREG(found.st_mode):
        raise Refused(phrase("it is no regular file"))
    if found.st_nlink > 1:
        raise Refused(
            phrase(
                "it has {n} hard links, which a change would separate; put a copy of the file in"
                " its place first",
                n=found.st_nlink,
            )
        )
    if not found.st_mode & 0o222 or not os.access(path, os.W_OK):
        raise Refused(phrase("you have no permission to write it"))
    if not os.access(path.parent, os.W_OK):
        folder = str(path.parent)
        raise Refused(phrase("you have no permission to write in {folder}", folder=folder))
    return found


def apply(path: Path, before: bytes, after: bytes) -> None:
    """Replace the bytes of a file, keeping its mode and its owner.

    Raises:
        Refused: if the file is not what it was, or must not be changed.
    """
    path = Path(os.path.abspath(path))
    with _locked():
        mode = stat.S_IMODE(check(path).st_mode)
        _settle(path)
        if path.read_bytes() != before:
            raise Refused(phrase("it was changed meanwhile; scan it again"))
        earlier = record(path)
        original = _without(earlier, before) if earlier is not None else before
        _change(_record(path, original, after, mode), before, after, mode)


def undo(path: Path) -> Text:
    """Restore a file, and return what was restored.

    Later edits elsewhere in the file are kept.

    Raises:
        Refused: if the file is not changed by us, or a linked line was edited since.
    """
    path = Path(os.path.abspath(path))
    with _locked():
        found = record(path)
        if found is None:
            _forget(path)
            raise Refused(phrase("nothing in it is linked"))
        check(path)
        _settle(path)
        now = path.read_bytes()
        before = _without(found, now)
        untouched = now == found.changed
        # the record of an undo says that nothing is changed, should a kill leave it behind
        _change(_record(path, before, before, found.mode), now, before, found.mode)
        with contextlib.suppress(OSError):
            _forget(path)
    if untouched:
        return phrase("restored")
    return phrase("restored; later edits elsewhere in it were kept")


def _record(path: Path, before: bytes, after: bytes, mode: int) -> Record:
    original, changed = (base64.b64encode(each).decode() for each in (before, after))
    return Record(str(path), original, changed, mode)


def _without(found: Record, now: bytes) -> bytes:
    return reverted(found.original, found.changed, now)


def _change(made: Record, now: bytes, data: bytes, mode: int) -> None:
    """Replace the bytes `now` of a file by `data`, in the order that this module describes."""
    path = Path(made.path)
    staged = staging.stage(path, _prefix(path), data, mode, path.stat())
    try:
        made = msgspec.structs.replace(made, staged=staged.name)
        staging.replace(_pending(path), _prefix(path), msgspec.json.encode(made))
        if path.is_symlink() or path.read_bytes() != now:
            raise Refused(phrase("it was changed meanwhile; scan it again"))
        staging.rename(staged, path)
    except BaseException:
        with contextlib.suppress(OSError):
            _settle(path)
        raise
    with contextlib.suppress(OSError):  # the file is changed; what is left, the next call settles
        _settle(path)


def _settle(path: Path) -> None:
    """Complete or take back what a kill or an error interrupted, and remove what it left behind."""
    pending = _read(_pending(path))
    if pending is not None and _was_done(pending, path):
        staging.rename(_pending(path), _file(path))
    else:
        _pending(path).unlink(missing_ok=True)
    for folder in (path.parent, _folder()):
        staging.remove_staged(folder, _prefix(path))


def _forget(path: Path) -> None:
    """Remove the records of a file that has its original bytes."""
    _settle(path)
    _file(path).unlink(missing_ok=True)


def _prefix(path: Path) -> str:
    """Return how the names of new contents of a file begin: of one length, whatever its name."""
    return f"{_TEMPORARY}{_file(path).stem[:16]}."
