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

from assistant.housekeeping import bins
from assistant.housekeeping.find import Find, Kept, decoded, encoded, within
from assistant.housekeeping.grounds import Grounds
from assistant.housekeeping.in_use import Holders, check_unused
from assistant.housekeeping.journal import Item, Journal, Left, Receipt, forget, locked
from assistant.housekeeping.mounts import Mounts
from assistant.housekeeping.needed import Needs
from assistant.housekeeping.put_back import put_back
from assistant.housekeeping.tree import measured, parent

_AT_ONCE = 256
"""How many are checked with one look at what all processes have open."""
_IN_OTHER_WORDS = {
    errno.ENOENT: "it is not there any more",
    errno.EXDEV: "it cannot be renamed into a trash, as in the layers of a container's image",
}


def move(
    grounds: Grounds, finds: Iterable[Find], told: Callable[[int], None] = lambda done: None
) -> Receipt:
    """Move what may be moved. Raises UserError where another clean-up is under way. Why the rest stays is in the receipt.

    `told` is called with how many have been dealt with, now and then.
    """
    finds, left, moved = tuple(finds), list[Left](), list[Item]()
    began, checks = (
        time.time(),
        _Checks(grounds, frozenset(find.path for find in finds if find.place)),
    )
    with locked(), Journal() as journal:
        for start in range(0, len(finds), _AT_ONCE):
            planned = list(_plan(checks, finds[start : start + _AT_ONCE], began, left))
            journal.append(planned)
            taken = list(_take(planned, left))
            moved += _keep_back(taken, left)
            told(min(start + _AT_ONCE, len(finds)))
        if not moved:
            forget(journal.id)
    return Receipt(journal.id, began, tuple(moved), tuple(left))


class _Checks:
    """What must be true of a find before it is moved."""

    def __init__(self, grounds: Grounds, going: frozenset[Path]) -> None:
        """`going`: all that is to be moved."""
        self._roots, self._needs, self._going = grounds.roots, Needs(grounds), going

    def check(self, find: Find, holders: Holders, mounts: Mounts) -> None:
        """Raises Kept or OSError where it is to stay."""
        if find.kind == "process":
            raise Kept("a process is ended, not moved: gpudeck kill PID")
        if (
            find.root not in self._roots
            or ".." in find.path.parts
            or not within(find.path, decoded(find.root))
            or bins.is_bin(find.path)
        ):
            raise Kept(
                "it lies outside the folders that may be cleaned up (see: Settings), or in a trash"
            )
        if why := self._needs.of(find):
            raise Kept(why)
        if mounts.hit(find.path):
            raise Kept("something is mounted there")
        if find.twin:
            self._check_twin(find)
        with parent(find.path) as (folder, name):
            check_unused(folder, name, find.seal, holders)

    def _check_twin(self, find: Find) -> None:
        """The copy that stays must be there, as it was, and stay."""
        twin = decoded(find.twin)
        if not self._going.isdisjoint((twin, *twin.parents)):
            raise Kept("the file that is the same is to go as well")
        try:
            seal = measured(twin).seal
        except (Kept, OSError) as e:
            raise Kept("the file that is the same is not there any more") from e
        if seal != find.twin_seal:
            raise Kept("the file that was the same has changed")


def _plan(checks: _Checks, finds: Sequence[Find], now: float, left: list[Left]) -> Iterator[Item]:
    holders, mounts = Holders(), Mounts()
    known: dict[tuple[Path, str], bins.Bin] = {}
    for find in finds:
        where = find.path.parent, find.root
        try:
            checks.check(find, holders, mounts)
            if where not in known:
                known[where] = bins.bin_for(find.path, decoded(find.root), mounts)
        except (Kept, OSError) as e:
            left.append(_left(find, e))
        else:
            found, name = known[where], bins.name_for(find.path, secrets.token_hex(6))
            yield Item(
                find,
                encoded(found.path),
                encoded(name),
                now,
                encoded(found.top) if found.top else "",
            )


def _take(planned: Sequence[Item], left: list[Left]) -> Iterator[Item]:
    for item in planned:
        try:
            take(item)
        except (Kept, OSError) as e:
            left.append(_left(item.find, e))
        else:
            yield item


def take(item: Item) -> None:
    """Write the trash's own note, and rename. Raises OSError, Kept."""
    path, trash, name = (
        item.find.path,
        bins.Bin(decoded(item.trash), decoded(item.top) if item.top else None),
        str(decoded(item.name)),
    )
    with (
        parent(path) as (folder, old),
        bins.inside(trash.path, bins.FILES) as files,
        bins.inside(trash.path, bins.INFO) as info,
    ):
        fd = os.open(
            name + bins.ENDING,
            os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC,
            0o600,
            dir_fd=info,
        )
        try:
            with os.fdopen(fd, "wb") as note:
                note.write(trash.note(path))
            os.rename(old, name, src_dir_fd=folder, dst_dir_fd=files)
        except OSError:
            os.unlink(name + bins.ENDING, dir_fd=info)
            raise


def _keep_back(taken: Sequence[Item], left: list[Left]) -> Iterator[Item]:
    """Look again, where nobody can come at it any more; put back what is not as it was. Gives what stays in the trash."""
    holders = Holders()
    for item in taken:
        try:
            with bins.inside(decoded(item.trash), bins.FILES) as files:
                check_unused(files, str(decoded(item.name)), item.find.seal, holders)
        except (Kept, OSError) as e:
            left.append(_left(item.find, e))
            try:
                put_back(item)
            except (Kept, OSError) as trouble:
                left[-1] = Left(
                    item.find,
                    f"{left[-1].why}; it is in the trash all the same: {_left(item.find, trouble).why}",
                )
                yield item
        else:
            yield item


def _left(find: Find, error: Kept | OSError) -> Left:
    number = error.errno if isinstance(error, OSError) else None
    why = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return Left(find, _IN_OTHER_WORDS.get(number or 0, why))
