"""Hostile strings in everything that the window shows: it draws them as text, and sends nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator

import msgspec
import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import Qt as RichQt
from PySide6.QtWidgets import QLabel, QLineEdit, QTextEdit, QWidget

from gpudeck.app.assistant.requests import FinishedAnswer
from gpudeck.app.models.requests import ListModels
from gpudeck.app.shell.window import PAGES
from gpudeck.assistant.facts import phrases
from gpudeck.assistant.library.describe import name_of
from gpudeck.assistant.tools.proposal import Proposal
from gpudeck.scheduler.protocol.jobs import Failed, Job, Progress, Running, queued
from gpudeck.scheduler.protocol.snapshot import Alert, Snapshot
from gpudeck.scheduler.protocol.wait_reasons import StartFailed
from tests.gui import served, snapshots
from tests.gui.conftest import Fed
from tests.gui.snapshots import NOW
from tests.gui.untranslated import listed_by, said_by
from tests.hostile_strings import FEW, controls

pytestmark = pytest.mark.slow
READS = {"GetTimeline", "GetDetails", "Scan", "ReadLog", "GetAlerts"}
"""Requests that pages send by themselves: they read."""
MARKUP = ("<script", "<img", "<b>", "<a ", "</td", "</pre", "<!--")


def hostile_jobs() -> tuple[Job, ...]:
    """Return a job for each string, which it has in all its words."""
    found = []
    for at, text in enumerate(FEW, 10):
        state = (
            queued(StartFailed(text), 0.0),
            Running("a", ("cpu",), NOW - 9, 1, 1, "b", Progress(3, 9, text)),
            Failed(NOW - 90, NOW - 9, text, 3),
        )[at % 3]
        job = snapshots.job(at, state, text, None)
        words = {"group": text, "notes": text, "tags": (text,), "argv": ("python", text)}
        found.append(msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, **words)))
    return tuple(found)


def hostile() -> Snapshot:
    """Return a snapshot whose jobs, alerts are the strings."""
    alerts = tuple(
        Alert(at, "too hot", "cpu", None, text, NOW - 60, NOW - 50)
        for at, text in enumerate(FEW, 1)
    )
    shown = snapshots.cpu_snapshot(alerts=alerts[:50])
    return msgspec.structs.replace(shown, jobs=hostile_jobs())


def escapes(root: QWidget) -> Iterator[tuple[str, str]]:
    """Yield each text that Qt would take for markup of somebody else's, with where it is."""
    for widget in (root, *root.findChildren(QWidget)):
        if isinstance(widget, QTextEdit):
            page = widget.toHtml()
            links = page.count('href="') - page.count('href="fact:')
            if links or "<img" in page:
                yield f"{type(widget).__name__}, document", widget.toPlainText()[:300]
            continue
        plain = isinstance(widget, QLineEdit) or (
            isinstance(widget, QLabel) and widget.textFormat() == Qt.TextFormat.PlainText
        )
        for kind, text in (*said_by(widget), *listed_by(widget)):
            rich = "tooltip" in kind or (kind == "text" and not plain)
            if rich and RichQt.mightBeRichText(text) and any(tag in text for tag in MARKUP):
                yield f"{type(widget).__name__}, {kind}", text
            if kind in ("text", "cell") and controls(text):
                yield f"{type(widget).__name__}, {kind}, controls", ascii(text)


def test_every_page_draws_them_as_text_and_sends_nothing(fed: Fed) -> None:
    window = fed.window
    fed.feed(hostile())
    models = tuple(
        msgspec.structs.replace(
            served.MODELS[at % len(served.MODELS)], name=name_of(text), path=f"/m/{text}"
        )
        for at, text in enumerate(FEW[::5])
    )
    every: list[tuple[str, ...]] = []
    for page in PAGES:
        window.show_page(page)
        if page == "models":
            fed.reply(ListModels, models)
        fed.settle()
        every += [(page, *found) for found in escapes(window)]
    assert every == []
    assert {type(request).__name__ for request in fed.asked} <= READS


def test_a_conversation_about_them_is_text_and_allows_nothing(fed: Fed) -> None:
    fed.feed(hostile())
    fed.window.show_page("assistant")
    page = fed.window.assistant
    for at, text in enumerate(FEW[::3]):
        quoted = phrases.escaped(text, 500)
        proposal = Proposal(
            f"p{at}", "operate cancel", quoted, quoted, (("Command", text),), time.time() + 900
        )
        answer = f"**{quoted}** waits.\n\n{phrases.fenced(phrases.clean(text))}"
        page.show_answer(text, FinishedAnswer(answer, "template", proposal=proposal))
        fed.settle()
        assert not list(escapes(page)), ascii(text)
    assert {type(request).__name__ for request in fed.asked} <= READS
