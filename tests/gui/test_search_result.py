"""What a search tried is shown with its winner, which is used and removed by one press."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from gpudeck.accel.result import Result, read
from gpudeck.accel.search.code import Code, Codes, encode_codes
from gpudeck.accel.search.installed import installed
from gpudeck.accel.search.journal import Entry, Journal, searches
from gpudeck.accel.search.verdict import Span, decode, encode
from gpudeck.app.shell.window import SMALLEST
from gpudeck.app.workloads.search_record import ReadSearch, RemoveWinner, UseWinner
from gpudeck.scheduler.protocol.jobs import Done
from tests.gui import snapshots
from tests.gui.readable import clipped, texts
from tests.gui.snapshots import NOW

GPU0 = snapshots.gpu(0).id


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """Search on the CPU, as `gpudeck run search` does; return the state folder and the Result."""
    folder = tmp_path_factory.mktemp("searched")
    command = [sys.executable, "-P", "-m", "gpudeck.accel.workloads.search", "--task=gelu"]
    options = ["--rows=32", "--columns=64", "--minutes=0.2", "--seconds=0.3"]
    given = {"GPUDECK_HOME": str(folder), "GPUDECK_RESULT": str(folder / "result.json")}
    subprocess.run(
        [*command, *options], env=os.environ | given, check=True, stdout=subprocess.DEVNULL
    )
    return folder, read((folder / "result.json").read_bytes())


@pytest.fixture
def shown(fed, searched, monkeypatch):
    """Show the job of the search on the Workloads page."""
    folder, result = searched
    monkeypatch.setenv("GPUDECK_HOME", str(folder))
    made = snapshots.gpu_snapshot(1)
    job = snapshots.job(
        30, Done(NOW - 60, NOW - 5, (GPU0,), snapshots.raw(result)), "search", "search"
    )
    fed.window.show_page("workloads")
    fed.window.workloads.choose("search")
    fed.feed(msgspec.structs.replace(made, jobs=(job, *made.jobs)))
    return fed, fed.window.workloads.search


def carry_out(fed, kind) -> None:
    """Carry out the newest request of a kind, as the pool of the window does."""
    request = fed.link.call(kind).request
    fed.reply(request, request.carry_out(None))
    fed.settle()


def judged_faster(lead: float) -> None:
    """Let the judge have found the winner faster, or not: on a CPU that is chance."""
    ((problem, _),) = searches()
    verdict = decode(problem.verdict_file.read_bytes())
    race = msgspec.structs.replace(
        verdict.race, speedup=Span(lead, lead, lead), twin=Span(1.0, 0.999, 1.001)
    )
    problem.verdict_file.write_bytes(encode(msgspec.structs.replace(verdict, race=race)))


def test_the_best_so_far_rises_to_the_winner_below_the_roofline(shown):
    fed, view = shown
    assert not view.isVisible(), "nothing is shown before it is read"
    carry_out(fed, ReadSearch)
    ((_, entries),) = searches()
    fastest = min(e.microseconds for e in entries if e.state == "timed")
    roofline, best = sorted(view.chart.curves, key=lambda curve: curve.strong)
    assert list(best.values) == sorted(best.values)
    assert best.values[-1] == pytest.approx(1e3 / fastest)
    assert len({*roofline.values}) == 1 and roofline.values[0] > best.values[-1]
    assert view.model.rowCount() == len(entries)
    winner = min(entries, key=lambda e: e.microseconds if e.state == "timed" else math.inf)
    assert view.model.rows[0].cells[1] == f"block {winner.config['block']}"
    assert "roofline" in texts(view)
    fed.window.resize(SMALLEST)
    fed.settle()
    assert clipped(fed.window) == []


def test_it_is_read_once_for_a_job_and_hidden_at_other_workloads(shown):
    fed, view = shown
    carry_out(fed, ReadSearch)
    fed.feed(msgspec.structs.replace(fed.window.state.snapshot, time=NOW + 1))
    assert len([r for r in fed.asked if isinstance(r, ReadSearch)]) == 1
    assert view.isVisible()
    fed.window.workloads.choose("attention")
    fed.settle()
    assert not view.isVisible()


def test_only_a_winner_that_was_judged_faster_is_used_and_then_removed(shown):
    fed, view = shown
    judged_faster(1.0)
    carry_out(fed, ReadSearch)
    assert view.use.text() == "Use this kernel" and not view.use.isEnabled()
    assert "not faster" in view.verdict.text()
    judged_faster(1.5)
    fed.window.workloads.choose("attention")
    fed.window.workloads.choose("search")
    carry_out(fed, ReadSearch)
    view.use.click()
    assert not view.use.isEnabled(), "not twice"
    carry_out(fed, UseWinner)
    carry_out(fed, ReadSearch)
    (kernel,) = installed()
    assert (kernel.task, kernel.sizes) == ("gelu", {"rows": 32, "columns": 64})
    assert view.use.text() == "Remove" and view.use.isEnabled()
    assert kernel.name in view.use.toolTip()
    view.use.click()
    carry_out(fed, RemoveWinner)
    carry_out(fed, ReadSearch)
    assert installed() == [] and view.use.text() == "Use this kernel" and view.use.isEnabled()


def test_the_code_of_the_winner_is_shown_beside_that_of_what_was_tried_first(shown):
    fed, view = shown
    ((problem, _),) = searches()
    code = Code("compute", "def compute(): ...", "LDG.E R2, [R4] ;")
    better = msgspec.structs.replace(code, instructions="LDG.E.128 R4, [R4] ;")
    codes = Codes(90, {"block": 1}, (code,), {"block": 8}, (better,))
    problem.code_file.write_bytes(encode_codes(codes))
    carry_out(fed, ReadSearch)
    assert view.code.isVisible() and not view.panes[0].isVisible()
    view.code.click()
    assert [pane.isVisible() for pane in view.panes] == [True, True]
    first, winner = (pane.toPlainText() for pane in view.panes)
    assert "LDG.E R2" in first and "LDG.E.128" in winner and "def compute" in winner
    assert "block 8" in view.compared.text()
    problem.code_file.unlink()


def test_why_a_variant_was_refused_stands_beside_it(shown):
    fed, view = shown
    ((problem, entries),) = searches()
    with Journal(problem) as journal:
        journal.add(Entry({"block": 999}, "pruned", why="spilled 8", by="sample"))
    carry_out(fed, ReadSearch)
    assert view.model.rowCount() == len(entries) + 1
    assert view.model.rows[-1].cells == ("–", "block 999", "not run: spilled 8")
    assert "even sample" in view.model.rows[-1].tooltip


def test_a_search_that_cannot_be_read_or_installed_says_so(shown):
    fed, view = shown
    judged_faster(1.5)
    carry_out(fed, ReadSearch)
    view.use.click()
    fed.fail(UseWinner, "The kernel cannot be installed: the disk is full")
    fed.settle()
    assert view.note.isVisible() and "the disk is full" in view.note.text()
    assert view.use.isEnabled()
