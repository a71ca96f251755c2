"""A failed job says why and what to do, and shows the logs of its earlier attempts."""

from __future__ import annotations

import msgspec
import pytest
from PySide6.QtGui import QDesktopServices

from gpudeck.app.jobs.requests import ReadLog, RepeatJobs
from gpudeck.app.widgets import theme
from gpudeck.language.numbers import GIB
from gpudeck.scheduler.protocol.jobs import Failed
from gpudeck.scheduler.protocol.log_file import Output
from tests.gui import snapshots
from tests.gui.snapshots import NOW

LINE = b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.00 GiB. "
LOG = b"epoch 1\n" + LINE + b"This process has 29.10 GiB memory in use.\nwandb: ended\n"


@pytest.fixture
def page(fed):
    made = snapshots.gpu_snapshot(2)
    state = Failed(NOW - 160, NOW - 150, "exit code 1", 1, (snapshots.gpu(0).id,))
    job = snapshots.job(40, state, "train", None)
    spec = msgspec.structs.replace(job.spec, memory=30 * GIB, cwd="/data/run")
    job = msgspec.structs.replace(job, tries=2, spec=spec)
    fed.window.show_page("jobs")
    fed.feed(msgspec.structs.replace(made, jobs=(job, *made.jobs)))
    fed.window.jobs.show_job(40)
    fed.reply(ReadLog(40), Output(0, LOG, len(LOG)))
    fed.window.refresh()
    fed.settle()
    return fed.window.jobs


def test_the_card_says_why_marks_the_line_and_retries_with_more_memory(fed, page):
    card, log = page.details.failure, page.details.log
    assert card.isVisible()
    assert card.cause.text() == "The job needed more than its 30 GiB of GPU memory."
    assert card.quote.text().startswith(LINE.decode())
    (mark,) = log.extraSelections()
    assert mark.cursor.block().text().startswith(LINE.decode())
    assert mark.format.background().color().name() == theme.LIGHT.failed
    assert log.textCursor().block() == mark.cursor.block(), "the line is shown"
    assert "exit code 1" not in page.details.facts.toPlainText().splitlines()
    assert card.retry.text() == "Retry with 39 GiB"
    card.retry.click()
    assert fed.asked[-1] == RepeatJobs((40,), {"memory": 39 * GIB})
    card.resume.click()
    assert fed.asked[-1] == RepeatJobs((40,), {"memory": 39 * GIB}, artefacts=True)
    fed.window.jobs.choose(8)
    fed.settle()
    assert not card.isVisible() and log.extraSelections() == []


def test_the_folder_of_a_failed_job_is_opened(page, monkeypatch):
    opened = []
    monkeypatch.setattr(QDesktopServices, "openUrl", lambda url: opened.append(url.toLocalFile()))
    page.details.failure.folder.click()
    assert opened == ["/data/run"]


def test_the_log_of_an_earlier_attempt_is_chosen(fed, page):
    chooser, details = page.details.attempts, page.details
    assert chooser.isVisible()
    assert [chooser.itemText(at) for at in range(chooser.count())] == [
        "Attempt 1",
        "Attempt 2",
        "Attempt 3",
    ]
    assert chooser.currentIndex() == 2
    newest = fed.link.call(ReadLog(40))
    chooser.setCurrentIndex(0)
    chooser.activated.emit(0)
    assert fed.asked[-1] == ReadLog(40, None, 1)
    newest.reply(Output(0, b"of the newest\n", 14))
    assert details.log.toPlainText() == "", "an answer about another attempt"
    fed.reply(ReadLog(40, None, 1), Output(0, b"first run\n", 10))
    fed.window.refresh()
    assert details.log.toPlainText() == "first run\n"
    assert not details.failure.isVisible(), "it explains the newest attempt"
    page.choose(8)
    fed.settle()
    assert not chooser.isVisible()


def test_the_failed_jobs_of_an_array_are_retried_together(fed):
    made = snapshots.gpu_snapshot(2)
    jobs = []
    for number in range(50, 54):
        failed = Failed(NOW - 60, NOW - 50, "exit code 1", 1)
        state = failed if number < 52 else made.jobs[3].state
        job = snapshots.job(number, state, "sweep", None)
        spec = msgspec.structs.replace(job.spec, index=number - 50)
        jobs.insert(0, msgspec.structs.replace(job, spec=spec, submitted=NOW - 99))
    fed.window.show_page("jobs")
    fed.feed(msgspec.structs.replace(made, jobs=(*jobs, *made.jobs)))
    page = fed.window.jobs
    (head,) = page.model.rows.folds
    page.choose(head)
    fed.settle()
    assert page.fold.isVisible()
    assert page.fold.retry.text() == "Retry the 2 failed"
    page.fold.retry.click()
    (sent,) = [request for request in fed.asked if isinstance(request, RepeatJobs)]
    assert sorted(sent.jobs) == [50, 51]


def test_nothing_here_is_offered_for_a_job_that_failed_on_another_machine(fed, page):
    card = page.details.failure
    assert card.folder.isVisible() and card.resume.isVisible()
    job = next(job for job in fed.window.state.snapshot.jobs if job.id == 40)
    spec = msgspec.structs.replace(job.spec, where="ssh:lab")
    card.show_failure(msgspec.structs.replace(job, spec=spec), card._shown)
    assert card.isVisible()
    assert not card.folder.isVisible() and not card.resume.isVisible()
