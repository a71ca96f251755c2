"""The workloads page runs a workload and shows its result."""

from __future__ import annotations

import os

import msgspec
import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest

from gpudeck.accel.attention import records
from gpudeck.accel.lessons.records import (
    Measured,
    Used,
    encode_learned,
    encode_used,
)
from gpudeck.accel.primitives.gemm import records as products
from gpudeck.accel.runtime.state_files import learned_file, used_file
from gpudeck.app.widgets import theme
from gpudeck.app.workloads.page import EMPTY, SEARCHING
from gpudeck.scheduler.protocol.jobs import queued
from gpudeck.scheduler.protocol.search import ENDED
from gpudeck.scheduler.protocol.wait_reasons import StartFailed
from gpudeck.scheduler.verbs.jobs import Page
from gpudeck.scheduler.verbs.submit import Submit
from tests.gui import snapshots
from tests.gui.snapshots import NOW


def test_the_form_has_the_defaults_of_the_device(fed):
    fed.window.show_page("workloads")
    fed.feed(snapshots.cpu_snapshot())
    page = fed.window.workloads
    assert page.form.editors["seq"].text() == "1024"
    fed.feed(snapshots.gpu_snapshot(1, NOW + 1))
    assert page.form.editors["seq"].text() == "16384"
    assert "2.20 TFLOP a call" in page.estimate.text()


def test_errors_are_shown_beside_the_field_while_typing(fed):
    fed.window.show_page("workloads")
    fed.feed(snapshots.cpu_snapshot())
    page = fed.window.workloads
    page.form.editors["seq"].setFocus()
    page.form.editors["seq"].selectAll()
    QTest.keyClicks(page.form.editors["seq"], "12x")
    assert "whole number" in page.form.notes["seq"].text()
    assert page.form.notes["seq"].property("meaning") == "failed"
    assert not page.run.isEnabled()
    page.form.editors["seq"].setText("2048")
    assert not page.form.notes["seq"].isVisible()
    assert "Tokens in a sequence" in page.form.editors["seq"].accessibleDescription()
    assert page.run.isEnabled()


def test_a_value_that_is_chosen_by_itself_is_an_empty_field(fed, qtbot):
    fed.window.show_page("workloads")
    fed.feed(snapshots.gpu_snapshot(1))
    page = fed.window.workloads
    page.choose("tune")
    batch = page.form.editors["batch"]
    assert (batch.text(), batch.placeholderText()) == ("", "auto")
    assert "Empty: as many as make 16384 tokens" in batch.toolTip()
    for typed, sent in (("3", "3"), ("", "0"), (" auto ", "0"), ("0", "0")):
        batch.setText(typed)
        assert page.run.isEnabled()
        assert page.form.form.submission().spec.params["batch"] == sent, typed
    batch.setText("-1")
    assert "whole number" in page.form.notes["batch"].text() and not page.run.isEnabled()
    assert page.form.editors["seq"].placeholderText() == "", "a sequence has a length"


def test_fields_that_an_operation_does_not_take_are_left_out_unless_they_are_wrong(fed):
    fed.window.show_page("workloads")
    fed.feed(snapshots.gpu_snapshot(1))
    page = fed.window.workloads
    page.choose("compare")
    editors = page.form.editors
    assert editors["seq"].isVisible() and not editors["sizes"].isVisible()
    editors["seq"].setText("12x")
    editors["operation"].setCurrentText("gemm")
    assert editors["sizes"].isVisible() and not editors["heads"].isVisible()
    assert editors["seq"].isVisible() and not page.run.isEnabled(), "what is wrong stays in sight"
    editors["seq"].setText("512")
    assert not editors["seq"].isVisible() and page.run.isEnabled()
    assert "gemm of 3 sizes" in page.estimate.text()


def test_run_submits_the_form(fed, qtbot):
    fed.window.show_page("workloads")
    fed.feed(snapshots.cpu_snapshot())
    page = fed.window.workloads
    page.form.editors["seq"].setText("512")
    page.form.editors["causal"].setCurrentText("yes")
    page.form.editors["backend"].setCurrentText("math")
    QTest.keyClick(fed.window, Qt.Key.Key_Return, Qt.KeyboardModifier.ControlModifier)
    qtbot.waitUntil(lambda: any(isinstance(r, Submit) for r in fed.asked))
    (request,) = [r for r in fed.asked if isinstance(r, Submit)]
    assert {"--seq=512", "--causal=yes", "--backend=math"} <= set(request.spec.argv)
    assert (
        request.spec.workload,
        request.spec.gpus,
        request.spec.params["seq"],
    ) == ("attention", 1, "512")


