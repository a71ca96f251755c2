"""To the trash: only what is as it was when a person saw it, that nobody has open, and no job needs. All by renaming.

Each is checked, written down, renamed, and looked at once more from its place in the trash: what somebody opened or changed between the
check and the renaming is put back. From then on nobody can open it by its old name.
"""

from __future__ import annotations

import errno
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from assistant.housekeeping.findings import (
    Finding,
    StaysError,
    decoded,
    encoded,
    is_in_trash,
    within,
)
from assistant.housekeeping.in_use import Holders, Needs, check_unused
from assistant.housekeeping.journal import Item, Journal, Receipt, Skipped, forget, locked
from assistant.housekeeping.restoring import put_back
from assistant.housekeeping.scope import Scope
from assistant.housekeeping.trash import (
    ENDING,
    FILES,
    INFO,
    Mounts,
    TrashFolder,
    inside,
    name_for,
    trash_for,
)
from assistant.housekeeping.walk import measured, parent

_AT_ONCE = 256
"""How many are checked with one look at what all processes have open."""
_IN_OTHER_WORDS = {
    errno.ENOENT: "it is not there any more",
    errno.EXDEV: "it cannot be renamed into a trash, as in the layers of a container's image",
}


def move(
    scope: Scope, finds: Iterable[Finding], report: Callable[[int], None] = lambda done: None
) -> Receipt:
    """Move what may be moved. Raises UserError where another clean-up is under way. Why the rest stays is in the receipt.

    `report` is called with how many have been dealt with, now and then.
    """
    finds, left, moved = tuple(finds), list[Skipped](), list[Item]()
    began, checks = (
        time.time(),
        _Checks(scope, frozenset(find.path for find in finds if find.place)),
    )
    with locked(), Journal() as journal:
        for start in range(0, len(finds), _AT_ONCE):
            planned = list(_plan(checks, finds[start : start + _AT_ONCE], began, left))
            journal.append(planned)
            taken = list(_take(planned, left))
            moved += _keep_back(taken, left)
            report(min(start + _AT_ONCE, len(finds)))
        if not moved:
            forget(journal.id)
    return Receipt(journal.id, began, tuple(moved), tuple(left))


class _Checks:
    """What must be true of a find before it is moved."""

    def __init__(self, scope: Scope, going: frozenset[Path]) -> None:
        """`going`: all that is to be moved."""
        self._roots, self._needs, self._going = scope.roots, Needs(scope), going

    def check(self, find: Finding, holders: Holders, mounts: Mounts) -> None:
        """Raises StaysError or OSError where it is to stay."""
        if find.kind == "process":
            raise StaysError("a process is ended, not moved: gpudeck kill PID")
        if (
            find.root not in self._roots
            or ".." in find.path.parts
            or not within(find.path, decoded(find.root))
            or is_in_trash(find.path)
        ):
            raise StaysError(
                "it lies outside the folders that may be cleaned up (see: Settings), or in a trash"
            )
        if why := self._needs.of(find):
            raise StaysError(why)
        if mounts.hit(find.path):
            raise StaysError("something is mounted there")
        if find.twin:
            self._check_twin(find)
        with parent(find.path) as (folder, name):
            check_unused(folder, name, find.seal, holders)

    def _check_twin(self, find: Finding) -> None:
        """The copy that stays must be there, as it was, and stay."""
        twin = decoded(find.twin)
        if not self._going.isdisjoint((twin, *twin.parents)):
            raise StaysError("the file that is the same is to go as well")
        try:
            seal = measured(twin).seal
        except (StaysError, OSError) as e:
            raise StaysError("the file that is the same is not there any more") from e
        if seal != find.twin_seal:
            raise StaysError("the file that was the same has changed")


def _plan(
    checks: _Checks, finds: Sequence[Finding], now: float, left: list[Skipped]
) -> Iterator[Item]:
    holders, mounts = Holders(), Mounts()
    known: dict[tuple[Path, str], TrashFolder] = {}
    for find in finds:
        where = find.path.parent, find.root
        try:
            checks.check(find, holders, mounts)
            if where not in known:
                known[where] = trash_for(find.path, decoded(find.root), mounts)
        except (StaysError, OSError) as e:
            left.append(_left(find, e))
        else:
            found, name = known[where], name_for(find.path, secrets.token_hex(6))
            yield Item(
                find,
                encoded(found.path),
                encoded(name),
                now,
                encoded(found.top) if found.top else "",
            )


def _take(planned: Sequence[Item], left: list[Skipped]) -> Iterator[Item]:
    for item in planned:
        try:
            take(item)
        except (StaysError, OSError) as e:
            left.append(_left(item.find, e))
        else:
            yield item


def take(item: Item) -> None:
    """Write the trash's own note, and rename. Raises OSError, StaysError."""
    path, trash, name = (
        item.find.path,
        TrashFolder(decoded(item.trash), decoded(item.top) if item.top else None),
        str(decoded(item.name)),
    )
    with (
        parent(path) as (folder, old),
        inside(trash.path, FILES) as files,
        inside(trash.path, INFO) as info,
    ):
        fd = os.open(
            name + ENDING,
            os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC,
            0o600,
            dir_fd=info,
        )
        try:
            with os.fdopen(fd, "wb") as note:
                note.write(trash.note(path))
            os.rename(old, name, src_dir_fd=folder, dst_dir_fd=files)
        except OSError:
            os.unlink(name + ENDING, dir_fd=info)
            raise


def _keep_back(taken: Sequence[Item], left: list[Skipped]) -> Iterator[Item]:
    """Look again, where nobody can come at it any more; put back what is not as it was. Gives what stays in the trash."""
    holders = Holders()
    for item in taken:
        try:
            with inside(decoded(item.trash), FILES) as files:
                check_unused(files, str(decoded(item.name)), item.find.seal, holders)
        except (StaysError, OSError) as e:
            left.append(_left(item.find, e))
            try:
                put_back(item)
            except (StaysError, OSError) as trouble:
                left[-1] = Skipped(
                    item.find,
                    f"{left[-1].why}; it is in the trash all the same: {_left(item.find, trouble).why}",
                )
                yield item
        else:
            yield item


def _left(find: Finding, error: StaysError | OSError) -> Skipped:
    number = error.errno if isinstance(error, OSError) else None
    why = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return Skipped(find, _IN_OTHER_WORDS.get(number or 0, why))
