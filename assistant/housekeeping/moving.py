"""Move approved findings to the trash, by renaming only.

A finding moves only if it is as the person saw it, nobody has it open, and no job needs it. Each
one is checked, recorded, renamed, and checked once more in the trash, where nobody can open it by
its old name any more. What somebody opened or changed between the two checks is put back.
"""

from __future__ import annotations

import errno
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from gpudeck.assistant.housekeeping.findings import (
    Finding,
    StaysError,
    decoded,
    encoded,
    explain_error,
    is_in_trash,
    within,
)
from gpudeck.assistant.housekeeping.in_use import Needs, OpenFiles, check_unused
from gpudeck.assistant.housekeeping.journal import (
    MoveJournal,
    Receipt,
    Skipped,
    TrashItem,
    forget,
    locked,
)
from gpudeck.assistant.housekeeping.restoring import put_back
from gpudeck.assistant.housekeeping.scope import Scope
from gpudeck.assistant.housekeeping.trash import (
    ENDING,
    FILES,
    INFO,
    Mounts,
    TrashFolder,
    inside,
    name_for,
    trash_for,
)
from gpudeck.assistant.housekeeping.walk import measured, parent
from gpudeck.language.text import phrase

_AT_ONCE = 256
"""Findings that are checked against one record of all open files."""
_IN_OTHER_WORDS = {
    errno.ENOENT: phrase("it no longer exists"),
    errno.EXDEV: phrase(
        "it cannot be renamed into a trash, as in the layers of a container's image"
    ),
}


def move(
    scope: Scope, finds: Iterable[Finding], report: Callable[[int], None] = lambda done: None
) -> Receipt:
    """Move what may be moved; the receipt says why the rest stays.

    `report` is called now and then with the number of findings handled so far.

    Raises:
        UserError: Another clean-up is running.
    """
    finds, left, moved = tuple(finds), list[Skipped](), list[TrashItem]()
    began, checks = (
        time.time(),
        _Checks(scope, frozenset(find.path for find in finds if find.place)),
    )
    with locked(), MoveJournal() as journal:
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
    """Check what must be true of a finding before it moves."""

    def __init__(self, scope: Scope, going: frozenset[Path]) -> None:
        """Prepare the checks for one move of all the paths in `going`."""
        self._roots, self._needs, self._going = scope.roots, Needs(scope), going

    def check(self, find: Finding, holders: OpenFiles, mounts: Mounts) -> None:
        """Raise StaysError or OSError if the finding must stay."""
        if find.kind == "process":
            raise StaysError(phrase("a process is ended, not moved: gpudeck kill PID"))
        if (
            find.root not in self._roots
            or ".." in find.path.parts
            or not within(find.path, decoded(find.root))
            or is_in_trash(find.path)
        ):
            raise StaysError(
                phrase(
                    "it lies outside the folders that may be cleaned up (see: Settings), or in a "
                    "trash"
                )
            )
        if why := self._needs.of(find):
            raise StaysError(why)
        if mounts.covers(find.path):
            raise StaysError(phrase("something is mounted there"))
        if find.twin:
            self._check_twin(find)
        with parent(find.path) as (folder, name):
            check_unused(folder, name, find.seal, holders)

    def _check_twin(self, find: Finding) -> None:
        """Check that the copy that stays exists, is unchanged, and does not move as well."""
        twin = decoded(find.twin)
        if not self._going.isdisjoint((twin, *twin.parents)):
            raise StaysError(phrase("the identical file would be moved as well"))
        try:
            seal = measured(twin).seal
        except (StaysError, OSError) as e:
            raise StaysError(phrase("the identical file no longer exists")) from e
        if seal != find.twin_seal:
            raise StaysError(phrase("the identical file has changed"))


def _plan(
    checks: _Checks, finds: Sequence[Finding], now: float, left: list[Skipped]
) -> Iterator[TrashItem]:
    holders, mounts = OpenFiles(), Mounts()
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
            yield TrashItem(
                find,
                encoded(found.path),
                encoded(name),
                now,
                encoded(found.top) if found.top else "",
            )


def _take(planned: Sequence[TrashItem], left: list[Skipped]) -> Iterator[TrashItem]:
    for item in planned:
        try:
            move_item(item)
        except (StaysError, OSError) as e:
            left.append(_left(item.find, e))
        else:
            yield item


def move_item(item: TrashItem) -> None:
    """Write the trash's own note, and rename the file. Raises OSError."""
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


def _keep_back(taken: Sequence[TrashItem], left: list[Skipped]) -> Iterator[TrashItem]:
    """Check the items again where nobody can open them any more, and put back what changed.

    Yield the items that stay in the trash.
    """
    holders = OpenFiles()
    for item in taken:
        try:
            with inside(decoded(item.trash), FILES) as files:
                check_unused(files, str(decoded(item.name)), item.find.seal, holders)
        except (StaysError, OSError) as e:
            left.append(_left(item.find, e))
            try:
                put_back(item)
            except (StaysError, OSError) as trouble:
                why = phrase(
                    "{problem}; it is in the trash all the same: {why}",
                    problem=left[-1].why, why=_left(item.find, trouble).why,
                )  # fmt: skip
                left[-1] = Skipped(item.find, why)
                yield item
        else:
            yield item


def _left(find: Finding, error: StaysError | OSError) -> Skipped:
    number = error.errno if isinstance(error, OSError) else None
    return Skipped(find, _IN_OTHER_WORDS.get(number or 0, explain_error(error)))
