"""Order the rows of the jobs table, and fold arrays and groups into one row each. Free of Qt."""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from gpudeck.app.format.job_rows import JobRow
from gpudeck.app.format.values import Meaning
from gpudeck.app.jobs.history import JobHistory
from gpudeck.app.jobs.job_keys import (
    CANCELLED,
    FAILED,
    KINDS,
    RUNNING,
    SUCCEEDED,
    WAITING,
    FoldKey,
    JobKeys,
)
from gpudeck.app.jobs.listing import JobLine, JobLines
from gpudeck.app.language.texts import tr, tr_count

FEWEST = 2
"""Jobs of an array or a group that are folded; fewer are shown as they are."""
MOST_INSERTED = 200
"""Rows that change with each snapshot and are inserted into the sorted ones, one by one."""
_STATES = {
    RUNNING: "running",
    WAITING: "queued",
    FAILED: "failed",
    SUCCEEDED: "done",
    CANCELLED: "cancelled",
}
"""The state of a fold is that of the first of these kinds which one of its jobs has."""


class SortOrder(NamedTuple):
    """Name the column that the user sorts by."""

    column: int
    descending: bool


class Arrangement:
    """Keep what the user unfolded and sorts by, and apply it to the lines."""

    def __init__(self) -> None:
        self.order: SortOrder | None = None
        self.opened: set[FoldKey] = set()
        self._numbers: dict[FoldKey, int] = {}
        """The number of each fold's row: below 0, and always the same."""
        self._keys: dict[int, FoldKey] = {}
        self._in_order: tuple[object, list[int]] = (None, [])
        """The ended jobs in the user's order, and what they were sorted for."""
        self._ended: tuple[object, list[int], dict[FoldKey, list[int]]] = (None, [], {})

    def toggle(self, number: int) -> None:
        """Unfold an array or a group, or fold it."""
        if (key := self._keys.get(number)) is not None:
            self.opened ^= {key}

    def applied(self, lines: JobLines, history: JobHistory) -> JobLines:
        """Return the lines with a row for each array and group, in the user's order."""
        active = list(lines.active.values())
        counts, members = _members(active, history)
        folds = {key: count for key, count in counts.items() if count.total() >= FEWEST}
        if not folds:
            ids = [*(line.id for line in active), *history.numbers]
            return lines.arranged(self._sorted(ids, lines, history, {}), {}, {}, frozenset())
        flat, ended_in = self._unfolded(history, frozenset(folds))
        rows = {
            key: _fold_line(self._number(key), key, count, key in self.opened)
            for key, count in folds.items()
        }
        everyone = {
            row.id: (*members.get(key, ()), *ended_in.get(key, ())) for key, row in rows.items()
        }
        inside = {rows[key].id: list(everyone[rows[key].id]) for key in self.opened & folds.keys()}
        by_number = {line.id: line for line in rows.values()}
        ids = self._sorted(_in_place(active, flat, rows), lines, history, by_number)
        if inside:
            ids = [
                each
                for number in ids
                for each in (number, *self._sorted(inside.get(number, []), lines, history, {}))
            ]
        indented = frozenset(number for numbers in inside.values() for number in numbers)
        return lines.arranged(ids, by_number, everyone, indented)

    def _number(self, key: FoldKey) -> int:
        if key not in self._numbers:
            self._numbers[key] = -1 - len(self._numbers)
            self._keys[self._numbers[key]] = key
        return self._numbers[key]

    def _unfolded(
        self, history: JobHistory, folds: frozenset[FoldKey]
    ) -> tuple[list[int], dict[FoldKey, list[int]]]:
        """Return the ended jobs with each fold's row in their place, and the jobs of each fold.

        They are kept, as there may be a hundred thousand.
        """
        mine = frozenset(folds & history.counts.keys())
        made_for = (id(history), history.version, mine)
        if self._ended[0] != made_for:
            flat, inside = list[int](), dict[FoldKey, list[int]]()
            for number in history.numbers:
                fold = history.folds.get(number)
                if fold is None or fold not in mine:
                    flat.append(number)
                    continue
                if fold not in inside:
                    flat.append(self._number(fold))
                inside.setdefault(fold, []).append(number)
            self._ended = (made_for, flat, inside)
        return self._ended[1], self._ended[2]

    def _sorted(
        self,
        ids: list[int],
        lines: JobLines,
        history: JobHistory,
        folds: dict[int, JobLine],
    ) -> list[int]:
        """Return the rows in the user's order; as they are where there is none."""
        if self.order is None:
            return ids
        column, known = self.order.column, history.keys

        def value(number: int) -> tuple[bool, float | str]:
            line = folds.get(number) or lines.active.get(number)
            found = (known[number] if line is None else line.keys).values[column]
            return isinstance(found, str), found

        live = [number for number in ids if number in folds or number in lines.active]
        if len(live) > MOST_INSERTED:
            return sorted(ids, key=value, reverse=self.order.descending)
        ended = [number for number in ids if number in known and number not in lines.active]
        made_for = (history.version, self.order, len(ended), ended[:1], ended[-1:])
        if self._in_order[0] != made_for:
            self._in_order = (made_for, sorted(ended, key=value))
        made = list(self._in_order[1])  # few rows change between two snapshots
        for number in live:
            insort(made, number, key=value)
        return made[::-1] if self.order.descending else made


