"""Show what each person's jobs used by week or month, with verdicts on the chosen one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QWidget

from gpudeck.app.format.usage import Period, UsageRow, add_up, ended_jobs, work_share
from gpudeck.app.format.values import NOT_AVAILABLE
from gpudeck.app.jobs.usage_chart import UsageBar, UsageChart
from gpudeck.app.jobs.verdict_view import VerdictView
from gpudeck.app.language.texts import tr, tr_decimal, tr_moment, tr_noop, tr_whole
from gpudeck.app.link.link import Link
from gpudeck.app.runs.person_verdicts import judge_beyond_figures
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import (
    Stretch,
    add_shortcuts,
    card,
    choice_box,
    column,
    empty_label,
    label,
    row,
    set_text,
)
from gpudeck.app.widgets.list_table import (
    Index,
    RowTable,
    TableColumn,
    chosen_row,
    list_card,
    list_table,
    show_rows,
)
from gpudeck.app.widgets.share_delegate import SHARE, ShareDelegate
from gpudeck.language.numbers import energy
from gpudeck.scheduler.protocol.snapshot import Snapshot

if TYPE_CHECKING:
    from gpudeck.app.link.call import Call

COLUMNS = (
    TableColumn(tr_noop("User"), 140),
    TableColumn(tr_noop("Time"), 150),
    TableColumn(tr_noop("Jobs"), 70, right=True),
    TableColumn(tr_noop("GPU-hours"), 0, right=True, help=tr_noop("GPUs held, times the hours")),
    TableColumn(
        tr_noop("Busy"), 100, right=True, help=tr_noop("The share of these in which GPUs worked")
    ),
    TableColumn(tr_noop("Energy"), 100, right=True),
)
_HOURS, _BUSY = 3, 4
_OPTIONAL = {2: 90, 5: 90}
"""The columns that a narrow table leaves out where GPU-hours would have fewer pixels than these."""
PERIODS: dict[str, tuple[Period, float]] = {
    tr_noop("By week"): ("week", 12 * 7 * 86400.0),
    tr_noop("By month"): ("month", 366 * 86400.0),
}
"""What is added up, and how many seconds of the past are read."""
_RENEW_S = 60.0


@dataclass(frozen=True)
class ReadUsage:
    """Read what jobs used since a moment, by week or month."""

    by: Period
    since: float

    def carry_out(self, call: Call) -> tuple[UsageRow, ...]:
        with call.client() as client:
            return tuple(add_up(ended_jobs(client, self.since), self.by))


@dataclass(frozen=True)
class UsageLine:
    """Hold what the table shows of one person in one period."""

    key: tuple[str, str]
    cells: tuple[str, ...]
    usage: UsageRow
    share: float
    """The GPU-hours beside the most that are listed, 0 to 1."""
    tooltip: str = ""


class UsageTable(RowTable[UsageLine]):
    """List what persons used, with bars of the hours and of the share in which GPUs worked."""

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if role == SHARE:
            line = self.rows[index.row()]
            read = line.usage.read_hours
            worked = line.usage.worked_hours / read if read else None
            return {_HOURS: line.share, _BUSY: worked}.get(index.column())
        return super().data(index, role)


class UsagePanel(QWidget):
    """List persons and periods, the newest first. Esc closes the panel."""

    closed = Signal()

    def __init__(self, link: Link) -> None:
        super().__init__()
        self._link = link
        self._snapshot: Snapshot | None = None
        self._asked: ReadUsage | None = None
        self.model, self.chart = UsageTable(COLUMNS), UsageChart()
        widths = [c.width for c in COLUMNS]
        self.table = list_table(self.model, widths, tr_noop("Usage"), optional=_OPTIONAL)
        for bars in (_HOURS, _BUSY):
            self.table.setItemDelegateForColumn(bars, ShareDelegate(self.table, above=4))
        self.table.selectionModel().currentRowChanged.connect(self._judge)
        self.by = choice_box(tr("Usage"), PERIODS)
        self.by.currentIndexChanged.connect(self._read)
        self.empty = empty_label()
        self.verdicts = VerdictView()
        add_shortcuts(self, {"Esc": self.closed.emit})
        self.setFocusProxy(self.table)
        frame, self._stack = list_card(self.table, self.empty)
        inner = column(
            row(label(tr("Usage"), strong=True), Stretch(), self.by),
            self.chart,
            self.verdicts,
            spacing=theme.M,
        )
        self.setLayout(column(card(inner), Stretch(frame)))

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """Read the usage anew from time to time."""
        self._snapshot = snapshot
        _, seconds = PERIODS[self.by.currentData()]
        if self._asked is None or snapshot.time - seconds - self._asked.since >= _RENEW_S:
            self._read()

    def _read(self) -> None:
        if self._snapshot is not None:
            by, seconds = PERIODS[self.by.currentData()]
            self._asked = ReadUsage(by, self._snapshot.time - seconds)
            self._link.send(self, self._asked, partial(self._take, self._asked), self._fail)

    def _take(self, asked: ReadUsage, found: tuple[UsageRow, ...]) -> None:
        if asked is self._asked:
            set_text(self.empty, tr("No job has ended in this time."))
            most = max((usage.gpu_hours for usage in found), default=0.0)
            lines = tuple(_line(usage, asked.by, most) for usage in found)
            show_rows(self.table, self.model, lines)
            self.chart.show_bars(_bars(lines))
            self.chart.setVisible(most > 0)
            self._stack.setCurrentIndex(0 if found else 1)
            self._judge()

    def _fail(self, problem: str) -> None:
        set_text(self.empty, problem)
        self._stack.setCurrentIndex(1)

    def _judge(self) -> None:
        """Show the verdicts on the chosen person and period."""
        chosen, snapshot = chosen_row(self.table, self.model), self._snapshot
        if chosen is None or snapshot is None:
            self.verdicts.show_verdicts(())
        else:
            self.verdicts.show_verdicts(judge_beyond_figures(chosen.usage, snapshot.settings))


def _days(week: str) -> str:
    """Return the first and the last day of a week that is written by ISO 8601."""
    monday = date.fromisoformat(f"{week}-1")
    first, last = (monday + timedelta(days) for days in (0, 6))
    begin, end = (tr_moment(time.mktime(day.timetuple()), form="date") for day in (first, last))
    return f"{first.day:02d}–{end}" if first.month == last.month else f"{begin} – {end}"


def _bars(lines: Sequence[UsageLine]) -> list[UsageBar]:
    """Return a bar for each period, the oldest first."""
    found: dict[str, list[tuple[str, float]]] = {}
    for line in reversed(lines):
        found.setdefault(line.usage.period, []).append((line.usage.user, line.usage.gpu_hours))
    return [UsageBar(period, tuple(hours)) for period, hours in found.items()]


def _line(usage: UsageRow, by: Period, most: float) -> UsageLine:
    key = (usage.period, usage.user)
    if by == "week":
        usage = msgspec.structs.replace(usage, period=_days(usage.period))
    used = NOT_AVAILABLE if usage.joules is None else tr_decimal(energy(usage.joules))
    hours = tr_decimal(f"{usage.gpu_hours:.1f}")
    cells = (usage.user, usage.period, tr_whole(usage.jobs), hours, work_share(usage), used)
    return UsageLine(key, cells, usage, usage.gpu_hours / most if most else 0.0)