def test_the_page_shows_progress_the_result_and_earlier_results(fed):
    fed.window.show_page("workloads")
    fed.feed(snapshots.cpu_snapshot())
    page = fed.window.workloads
    assert page.active.title.text() == "Job 9 · attention"
    assert "held by job 8" in page.active.doing.text()
    assert page.result.title.text() == "Job 6 · attention"
    assert (page.result.verdict.text(), page.result.figure.text()) == ("Pass", "0.085")
    assert "CPU: AMD EPYC" in page.result.facts.toPlainText()
    assert len(page.bars.marks()) == 3
    assert [bar.job for bar in page.bars.bars] == [6, 5, 1], "the newest is on top"
    assert page.choices["attention"].rate == "0.085"
    page.choices["gemm"].click()
    assert page.empty.isVisible()
    assert not page.result.isVisible()
    assert not page.bars.isVisible()


def test_a_run_that_failed_does_not_hide_the_only_result(fed):
    fed.window.show_page("workloads")
    page = fed.window.workloads
    done = snapshots.Done(NOW - 30, NOW - 9, ("cpu",), snapshots.raw(snapshots.result(77)))
    failed = snapshots.Failed(NOW - 5, NOW - 4, "backend hopper cannot do this", 2, ("cpu",))
    jobs = [snapshots.job(n, x, "gemm", "gemm") for n, x in ((78, failed), (77, done))]
    fed.feed(msgspec.structs.replace(snapshots.cpu_snapshot(NOW + 1), jobs=tuple(jobs)))
    page.choices["gemm"].click()
    assert page.result.title.text() == "Job 78 · gemm"
    assert page.bars.isVisible() and [bar.job for bar in page.bars.bars] == [77]


def test_a_run_of_long_ago_is_found_and_is_not_called_none(fed):
    fed.window.show_page("workloads")
    page = fed.window.workloads
    page.choices["gemm"].click()
    fed.feed(snapshots.cpu_snapshot())
    assert page.empty.text() == SEARCHING
    ask = fed.sought[-1]
    assert (ask.search.text, ask.search.outcomes) == ("gpudeck.accel.workloads.gemm", ENDED)
    other = snapshots.job(7, queued(StartFailed("x"), 0.0), workload="attention")
    fed.reply(ask, Page((other,), 500))
    assert page.empty.text() == SEARCHING and fed.sought[-1].before == 500, "a page may be short"
    done = snapshots.Done(NOW - 9e5, NOW - 9e5 + 18, ("cpu",), snapshots.raw(snapshots.result(77)))
    fed.reply(fed.sought[-1], Page((snapshots.job(77, done, "gemm", "gemm"),), 2))
    fed.settle()
    assert not page.empty.isVisible()
    assert page.result.title.text() == "Job 77 · gemm" and len(page.bars.bars) == 1
    page.choices["copy"].click()
    fed.reply(fed.sought[-1], Page((), None))
    assert page.empty.isVisible() and page.empty.text() == EMPTY
    fed.feed(snapshots.cpu_snapshot(NOW + 1))
    assert len(fed.sought) == 3, "each is searched for once"


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (2560, 1440)])
def test_cards_are_as_large_as_their_contents(fed, width, height):
    fed.window.resize(width, height)
    fed.window.show_page("workloads")
    fed.feed(snapshots.gpu_snapshot(1))
    page = fed.window.workloads
    result, form = page.result.parentWidget(), page.run.parentWidget()
    assert 0 <= result.height() - page.result.geometry().bottom() < 2 * theme.L
    assert 0 <= form.height() - page.run.geometry().bottom() < 2 * theme.L
    assert page.result.facts.verticalScrollBar().maximum() == 0
    assert len(page.bars.marks()) == len(page.bars.bars) == 3
    past = page.bars.parentWidget()
    beside = past.mapTo(page, QPoint(0, 0)).x() > result.mapTo(page, QPoint(0, 0)).x()
    assert beside == (width == 2560), "a wide window shows earlier results beside the newest"


@pytest.mark.parametrize("count", [1, 8])
def test_the_smallest_window_has_room_for_form_and_result(fed, count):
    fed.window.resize(1024, 680)
    fed.window.show_page("workloads")
    fed.feed(snapshots.gpu_snapshot(count))
    page = fed.window.workloads
    page.parameters.click()
    fed.settle()
    result, form = page.result.parentWidget(), page.form
    bottom = form.mapTo(page, form.rect().bottomLeft()).y()
    assert form.isVisible() and bottom < result.mapTo(page, QPoint(0, 0)).y()
    assert page.result.figure.height() >= page.result.figure.sizeHint().height()
    assert page.result.figure.width() >= page.result.figure.sizeHint().width()


