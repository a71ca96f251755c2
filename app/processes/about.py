"""Show what the table has no room for: the whole command of a process, and how it used its device.

The history keeps that of processes on GPUs. Of others, and of the first minutes, the page itself
remembers the readings.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterable
from typing import Literal

import numpy as np
from PySide6.QtCore import Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QFrame, QSizePolicy

from gpudeck.app.charts.spark_card import SparkCard
from gpudeck.app.format.values import clock
from gpudeck.app.language.texts import tr, tr_decimal
from gpudeck.app.link.link import Link
from gpudeck.app.processes.past import MONTH_S, ProcessCurves, ReadUse
from gpudeck.app.processes.process_rows import CPU, MEMORY, NAME, SM_SHARE, ProcessRow
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import Stretch, button, column, elided, label, row, set_text
from gpudeck.app.widgets.safe_text import SafeText
from gpudeck.language.numbers import duration
from gpudeck.scheduler.protocol.devices import Detail, Process
from gpudeck.scheduler.protocol.past_processes import EndedProcess, use_of

_KEPT, _KEPT_S = 120, 240.0
"""Readings that are kept of each process, and the seconds that they last."""
_COMMAND_HEIGHT = 100
"""The most pixels of height of a command; a longer one is scrolled."""
Form = Literal["low", "below", "beside"]
"""Charts beside the texts, in a row below them, or one below the other."""
_HEIGHTS: dict[Form, int] = {"low": 96, "below": 150, "beside": 240}
"""The least height of a chart."""
_MOST = 320
"""The greatest one."""
_Key = tuple[str, int, int]
_Readings = tuple[float, float, float]
"""Bytes, and the loads of the GPU and of the CPU in percent; NaN where one is not known."""


class ProcessAbout(QFrame):
    """Describe one process."""

    copied = Signal()
    """The user wants the command in the clipboard."""
    job_wanted = Signal(int)
    """The user wants to see the job with this number."""

    def __init__(self, link: Link) -> None:
        super().__init__()
        self._link = link
        self._asked: ReadUse | None = None
        """The newest request for the use of a process."""
        self._past: ProcessCurves | None = None
        self.setProperty("card", "true")
        self.title = label(strong=True)
        self.facts = elided(size="small", meaning="muted")
        self.copy = button(tr("Copy command"), self.copied, kind="quiet")
        self.open_job = button("", self._want_job, tooltip=tr("Show the job on the Jobs page"))
        self._job: int | None = None
        self.command = SafeText()
        self.command.setAccessibleName(tr("Command of the process"))
        self.memory, self.load = (
            SparkCard(name, tr_decimal(duration(_KEPT_S)))
            for name in (tr("Memory"), tr("GPU load"))
        )
        self._readings: dict[_Key, deque[_Readings]] = {}
        texts = column(
            row(self.title, Stretch(self.facts), self.copy, self.open_job, spacing=theme.M),
            self.command,
            Stretch(),
            spacing=theme.S,
        )
        self._charts = row(self.memory, self.load)
        parts = (Stretch(texts), Stretch(self._charts), Stretch())
        self._body = column(*parts, margins=(theme.L, theme.M, theme.L, theme.M))
        self.setLayout(self._body)
        self.form: Form | None = None
        self.arrange("below")

    def arrange(self, form: Form) -> None:
        """Place the charts below the texts, or in a low card beside them."""
        if form == self.form:
            return
        self.form = form
        directions, policies = QBoxLayout.Direction, QSizePolicy.Policy
        down, across = directions.TopToBottom, directions.LeftToRight
        self._body.setDirection(across if form == "low" else down)
        self._charts.setDirection(down if form == "beside" else across)
        for chart in (self.memory, self.load):
            chart.setMinimumHeight(theme.px(_HEIGHTS[form]))
            chart.setMaximumHeight(theme.px(_HEIGHTS[form] if form == "low" else _MOST))
        for at, stretch in enumerate((1, 1, 0) if form == "low" else (0, 1000, 1)):
            self._body.setStretch(at, stretch)
        vertical = policies.Maximum if form == "low" else policies.Preferred
        self.setSizePolicy(policies.Preferred, vertical)
        self._fit_command()

    def take(self, details: Iterable[Detail]) -> None:
        """Keep the newest readings of all processes, and forget the processes that ended."""
        before, self._readings = self._readings, {}
        for detail in details:
            for process in (*detail.processes, *detail.cpu_processes):
                key = _key(detail.device, process)
                kept = before.get(key) or deque(maxlen=_KEPT)
                kept.append(_readings(process))
                self._readings[key] = kept

    def forget(self) -> None:
        """Forget all readings; the next ones would not follow them without a gap."""
        self._readings = {}

    def show_process(self, chosen: ProcessRow, since: float | None, now: float) -> None:
        """Describe a process of the table.

        Args:
            since: The begin of what is shown of it; None: when it began.
            now: Seconds since the epoch.
        """
        process = chosen.process
        set_text(self.title, f"{chosen.cells[NAME]} · PID {process.pid}")
        self._job = process.job
        self.open_job.setVisible(process.job is not None)
        if process.job is not None:
            self.open_job.setText(tr("Open job {job}", job=process.job))
        set_text(self.facts, _facts(process))
        if (command := chosen.cells[-1]) != self.command.toPlainText():
            self.command.setPlainText(command)
            self._fit_command()
        # what past processes were started with is not kept
        self.copy.setVisible(bool(process.command))
        self.command.setVisible(bool(process.command) or command != process.name)
        device = chosen.device.id if chosen.device else ""
        known = self._readings.get(_key(device, process)) or (_readings(process),)
        age = now - process.start if process.start else _KEPT_S
        span = min(max(age, len(known) * _KEPT_S / _KEPT), _KEPT_S)
        points = round(span / _KEPT_S * _KEPT)
        missing = np.full((points - len(known), 3), math.nan)  # the curve ends at the present
        sizes, loads, cpu_loads = np.vstack((missing, np.array(known))).T
        on_cpu = process.kind == "cpu"
        began = max(process.start or now - MONTH_S, now - MONTH_S) if since is None else since
        until = now
        if isinstance(process, EndedProcess):
            began, until = max(began, process.start), max(process.last, process.start + 1)
        if not on_cpu and (now - began > _KEPT_S or until < now):
            key = use_of(device, process).key
            self._read(ReadUse(key, began, until))
            if self._past is not None and self._past.request.key == key:
                sizes, loads, span = self._past.sizes, self._past.loads, now - began
        for chart in (self.memory, self.load):
            if until < now - _KEPT_S / _KEPT:
                chart.show_ends(clock(began, now), clock(until, now))
            else:
                chart.show_span(tr_decimal(duration(span)))
        self.load.title = tr("CPU") if on_cpu else tr("GPU load")
        self.memory.show_values(sizes, None, chosen.cells[MEMORY], unit=2.0**30)
        shown, top = (cpu_loads, None) if on_cpu else (loads, 100.0)
        self.load.show_values(shown, top, chosen.cells[CPU if on_cpu else SM_SHARE])

    def _want_job(self) -> None:
        if self._job is not None:
            self.job_wanted.emit(self._job)

    def _read(self, wanted: ReadUse) -> None:
        """Request the use of a process, again from time to time."""
        if self._asked is not None and self._asked.is_like(wanted):
            return
        self._asked = wanted
        self._link.send(self, wanted, self._take_use, lambda _: None, background=True)

    def _take_use(self, found: ProcessCurves) -> None:
        if found.request is self._asked:
            self._past = found

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit_command()

    def _fit_command(self) -> None:
        """Give the command the height of its lines, up to a limit."""
        document = self.command.document()
        document.setTextWidth(self.command.width())
        height = math.ceil(document.size().height())
        self.command.setFixedHeight(min(height, theme.px(_COMMAND_HEIGHT)))


def _key(device: str, process: Process) -> _Key:
    return device, process.pid, process.ticks


def _readings(process: Process) -> _Readings:
    known = (process.memory, process.sm, process.cpu)
    size, load, cpu = (math.nan if value is None else float(value) for value in known)
    return size, load, cpu


def _facts(process: Process) -> str:
    """Return what the table does not say, or says only where it is wide."""
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(process.start))
    parts = (
        tr("started {time}", time=began) if process.start else "",
        tr("job {job}", job=process.job) if process.job is not None else "",
        tr("container {id}", id=process.container) if process.container else "",
    )
    return " · ".join(filter(None, parts))
