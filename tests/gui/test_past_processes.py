"""The processes page lists who used the GPUs before, and draws how."""

from __future__ import annotations

import numpy as np
import pytest
from PySide6.QtCore import Qt

from gpudeck.app.processes.page import NONE_THEN
from gpudeck.app.processes.past import ReadPast, ReadUse, process_curves
from gpudeck.app.processes.process_rows import (
    AGE,
    COMMAND,
    JOB,
    MEMORY,
    NAME,
    RAN,
    SM_SHARE,
    STARTED,
)
from gpudeck.scheduler.protocol.devices import Detail
from gpudeck.scheduler.protocol.past_processes import PastProcess, Use, as_details, use_of
from gpudeck.scheduler.protocol.snapshot import Columns
from gpudeck.scheduler.verbs.devices import GetDetails, KillProcess
from tests.gui import snapshots
from tests.gui.snapshots import NOW
from tests.gui.test_processes_page import TRAIN

GIB = 2.0**30


@pytest.fixture
def page(fed):
    fed.feed(snapshots.gpu_snapshot(2))
    fed.window.show_page("processes")
    first = fed.window.state.snapshot.devices[0].device.id
    fed.reply(GetDetails, (Detail(first, NOW, (), (TRAIN,)),))
    fed.settle()
    return fed.window.processes


def choose(page, span: str) -> None:
    page.span.setCurrentIndex(page.span.findData(span))


def test_processes_that_have_ended_are_listed_and_cannot_be_ended(page, fed):
    choose(page, "Last day")
    (asked,) = [request for request in fed.asked if isinstance(request, ReadPast)]
    assert asked.since == NOW - 86400
    assert page.list.empty.isVisible(), "not those of now, as if they were those of the day"
    gpu = fed.window.state.snapshot.devices[1].device.id
    ended = PastProcess(Use(gpu, 99, 7, "blender", "ben"), NOW - 7200, NOW - 3600, 5 * GIB, 31.0)
    job = PastProcess(Use(gpu, 98, 7, "python", "ada", 12), NOW - 9000, NOW - 8000, 9 * GIB, 90.0)
    fed.reply(ReadPast, as_details((job, ended), {12: "attention"}))
    cells = [page.list.model.index(0, at).data() for at in (0, 1, 2, 4, 6, 7, RAN)]
    assert cells == ["blender", "99", "ben", "GPU 1", "5.0 GiB", "31 %", "1 h 00 min"]
    assert page.list.model.index(1, NAME).data() == "attention · python", "the newest is the first"
    hidden = [page.table.isColumnHidden(at) for at in (JOB, AGE, COMMAND, STARTED, RAN)]
    assert hidden == [False, True, True, False, False]
    titles = [
        page.list.model.headerData(at, Qt.Orientation.Horizontal)
        for at in (MEMORY, SM_SHARE, STARTED)
    ]
    assert titles == ["Peak memory", "Mean load", "Started ▾"]
    assert page.table.horizontalHeader().length() == page.table.viewport().width()
    assert not page.end.isVisible()
    page.table.selectRow(0)
    assert not page.end.isEnabled() and not page.acts["process.suspend"].isEnabled()
    page.end.click()
    assert not [request for request in fed.asked if isinstance(request, KillProcess)]
    fed.window.state.snapshot = snapshots.gpu_snapshot(2, NOW + 60)
    page.refresh()
    fed.reply(ReadPast, ())
    assert page.list.empty.isVisible() and page.list.empty.text() == NONE_THEN
    choose(page, "Time: now")
    assert page.list.model.index(0, 1).data() == "4711"
    hidden = [page.table.isColumnHidden(at) for at in (AGE, COMMAND, STARTED, RAN)]
    assert hidden == [False, False, True, True] and page.end.isVisible()


def test_the_curves_of_a_process_reach_back_to_its_start(page, fed):
    page.table.selectRow(0)
    asked = fed.uses[-1]
    device = fed.window.state.snapshot.devices[0].device.id
    assert asked.key == use_of(device, TRAIN).key
    assert (asked.since, asked.until) == (NOW - 3600, NOW)
    assert page.about.memory.toolTip() == "Memory in the last 4 min", "until they are read"
    found = Columns(
        [NOW - 3000, NOW - 1800, NOW - 10],
        {"mem_used": [GIB, None, 2 * GIB], "util": [50.0, None, 100.0]},
    )
    fed.reply(ReadUse, process_curves(asked, found))
    page.refresh()
    about = page.about
    assert about.memory.toolTip() == "Memory in the last 1 h"
    known = about.memory.values[~np.isnan(about.memory.values)]
    assert known.tolist() == [GIB, 2 * GIB]
    assert int(np.flatnonzero(~np.isnan(about.load.values))[0]) == len(about.load.values) // 6
    page.refresh()
    assert len(fed.uses) == 1, "not with every reading"
    choose(page, "Last 7 days")
    page.table.clearSelection()
    assert page.about.isVisible() and page.chosen() is None, "the first one is described"


def test_the_choice_of_the_time_has_a_name(page):
    assert page.span.accessibleName() == "Time"
    assert page.span.focusPolicy() != Qt.FocusPolicy.NoFocus
