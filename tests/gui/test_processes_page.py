"""The processes page lists the processes on GPUs and ends one after confirmation."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest

from gpudeck.app.processes.page import EMPTY, NO_PROCESS, NOTHING_FOUND
from gpudeck.scheduler.protocol.devices import Detail, Process
from gpudeck.scheduler.protocol.suspended import SuspendedProgram
from gpudeck.scheduler.verbs.devices import GetDetails, KillProcess
from gpudeck.scheduler.verbs.suspension import GetSuspended, ResumeProcess, SuspendProcess
from tests.gui import snapshots

NOW = snapshots.NOW
MODIFIERS = Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier
TRAIN = Process(
    4711,
    "python",
    "ada",
    40 * 2**30,
    3,
    False,
    NOW - 3600,
    900,
    "python train.py --epochs 3",
    "0123456789ab",
    "compute",
    87.0,
)
DRAW = Process(
    812,
    "Xorg",
    "root",
    200 * 2**20,
    None,
    False,
    NOW - 90000,
    12,
    "/usr/lib/xorg/Xorg :0",
    "",
    "graphics",
    1.0,
)
STRANGER = Process(99, "?", "", None, None)
FIELDS = (
    "Name",
    "PID",
    "User",
    "Job",
    "Device",
    "CPU",
    "Memory",
    "GPU load",
    "Age",
    "Started",
    "Duration",
    "Kind",
    "Container",
    "Command",
)


@pytest.fixture
def page(fed):
    """Open the page of a machine with two GPUs and three processes."""
    fed.feed(snapshots.gpu_snapshot(2))
    fed.window.show_page("processes")
    ids = [state.device.id for state in fed.window.state.snapshot.devices]
    fed.details = (Detail(ids[0], NOW, (), (TRAIN, DRAW)), Detail(ids[1], NOW, (), (STRANGER,)))
    fed.reply(GetDetails, fed.details)
    fed.settle()
    fed.window.processes.table.selectRow(0)
    return fed.window.processes


def shown(page):
    return [
        [page.list.model.index(r, c).data() for c in range(page.list.model.columnCount())]
        for r in range(page.list.model.rowCount())
    ]


def column(page, name):
    return [row[FIELDS.index(name)] for row in shown(page)]


def test_each_process_is_described(page):
    train, draw, stranger = shown(page)
    assert train == [
        "train.py · python", "4711", "ada", "3", "GPU 0", "–", "40.0 GiB", "87 %", "1 h 00 min", "", "", "compute", "0123456789ab", "python train.py --epochs 3",  # noqa: E501
    ]  # fmt: skip
    assert draw[:7] == ["Xorg", "812", "root", "", "GPU 0", "–", "200 MiB"]
    assert stranger[:9] == ["–", "99", "–", "", "GPU 1", "–", "–", "–", "–"]
    assert "another container or user" in stranger[-1]
    assert "Memory: – (the driver does not report it for this process)" in page.list.model.index(
        2, 0
    ).data(Qt.ItemDataRole.ToolTipRole)
    assert "Command: python train.py --epochs 3" in page.list.model.index(0, 0).data(
        Qt.ItemDataRole.ToolTipRole
    )


def test_the_table_can_be_sorted_and_filtered(page, fed):
    assert column(page, "PID") == ["4711", "812", "99"], "most memory first"
    header = page.table.horizontalHeader()
    at = QPoint(header.sectionViewportPosition(FIELDS.index("PID")) + 40, 10)
    QTest.mouseClick(header.viewport(), Qt.MouseButton.LeftButton, pos=at)
    first, title = (
        column(page, "PID"),
        page.list.model.headerData(FIELDS.index("PID"), Qt.Orientation.Horizontal),
    )
    QTest.mouseClick(header.viewport(), Qt.MouseButton.LeftButton, pos=at)
    assert {
        title[-1],
        page.list.model.headerData(FIELDS.index("PID"), Qt.Orientation.Horizontal)[-1],
    } == {"▾", "▴"}
    assert {tuple(first), tuple(column(page, "PID"))} == {
        ("99", "812", "4711"),
        ("4711", "812", "99"),
    }
    page.table.setCurrentIndex(page.list.model.index(0, FIELDS.index("Memory")))
    QTest.keyClick(page.table, Qt.Key.Key_S)
    assert column(page, "PID") == ["4711", "812", "99"], "most memory first, by the keyboard"
    QTest.keyClick(page.table, Qt.Key.Key_S)
    assert column(page, "PID") == ["99", "812", "4711"]
    page.filter.setText("xorg ROOT")
    assert column(page, "PID") == ["812"]
    assert page.count.text() == "1 of 3"
    page.filter.setText("nothing like it")
    assert page.list.empty.text() == NOTHING_FOUND


def test_processes_are_read_only_while_the_page_is_visible(page, fed, qtbot):
    fed.fail(GetDetails, "the devices do not answer at the moment")
    assert page.count.text() == "the devices do not answer at the moment"
    fed.asked.clear()
    page.poller.timeout.emit()
    page.poller.timeout.emit()
    assert fed.asked == [GetDetails()], "one at a time"
    fed.reply(GetDetails, fed.details)
    assert page.poller.isActive()
    fed.window.show_page("jobs")
    assert not page.poller.isActive()


def test_ending_a_process_asks_for_confirmation(page, fed):
    page.table.selectRow(1)
    fed.asked.clear()
    page.end.click()
    assert not any(isinstance(request, KillProcess) for request in fed.asked)
    assert (
        page.question.text.text()
        == "End Xorg (PID 812, root)? Unsaved work of this process will be lost."
    )
    page.question.no.click()
    assert not page.question.isVisible()
    page.table.selectRow(0)
    QTest.keyClick(page.table, Qt.Key.Key_Delete)
    assert page.question.text.text() == "python (PID 4711, ada) belongs to job 3. Cancel the job?"
    page.question.yes.click()
    kills = [request for request in fed.asked if isinstance(request, KillProcess)]
    assert kills == [KillProcess(TRAIN.pid, TRAIN.ticks)]
    fed.reply(GetDetails, fed.details)
    fed.reply(KillProcess)
    assert fed.asked[-1] == GetDetails(), "the table tells at once"


def test_a_program_leaves_its_gpu_and_comes_back(page, fed):
    page.table.selectRow(0)
    assert not page.acts["process.suspend"].isEnabled(), "a job is suspended on the page Jobs"
    notebook = msgspec.structs.replace(TRAIN, job=None)
    fed.details = (msgspec.structs.replace(fed.details[0], processes=(notebook, DRAW)),)
    page.poller.request()
    fed.reply(GetDetails, fed.details)
    page.table.selectRow(0)
    QTest.keyClick(page.table, Qt.Key.Key_S, MODIFIERS)
    assert fed.asked[-1] == SuspendProcess(4711, 900)
    off = SuspendedProgram(4711, "python", 40 * 2**30, "suspended", NOW, 1)
    fed.reply(SuspendProcess, off)
    assert "40.0 GiB of GPU memory are free" in fed.window.toasts.toasts[-1].text.text()
    page.acts["process.resume"].trigger()
    fed.reply(GetSuspended, (off, msgspec.structs.replace(off, pid=9, job=3)))
    assert [r for r in fed.asked if isinstance(r, ResumeProcess)] == [ResumeProcess(4711)]
    fed.reply(ResumeProcess, off)
    page.acts["process.resume"].trigger()
    fed.reply(GetSuspended, ())
    assert "No program is suspended" in fed.window.toasts.toasts[-1].text.text()


def test_a_process_that_cannot_be_ended_is_reported(page, fed):
    page.table.selectRow(2)
    assert not page.end.isEnabled(), "of another container: nobody knows which process that is here"
    page.table.selectRow(1)
    page.end.click()
    page.question.yes.click()
    fed.fail(
        KillProcess(DRAW.pid, DRAW.ticks),
        "process 812 (Xorg) belongs to root; only its owner or root may end it",
    )
    assert "belongs to root" in fed.window.status.message.text()


def test_the_selection_and_the_question_follow_the_process(page, fed):
    page.table.selectRow(1)
    page.end.click()
    grown = msgspec.structs.replace(DRAW, memory=50 * 2**30)
    fed.reply(
        GetDetails,
        (msgspec.structs.replace(fed.details[0], processes=(TRAIN, grown)),),
    )
    assert page.chosen().process.pid == 812
    assert page.question.isVisible(), "it is the same process"
    reused = msgspec.structs.replace(DRAW, ticks=13)
    fed.reply(
        GetDetails,
        (msgspec.structs.replace(fed.details[0], processes=(TRAIN, reused)),),
    )
    assert not page.question.isVisible(), "the pid means another process now"


def test_groups_fold_and_sum_what_their_processes_use(page, fed):
    page.grouping.setCurrentText("By user")
    assert column(page, "Name") == [
        "▾  ada",
        "      train.py · python",
        "▾  root",
        "      Xorg",
        "▾  no known user",
        "      –",
    ]
    both = msgspec.structs.replace(DRAW, pid=813, user="ada", sm=3.0)
    fed.reply(GetDetails, (msgspec.structs.replace(fed.details[0], processes=(TRAIN, both, DRAW)),))
    ada = shown(page)[0]
    assert (ada[1], ada[6], ada[7]) == ("×2", "40.2 GiB", "90 %")
    page.table.selectRow(0)
    QTest.keyClick(page.table, Qt.Key.Key_Left)
    assert column(page, "Name") == ["▸  ada", "▾  root", "      Xorg"]
    assert not page.end.isEnabled(), "a group is not ended"
    QTest.keyClick(page.table, Qt.Key.Key_Right)
    page.table.selectRow(2)
    QTest.keyClick(page.table, Qt.Key.Key_Left)
    assert page.table.currentIndex().row() == 0, "from a process to its group"
    page.acts["process.fold"].trigger()
    assert column(page, "Name") == ["▸  ada", "▸  root"]
    page.grouping.setCurrentText("By job")
    assert column(page, "Name")[0] == "▾  Job 3", "another grouping is unfolded"
    assert [part.name for part in page.use.bar.parts] == [
        "Job 3",
        "no job",
        "not listed",
        "free",
    ]
    assert [one.label for one in page.use.each.devices] == ["GPU 0", "GPU 1"], (
        "they show what is free"
    )


def test_processes_of_a_cpu_are_listed_by_load(page, fed):
    fed.feed(snapshots.cpu_snapshot())
    busy = Process(
        7, "cc1", "ada", 2**30, start=NOW - 5, ticks=4, command="cc1", kind="cpu", cpu=151.2
    )
    calm = Process(
        8, "sh", "ada", 2**31, start=NOW - 9, ticks=3, command="sh", kind="cpu", cpu=0.25
    )
    device = fed.window.state.snapshot.devices[0].device.id
    page.list.list_past(False)
    fed.reply(GetDetails, (Detail(device, NOW, cpu_processes=(calm, busy)),))
    fed.settle()
    fed.window.processes.table.selectRow(0)
    fed.settle()
    assert column(page, "CPU") == ["151 %", "0.2 %"]
    assert column(page, "GPU load") == ["", ""]
    hidden = {name for at, name in enumerate(FIELDS) if page.table.isColumnHidden(at)}
    assert {"Device", "GPU load", "Kind"} <= hidden
    page.table.selectRow(0)
    page.acts["process.copy"].trigger()
    assert page.end.isEnabled()
    page.end.click()
    page.question.yes.click()
    assert fed.asked[-1] == KillProcess(7, 4)


def test_the_menu_and_the_keys_are_in_the_table_of_actions(page, fed):
    chosen = []
    page.job_chosen.connect(chosen.append)
    page.table.selectRow(1)
    assert not page.acts["process.job"].isEnabled(), "it belongs to no job"
    page.table.selectRow(0)
    page.acts["process.job"].trigger()
    assert chosen == [3]
    page.acts["process.pid"].trigger()
    assert QGuiApplication.clipboard().text() == "4711"


def test_empty_states(page, fed):
    fed.reply(GetDetails, ())
    assert page.list.empty.text() == EMPTY
    fed.feed(snapshots.cpu_snapshot())
    assert page.list.empty.text() == NO_PROCESS


@pytest.mark.parametrize("size", [(800, 560), (1280, 800), (2560, 1440)])
def test_the_chosen_process_is_described_in_every_window(fed, size):
    fed.window.resize(*size)
    fed.window.show_page("processes")
    fed.feed(snapshots.gpu_snapshot(1))
    fed.reply(GetDetails, (Detail(snapshots.gpu(0).id, NOW, (), (TRAIN, DRAW)),))
    fed.settle()
    fed.window.processes.table.selectRow(0)
    fed.settle()
    page = fed.window.processes
    assert page.about.isVisible() and page.rect().contains(page.about.geometry())
    rows = page.table.viewport().height() // page.table.rowHeight(0)
    assert rows >= 4, "the description leaves room for the list"
    assert (page.about.x() > page.list.geometry().right()) == (size[0] > 2000)
    assert page.about.title.text() == "train.py · python · PID 4711"
    assert page.about.command.toPlainText() == TRAIN.command
    assert page.about.facts.text().endswith("job 3 · container 0123456789ab")
    page.about.copy.click()
    assert QGuiApplication.clipboard().text() == TRAIN.command
    grown = msgspec.structs.replace(TRAIN, memory=50 * 2**30, sm=None)
    fed.reply(GetDetails, (Detail(snapshots.gpu(0).id, NOW, (), (grown, DRAW)),))
    assert page.about.memory.values[-2:].tolist() == [40 * 2**30, 50 * 2**30]
    assert page.about.load.text == "–" and page.about.load.values[-2] == 87.0
    before = page.about.memory.values[:-2]
    assert len(before) == 118 and np.isnan(before).all(), "of four minutes two readings are known"
    page.table.selectRow(1)
    assert page.about.memory.values[-2:].tolist() == 2 * [200 * 2**20], "readings of each are kept"


def test_the_button_names_its_target_and_empty_columns_are_hidden(page, fed):
    assert page.end.text() == "End train.py…"
    page.table.selectRow(1)
    assert page.end.text() == "End Xorg 812…"
    page.table.selectRow(2)
    assert page.end.text() == "End process…" and not page.end.isEnabled()
    fed.window.resize(2560, 1440)
    fed.settle()
    named = [FIELDS.index("Job"), FIELDS.index("Container")]
    assert [page.table.isColumnHidden(at) for at in named] == [False, False]
    fed.reply(GetDetails, (Detail(snapshots.gpu(0).id, NOW, (), (DRAW,)),))
    assert [page.table.isColumnHidden(at) for at in named] == [True, True]


def test_memory_of_processes_that_are_not_listed_is_explained(fed):
    fed.window.show_page("processes")
    fed.feed(snapshots.gpu_snapshot(1))
    used = fed.window.state.snapshot.devices[0].reading.values["mem_used"]
    half = msgspec.structs.replace(TRAIN, memory=int(used / 2))
    fed.reply(GetDetails, (Detail(snapshots.gpu(0).id, NOW, (), (half,)),))
    page = fed.window.processes
    assert page.use.bar.hidden == pytest.approx(used / 2, abs=1)
    assert page.use.unlisted.isVisible() and " are not listed: " in page.use.unlisted.text()
    total = fed.window.state.snapshot.devices[0].reading.values["mem_total"]
    sizes = {part.name: part.size for part in page.use.bar.parts}
    assert sizes["free"] == total - used and sum(sizes.values()) == pytest.approx(total)
    most = msgspec.structs.replace(TRAIN, memory=int(used * 0.95))
    fed.reply(GetDetails, (Detail(snapshots.gpu(0).id, NOW, (), (most,)),))
    named = {part.name for part in page.use.bar.parts}
    assert named == {"ada", "not listed", "free"}, "what the bar shows adds up to the memory"
    whole = msgspec.structs.replace(TRAIN, memory=int(used))
    fed.reply(GetDetails, (Detail(snapshots.gpu(0).id, NOW, (), (whole,)),))
    assert page.use.bar.hidden == 0
    assert page.use.unlisted.isHidden()


def test_no_process_is_chosen_before_the_user_does(fed):
    fed.window.show_page("processes")
    page = fed.window.processes
    fed.feed(snapshots.gpu_snapshot(1))
    device = fed.window.state.snapshot.devices[0].device.id
    fed.reply(GetDetails, (Detail(device, NOW, (), (TRAIN, DRAW)),))
    fed.settle()
    assert page.list.model.rowCount() and page.chosen() is None
    QTest.keyClick(page.table, Qt.Key.Key_Delete)
    assert not page.question.isVisible(), "nothing is armed at first"


def test_a_process_is_named_after_the_module_that_python_runs(page, fed):
    command = "/opt/bin/python3 -m vllm.entrypoints.api_server --port 80"
    served = Process(9, "python3", "ada", 2**30, start=NOW - 5, ticks=4, command=command)
    device = fed.window.state.snapshot.devices[0].device.id
    page.poller.timeout.emit()
    fed.reply(GetDetails, (Detail(device, NOW, (), (served,)),))
    assert column(page, "Name") == ["api_server · python3"]
