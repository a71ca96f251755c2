"""The window's notifications are shown on a real session bus, with what can be done about them."""

from __future__ import annotations

import queue
from collections.abc import Iterator

import pytest

from gpudeck.app.shell.notifications import send_notice
from gpudeck.language.text import phrase
from gpudeck.scheduler.notices.notice import Action, Notice
from tests.desktop_session import FakeDesktop, session

NOTICE = Notice(
    "fail",
    "GPU Deck: no progress",
    "job 3 (<b>--help</b>)",
    urgent=True,
    actions=(Action(phrase("Retry"), ("retry", "--help")),),
)


@pytest.fixture
def desktop(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDesktop]:
    """Return a desktop on a real session bus."""
    yield from session(monkeypatch)


def test_a_notice_has_no_markup_and_its_button_runs_the_command(desktop: FakeDesktop) -> None:
    send_notice(NOTICE, pytest.fail)
    shown = desktop.next()
    assert (shown["title"], shown["text"]) == (NOTICE.title, "job 3 (&lt;b>--help&lt;/b>)")
    assert shown["actions"] == ["0", "Retry"]
    desktop.choose(shown["number"], "0")
    done = desktop.next()
    assert (done["title"], done["replaces"]) == ("Retry: GPU Deck: no progress", shown["number"])
    assert done["text"].startswith("usage: gpudeck retry")


def test_a_notice_that_no_desktop_takes_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nowhere/bus")
    unsent: queue.Queue[Notice] = queue.Queue()
    send_notice(NOTICE, unsent.put)
    assert unsent.get(timeout=60) == NOTICE
