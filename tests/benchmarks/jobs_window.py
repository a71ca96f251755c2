"""Measure the Jobs page with a full queue.

    python -m tests.benchmarks.jobs_window

A real daemon holds 100,000 ended jobs and 10,000 that wait; the window is real, but offscreen. A
simulated reader opens the page, scrolls to its very end by wheel and keys, stays there while
snapshots arrive, searches, and filters. Meanwhile a timer in the window's event loop measures its
delays. The rows go to results/jobs_window.csv: one for each figure, with its target.
"""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

import psutil
from PySide6.QtCore import QEvent, QObject, QPoint, QPointF, Qt, QTimer
from PySide6.QtGui import QKeyEvent, QWheelEvent
from PySide6.QtWidgets import QApplication, QWidget

from gpudeck.app.jobs.page import JobsPage
from gpudeck.app.tour.session import Session
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import settings
from gpudeck.scheduler.protocol.settings import Settings
from tests.benchmarks.queue_speed import ENDED, WAITING, fill, holder
from tests.benchmarks.rows import context, spread, write

TICK_S = 0.005
STALL_MS, LATE_MS = 100.0, 33.0
"""Targets in milliseconds: the longest stall of the event loop, and the 99th percentile of its
delay.
"""
INPUT_S = 1 / 60
"""Seconds between two turns of the wheel, or two repeats of a key that is held down."""
PATIENCE_S = 600.0


class Lateness(QObject):
    """Measure how late a timer of the event loop fires, and the thread's CPU time between two
    ticks.

    A stall counts for every tick that was missed in it, not once.
    """

    def __init__(self) -> None:
        super().__init__()
        self._found: list[float] = []
        self._worked: list[float] = []
        self._last, self._used = time.perf_counter(), time.thread_time()
        self._timer = QTimer(self)
        self._timer.setTimerType(Qt.TimerType.PreciseTimer)
        self._timer.setInterval(round(TICK_S * 1000))
        self._timer.timeout.connect(self._tick)
        self._timer.start()

    def taken(self) -> tuple[list[float], list[float]]:
        """Return both measures in milliseconds, and start anew."""
        found, self._found = self._found, []
        worked, self._worked = self._worked, []
        return found, worked

    def _tick(self) -> None:
        now, used = time.perf_counter(), time.thread_time()
        self._worked.append((used - self._used) * 1e3)
        self._used = used
        late = now - self._last - TICK_S
        self._last = now
        self._found.append(max(late, 0.0) * 1e3)
        while (late := late - TICK_S) > 0:
            self._found.append(late * 1e3)


class Reader:
    """Use the page as a person does, and keep the figures in `rows`."""

    def __init__(self, session: Session, hold_s: float) -> None:
        self._session, self._late, self._hold_s = session, Lateness(), hold_s
        self.rows: list[dict[str, object]] = []

    @property
    def page(self) -> JobsPage:
        return self._session.window.jobs

    def timed(
        self, name: str, act: Callable[[], object], done: Callable[[], bool], target: float
    ) -> None:
        """Return the milliseconds from `act` to `done`."""
        self._late.taken()
        start = time.perf_counter()
        act()
        self.until(done)
        self._add(name, [(time.perf_counter() - start) * 1e3], target)
        self.stalls(name)

    def stalls(self, name: str) -> None:
        """Add rows about the stalls of the event loop since the last such rows."""
        self._session.spin(0.3)
        found, worked = self._late.taken()
        for which, target in (
            ("longest stall", STALL_MS),
            ("lateness, p99", LATE_MS),
            ("lateness, p50", LATE_MS),
        ):
            self._add(f"{name}: {which}", found, target)
        self._add(f"{name}: longest work, CPU time", worked, None)

    def memory(self, name: str) -> None:
        self._add(name, [psutil.Process().memory_info().rss / 1e6], None, "MB")

    def held(self, event: Callable[[], None], seconds: float = 0.0) -> None:
        """Repeat an action sixty times a second, for as long as the reader is patient."""
        self.until(lambda: False, seconds or self._hold_s, event)

    def until(
        self,
        done: Callable[[], bool],
        seconds: float = PATIENCE_S,
        event: Callable[[], None] | None = None,
    ) -> None:
        timer = QTimer()
        if event is not None:
            timer.timeout.connect(event)
            timer.start(round(INPUT_S * 1000))
        met = self._session.until(done, seconds)
        timer.stop()
        if not met and event is None:
            raise TimeoutError(f"not within {seconds:.0f} s")

    def wheel(self) -> None:
        at = QPointF(self.page.table.viewport().rect().center())
        turn = QWheelEvent(
            at,
            self.page.table.viewport().mapToGlobal(at),
            QPoint(),
            QPoint(0, -360),
            Qt.MouseButton.NoButton,
            Qt.KeyboardModifier.NoModifier,
            Qt.ScrollPhase.NoScrollPhase,
            False,
        )
        QApplication.sendEvent(self.page.table.viewport(), turn)

    def key(self, key: Qt.Key, held: Qt.KeyboardModifier = Qt.KeyboardModifier.NoModifier) -> None:
        press(self.page.table, key, held)

    def _add(
        self, name: str, samples: Sequence[float], target: float | None, unit: str = "ms"
    ) -> None:
        found = spread(samples)
        value = (
            found["median"]
            if name.endswith("p50")
            else found["p99"]
            if name.endswith("p99")
            else found["max"]
        )
        met = "" if target is None else value <= target
        self.rows.append(
            {
                "figure": name,
                "target": target or "",
                "unit": unit,
                "value": value,
                "met": met,
                **found,
            }
        )
        verdict = ""
        if target is not None:
            verdict = "met" if met else f"MISSED ({target:g})"
        print(f"{name:75} {value:9.4g} {unit:4} {verdict}", flush=True)