def _members(
    active: Iterable[JobLine], history: JobHistory
) -> tuple[dict[FoldKey, Counter[str]], dict[FoldKey, list[int]]]:
    """Return the jobs of each kind that arrays and groups have, and which of these are active."""
    counts = {key: Counter(kinds) for key, kinds in history.counts.items()}
    members: dict[FoldKey, list[int]] = {}
    for line in active:
        if line.keys.fold is not None:
            counts.setdefault(line.keys.fold, Counter())[line.keys.kind] += 1
            members.setdefault(line.keys.fold, []).append(line.id)
    return counts, members


def _in_place(
    active: Iterable[JobLine], ended: Iterable[int], rows: Mapping[FoldKey, JobLine]
) -> list[int]:
    """Return the numbers of all rows: that of an array or a group where its first job would be."""
    ids: dict[int, None] = {}
    for line in active:
        fold = None if line.keys.fold is None else rows.get(line.keys.fold)
        ids.setdefault(line.id if fold is None else fold.id)
    return list(ids | dict.fromkeys(ended))


def _fold_line(number: int, key: FoldKey, count: Counter[str], opened: bool) -> JobLine:
    """Return the row of an array or a group."""
    total = count.total()
    over = count[SUCCEEDED] + count[FAILED] + count[CANCELLED]
    kind = next(kind for kind in _STATES if count[kind])
    if count[SUCCEEDED] == over:
        texts = [tr("{n} of {total} done", n=over, total=total)]
    elif over < total:
        texts = [tr("{n} of {total} ended", n=over, total=total)]
    else:
        texts = [tr("all {n} ended", n=total)]
    counted = (
        (FAILED, tr("{n} failed", n=count[FAILED])),
        (CANCELLED, tr("{n} cancelled", n=count[CANCELLED])),
        (RUNNING, tr("{n} running", n=count[RUNNING])),
        (WAITING, tr("{n} queued", n=count[WAITING])),
    )
    texts += [text for kind, text in counted if count[kind]]
    meaning: Meaning = "failed" if count[FAILED] and over == total else ""
    row = JobRow(
        number,
        f"{'▾' if opened else '▸'}  {key.name}",
        _STATES[kind],
        meaning,
        "",
        " · ".join(texts),
        over / total,
        "",
        "",
        active=over < total,
    )
    values: tuple[float | str, ...] = (
        number, key.name.casefold(), KINDS.index(kind), "", 0.0, over / total, -1.0, 0.0, -1.0,
    )  # fmt: skip
    jobs = tr_count("{n} job", "{n} jobs", total)
    return JobLine(number, row, "", jobs, 0, JobKeys(kind, None, values), fold=key)


def jobs_of(numbers: Sequence[int], lines: JobLines) -> tuple[int, ...]:
    """Return the jobs of these rows: those of an array or a group in place of its row."""
    if not lines.folds:
        return tuple(numbers)
    found: dict[int, None] = {}
    for number in numbers:
        found.update(dict.fromkeys(lines.members.get(number, (number,))))
    return tuple(found)
