"""Provide the real window, offscreen, fed with snapshots.

A test fails on a Qt warning, and on a thread that is still running afterwards.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import (
    QCoreApplication,
    QEvent,
    Qt,
    QThread,
    QtMsgType,
    Signal,
    qInstallMessageHandler,
)
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

import tests.gui.drawing  # noqa: F401 # before Qt starts
from gpudeck.app.assistant.requests import (
    Ask,
    Chat,
    ChatServed,
    Decide,
    FinishedAnswer,
    ReadProposals,
    SessionRequest,
    Wake,
    WriteBrief,
)
from gpudeck.app.charts.past_curves import LoadPast
from gpudeck.app.dashboard.day import LoadDay
from gpudeck.app.jobs.requests import ReadVerdicts, SearchJobs
from gpudeck.app.language import texts
from gpudeck.app.link.call import Call
from gpudeck.app.link.link import Link
from gpudeck.app.models.requests import FindServed, FindUnfinished, ListModels
from gpudeck.app.processes.past import ReadUse
from gpudeck.app.shell.window import MainWindow
from gpudeck.app.widgets import theme
from gpudeck.assistant.host_protocol import Event
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.verbs.jobs import FindJobs
from gpudeck.scheduler.verbs.notify import GetDestinations
from tests.gui import snapshots
from tests.gui.person import Person

TASKS = Path("/proc/self/task")
OFFSCREEN = "This plugin does not support "
"""Warnings of the platform without a screen about dialogs, menus and windows that stay on top."""


@pytest.fixture(autouse=True)
def clean_qt(qapp: QApplication) -> Iterator[None]:
    """Begin in English and the light scheme; fail if Qt warned, or a QThread still runs."""
    said: list[str] = []
    tasks = set(TASKS.iterdir())
    before = qInstallMessageHandler(
        lambda kind, _, text: said.append(text) if kind != QtMsgType.QtDebugMsg else None
    )
    theme.apply(qapp, "light")
    texts.use("en")  # a test of the whole program leaves the language of this machine
    yield
    texts.use("en")
    qapp.processEvents()
    qInstallMessageHandler(before)
    assert [text for text in said if not text.startswith(OFFSCREEN)] == []
    if tasks.issuperset(TASKS.iterdir()):
        return  # no thread was added; looking at every object takes some milliseconds
    # by type: isinstance() would ask each object for its class, and proxies of dead ones raise
    threads = [t for t in gc.get_objects() if issubclass(type(t), QThread)]
    assert [t for t in threads if t is not qapp.thread() and t.isRunning()] == []


class RecordingLink(Link):
    """Record requests without carrying them out; the test replies to them."""

    started = Signal(object)
    """Carries each `Call`."""

    def __init__(self, keep: Callable[[Any], None]) -> None:
        super().__init__()
        self._keep = keep
        self.calls: list[Call] = []

    def start(self, call: Call) -> None:
        self.calls.append(call)
        self._keep(call.request)
        self.started.emit(call)

    def call(self, wanted: object) -> Call:
        """Return the newest call whose request is equal to `wanted`, or of that type."""
        return next(
            call
            for call in reversed(self.calls)
            if call.request == wanted or type(call.request) is wanted
        )


class Fed:
    """A window with snapshots, and the requests that it sent."""

    def __init__(self, qapp: QApplication) -> None:
        self.app = qapp
        self.asked: list[Any] = []
        """All requests except those that pages send by themselves."""
        self.files: list[SessionRequest] = []
        self.models: list[ListModels] = []
        self.looks: list[FindServed] = []
        self.finds: list[SearchJobs] = []
        self.sought: list[FindJobs] = []
        self.remember: list[LoadPast] = []
        self.days: list[LoadDay] = []
        self.uses: list[ReadUse] = []
        self.woken = 0
        self.link = RecordingLink(self._keep)
        self.window = MainWindow(self.link)
        self.window.resize(1280, 800)  # more than the screen of the platform without one has
        self.window.show()

    def _keep(self, request: object) -> None:
        if isinstance(request, Wake):
            self.woken += 1
        elif isinstance(request, SearchJobs):
            self.finds.append(request)
        elif isinstance(request, FindJobs):
            self.sought.append(request)
        elif isinstance(request, LoadDay):
            self.days.append(request)
        elif isinstance(request, LoadPast):
            self.remember.append(request)
        elif isinstance(request, ListModels):
            self.models.append(request)
        elif isinstance(request, GetDestinations | ReadVerdicts | FindUnfinished | ReadProposals):
            pass
        elif isinstance(request, ReadUse):
            self.uses.append(request)
        elif isinstance(request, FindServed):
            self.looks.append(request)
        elif isinstance(request, SessionRequest):
            self.files.append(request)
        else:
            self.asked.append(request)

    def reply(self, wanted: object, value: object = None) -> None:
        """Reply to the newest request that is equal to `wanted`, or of that type."""
        self.link.call(wanted).reply(value)

    def fail(self, wanted: object, message: str) -> None:
        """Let the newest such request fail."""
        self.link.call(wanted).fail(message)

    def answer(self, answer: FinishedAnswer) -> None:
        """Reply to the newest question to the assistant."""
        self._question().reply(answer)

    def event(self, event: Event) -> None:
        """Report an event of the answer to the newest question to the assistant."""
        self._question().progress(event)

    def _question(self) -> Call:
        kinds = Ask | WriteBrief | Decide | Chat | ChatServed
        return next(c for c in reversed(self.link.calls) if isinstance(c.request, kinds))

    def progress(self, wanted: object, value: object) -> None:
        """Report progress of the newest such request."""
        self.link.call(wanted).progress(value)

    def feed(
        self,
        snapshot: snapshots.Snapshot,
        history: bool = False,
        gap: tuple[float, float] | None = None,
    ) -> None:
        if history:
            for device, columns in snapshots.history(snapshot, gap=gap).items():
                self.window.load_history(device, columns)
        self.window.show_link(True, "connected to the daemon")
        self.window.show_snapshot(snapshot)
        self.window.refresh()
        self.settle()

    def settle(self) -> None:
        for _ in range(3):
            self.app.processEvents()


@pytest.fixture
def fed(qapp: QApplication, clean_qt: None, home: Path) -> Iterator[Fed]:
    made = Fed(qapp)
    yield made
    QTest.keyRelease(made.window, Qt.Key.Key_Control)  # a key with modifiers leaves them pressed
    made.window.close()
    made.window.deleteLater()
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    made.settle()


@pytest.fixture
def person(fed: Fed) -> Person:
    """Return a person at a window that shows two GPUs and jobs in every state."""
    fed.feed(snapshots.gpu_snapshot(2), history=True)
    return Person(fed)


@pytest.fixture
def qtbot(qtbot: QtBot) -> QtBot:
    """Wait a minute for conditions, as a busy machine may need more than pytest-qt's 5 s."""
    qtbot.waitUntil = partial(qtbot.waitUntil, timeout=60_000)
    return qtbot


def exchange(qtbot: QtBot, link: Link, request: Any) -> Any:
    """Send a request and return its reply. Raise UserError if it failed."""
    replies: list[object] = []
    errors: list[str] = []
    link.send(link, request, replies.append, errors.append)
    qtbot.waitUntil(lambda: bool(replies or errors), timeout=20_000)
    if errors:
        raise UserError(errors[0])
    return replies[0]