def press(
    widget: QWidget,
    key: Qt.Key,
    held: Qt.KeyboardModifier = Qt.KeyboardModifier.NoModifier,
    text: str = "",
) -> None:
    for kind in (QEvent.Type.KeyPress, QEvent.Type.KeyRelease):
        QApplication.sendEvent(widget, QKeyEvent(kind, key, held, text))


def measure(hold_s: float = 10.0) -> list[dict[str, object]]:
    """Return a row for each figure; keys are held down, and the page is watched, for `hold_s`."""
    with Session() as session:
        window, reader = session.window, Reader(session, hold_s)
        reader.until(
            lambda: window.state.snapshot is not None and bool(window.state.snapshot.devices)
        )
        session.spin(4.0)  # the dashboard is shown first
        reader.memory("memory before the page is opened")
        reader.timed(
            "opening the page",
            lambda: window.show_page("jobs"),
            lambda: len(reader.page.model.rows) > 0,
            500.0,
        )
        scroll(reader)
        search(reader)
        choose(reader)
        reader.memory("memory after all")
    return reader.rows


def scroll(reader: Reader) -> None:
    """Scroll to the oldest job, and back and forth in the loaded rows."""
    page = reader.page
    reader.until(lambda: len(page.model.rows) > 100)
    reader.held(reader.wheel)
    reader.stalls("scrolling by the wheel")
    page.table.setFocus()
    reader.held(lambda: reader.key(Qt.Key.Key_PageDown))
    reader.stalls("scrolling by PgDn")
    start = time.perf_counter()
    reader.until(
        lambda: len(page.model.rows) >= ENDED,
        event=lambda: reader.key(Qt.Key.Key_End, Qt.KeyboardModifier.ControlModifier),
    )
    print(f"{len(page.model.rows)} rows after {time.perf_counter() - start:.0f} s of End")
    reader.stalls("End, held down to the oldest job")
    reader.memory("memory with all that ended")
    reader.held(lambda: None)
    reader.stalls("at the end, as snapshots come")
    reader.key(Qt.Key.Key_A, Qt.KeyboardModifier.ControlModifier)
    reader.stalls("all of them selected")
    reader.held(lambda: reader.key(Qt.Key.Key_Up))
    reader.stalls("there, job by job upwards")


def search(reader: Reader) -> None:
    """Measure the time from the last keystroke to the result: one job, all of them, none."""
    page, deep = reader.page, ENDED // 3
    for name, text, done in (
        ("a word of all jobs", "train", lambda: len(page.model.rows) >= 100),
        (
            "a word of one job",
            f"number-{deep}",
            lambda: [line.id for line in page.model.rows] == [deep],
        ),
        (
            "a word of none",
            "nowhere",
            lambda: not page.model.rows and "Searching" not in page.empty.text(),
        ),
    ):
        page.filter.clear()
        reader.until(lambda: len(page.model.rows) > 100)
        page.filter.setFocus()
        for letter in text[:-1]:
            press(page.filter, Qt.Key.Key_unknown, text=letter)
            reader.held(lambda: None, 0.08)
        reader.timed(
            f"search: {name}",
            partial(press, page.filter, Qt.Key.Key_unknown, text=text[-1]),
            done,
            1000.0,
        )
    page.filter.clear()


def choose(reader: Reader) -> None:
    """Apply the filters, and scroll through the waiting jobs to the last."""
    page = reader.page
    reader.timed(
        "filter: Waiting",
        lambda: page.kinds.setCurrentText("Waiting"),
        lambda: len(page.model.rows) >= 100,
        1000.0,
    )
    reader.until(
        lambda: len(page.model.rows) >= WAITING,
        event=lambda: reader.key(Qt.Key.Key_End, Qt.KeyboardModifier.ControlModifier),
    )
    reader.stalls("filter: Waiting, End held down to the last of them")
    reader.held(lambda: None)
    reader.stalls("all that wait, as snapshots come")
    for kind in ("Succeeded", "Failed", "Running", "All states"):
        wanted = {
            "Failed": lambda: "Searching" not in page.empty.text(),
            "Running": lambda: len(page.model.rows) == 1,
        }
        done = wanted.get(kind, lambda: len(page.model.rows) >= 100)
        reader.timed(
            f"filter: {kind}", lambda kind=kind: page.kinds.setCurrentText(kind), done, 1000.0
        )


def full_queue(hold_s: float = 10.0) -> list[dict[str, object]]:
    """Fill the queue of a new daemon, and return the rows of `measure`."""
    with tempfile.TemporaryDirectory() as home:
        os.environ["GPUDECK_HOME"] = home
        settings.save(Settings(source="cpu"))
        fill()
        with Client() as deck:
            try:
                return measure(hold_s)
            finally:
                deck.cancel(holder(deck))
                deck.stop_daemon()


def main() -> int:
    rows = full_queue()
    where = context(
        f"{os.cpu_count()} cores, {platform.system()} {platform.release().split('-')[0]}",
        ["PySide6-Essentials", "msgspec"],
    )
    print(write("jobs_window", [row | where for row in rows]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