def test_a_failed_verdict_is_marked(fed):
    fed.window.show_page("workloads")
    made = snapshots.cpu_snapshot()
    fed.feed(msgspec.structs.replace(made, jobs=made.jobs[4:]))
    assert fed.window.workloads.result.verdict.text().startswith("Fail: out is off")
    assert fed.window.workloads.result.verdict.property("meaning") == "failed"


def test_a_replay_explains_why_it_runs_no_workload(fed):
    fed.window.show_page("workloads")
    fed.feed(snapshots.gpu_snapshot(2, replay=True))
    page = fed.window.workloads
    assert (page.run.isEnabled(), "choose Automatic as the source" in page.estimate.text()) == (
        False,
        True,
    )
    fed.feed(snapshots.gpu_snapshot(2, NOW + 1))
    assert (page.run.isEnabled(), "REPLAY" in page.estimate.text()) == (True, False)


def shapes_of_programs(at: float = NOW):
    """Write what programs used and what was measured, as they do."""
    shape = records.Shape(1, 32, 8, 3000, 3000, 128, "bfloat16", None, 0, 0.0, "none", False, False)
    text = "batch 1, heads 32 over 8, sequence 3000, head size 128, bfloat16, causal"
    used = [
        Used("H200", "GPU-1", "spot", text, shape, 1234, 617, at),
        Used("H200", "GPU-1", "other", "batch 128, heads 12", shape, 40, 0, at),
    ]
    us = {"hopper": 128.0, "cudnn": 160.0}
    learned = [
        Measured(
            "H200", "GPU-1", "torch", "forward", "spot", text, 7.4e10, "cudnn", us, 40, at
        )
    ]  # fmt: skip
    used_file("attention").parent.mkdir(parents=True, exist_ok=True)
    used_file("attention").write_bytes(encode_used(used))
    learned_file("attention").write_bytes(encode_learned(learned))


def test_shapes_of_the_users_programs_stand_beside_attention_with_what_was_gained(
    fed, tmp_path, monkeypatch
):
    monkeypatch.setenv("GPUDECK_HOME", str(tmp_path))
    fed.window.show_page("workloads")
    fed.feed(snapshots.cpu_snapshot())
    page = fed.window.workloads
    assert not page.used_view.isVisible()
    shapes_of_programs()
    page.refresh()
    assert page.used_view.isVisible()
    assert [(r.calls, r.direction, r.backend, r.speed) for r in page.used_view.rows] == [
        (1234, "forward", "hopper", "578 TFLOP/s, 1.25×"),
        (617, "backward", "", "not measured yet"),
        (40, "forward", "", "not measured yet"),
    ]
    assert "hopper was fastest on " in page.used_view.rows[0].tooltip
    page.choose("copy")
    assert not page.used_view.isVisible()
    text = "4096 x 6144 x 4096, bfloat16"
    sizes = (1, 4096, 6144, 4096, "bfloat16", "bfloat16", "none", (0, 0), False, "none")
    shape = products.Shape(*sizes, True, True, True, None)
    product = Used("H200", "GPU-1", "spot", text, shape, 96, 0, NOW)
    used_file("gemm").write_bytes(encode_used([product]))
    page.choose("gemm")
    page.refresh()
    assert [(r.calls, r.short, r.speed) for r in page.used_view.rows] == [
        (96, text, "not measured yet")
    ]
    page.choose("attention")
    page.refresh()
    assert len(page.used_view.rows) == 3
    used_file("attention").write_text("{")
    os.utime(used_file("attention"), (1, 1))
    page.refresh()
    assert not page.used_view.rows and "cannot be read" in page._unread.text()
    assert page._unread.isVisible()


def test_more_gpus_are_modelled_beside_divided_attention(fed):
    fed.window.show_page("workloads")
    fed.feed(snapshots.gpu_snapshot(1))
    page = fed.window.workloads
    assert page._scaled.isHidden()
    page.choose("distributed")
    page.form.editors["seq"].setText("1048576")
    rows = [[cell.text() for cell in cells] for cells in page.scale.cells]
    assert [gpus for gpus, *_ in rows] == ["2", "4", "8", "16", "32", "64"]
    assert rows[0][1] == "ulysses"
    assert not page._scaled.isHidden()
    before = rows[0][2]
    page.scale.kind.setCurrentText("A100")
    page.scale.kind.activated.emit(2)
    assert page.scale.cells[0][2].text() != before
    page.form.editors["seq"].setText("-1")
    assert page._scaled.isHidden()
