"""The clean-up page moves chosen items to the trash and puts them back."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import QCoreApplication, QEvent, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QWidget

from gpudeck.app.cleanup.page import NOTHING, CleanupPage
from gpudeck.app.cleanup.requests import (
    EmptyTrash,
    MoveToTrash,
    PutBack,
    Scan,
    ScanResult,
    TrashContents,
)
from gpudeck.app.shell.desktop import Desktop
from gpudeck.assistant.housekeeping import (
    EmptyResult,
    Finding,
    Receipt,
    Skipped,
    TrashItem,
    UndoResult,
)
from gpudeck.assistant.housekeeping.findings import encoded
from gpudeck.scheduler.protocol import settings
from gpudeck.scheduler.protocol.devices import Process
from gpudeck.scheduler.protocol.settings import Settings
from tests.gui.conftest import RecordingLink
from tests.gui.readable import nameless
from tests.support import state_folder
from tests.unit.assistant.debris import aged, write

BOX, ON, OFF = Qt.ItemDataRole.CheckStateRole, Qt.CheckState.Checked, Qt.CheckState.Unchecked
GIB, DAY = 2**30, 86400.0
PATIENCE_MS = 20_000


def find(kind: str, path: str, size: int = GIB, days: float = 40) -> Finding:
    return Finding(
        kind, encoded(path), encoded("/data"), size, f"may go: {kind}", days * DAY, "seal"
    )  # type: ignore[arg-type]


KERNELS = tuple(find("cache", f"/data/cache/K{i}", (20 - i) * 2**20) for i in range(12))
DUMP = find("core", "/data/core.\x1b[31m1")
ARTEFACTS = find("artefacts", "/data/jobs/7/artefacts", 3 * GIB, 100)
ORPHAN = Finding(
    "process",
    "",
    "",
    5 * GIB,
    "python holds a GPU for job 7",
    3600.0,
    process=Process(4711, "python"),
)
FINDS = (*KERNELS, DUMP, ARTEFACTS, ORPHAN)


@pytest.fixture
def asked() -> list[object]:
    """Return the list of the page's requests."""
    return []


@pytest.fixture
def link(qapp, asked) -> RecordingLink:
    return RecordingLink(asked.append)


@pytest.fixture
def page(qapp, clean_qt, asked, link):
    window = QWidget()
    window.resize(1000, 600)
    made = CleanupPage(link)
    made.setParent(window)
    made.resize(window.size())
    window.show()
    assert asked == [Scan()], "it looks as soon as it is seen"
    yield made
    window.close()
    window.deleteLater()
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)


def scanned(link, *finds: Finding, trash: TrashContents | None = None, **more: object) -> None:
    link.call(Scan).reply((ScanResult(finds, **more), trash or TrashContents()))  # type: ignore[arg-type]
    settle()


def settle() -> None:
    for _ in range(3):
        QApplication.processEvents()


def rows(page) -> dict[str, tuple[object, ...]]:
    """Return size and check box of each kind, by title."""
    model = page.tree.rows
    tops = [[model.index(row, column) for column in range(2)] for row in range(model.rowCount())]
    return {what.data(): (size.data(), what.data(BOX)) for what, size in tops}


def test_all_findings_are_shown_and_only_harmless_ones_are_selected(page, asked, link):
    link.call(Scan).progress("looking at ~/.triton/cache/K1")
    assert page.progress.text() == "looking at ~/.triton/cache/K1"
    assert page.stop.isVisible()
    scanned(link, *FINDS, unread=("/data/x: Permission denied",), stopped="not done after 60 s")
    assert rows(page) == {
        "Process on a GPU (1)": ("5.0 GiB", None),
        "Artefacts of a job (1)": ("3.0 GiB", OFF),
        "Core dump (1)": ("1.0 GiB", ON),
        "Kernel cache (12)": ("174 MiB", ON),
    }
    assert page.tree.rows.chosen() == (DUMP, *KERNELS)
    assert page.total.text() == "13 items, 1.2 GiB selected"
    assert page.move_button.text() == "Move 1.2 GiB to Trash"
    assert not page.tree.selectionModel().hasSelection(), "checks alone say what is moved"
    assert (
        page.progress.text()
        == "14 items, 4.2 GiB found · there may be more: not done after 60 s · 1 could not be read"
    )
    assert "Permission denied" in page.progress.toolTip()
    model = page.tree.rows
    dumps = model.index(2, 0)
    assert [model.index(0, i, dumps).data() for i in range(4)] == [
        "/data/core.\\x1b[31m1",
        "1.0 GiB",
        "40 days",
        "may go: core",
    ]
    assert nameless(page) == []


def test_kinds_and_findings_can_be_selected_by_keyboard(page, asked, link):
    scanned(link, *FINDS)
    tree, model = page.tree, page.tree.rows
    assert tree.hasFocus()
    for key in (
        Qt.Key.Key_Down,
        Qt.Key.Key_Down,
        Qt.Key.Key_Space,
    ):  # the process, its kind, artefacts
        QTest.keyClick(tree, key)
    settle()
    assert ARTEFACTS in model.chosen()
    cache = model.index(3, 0)
    assert model.setData(model.index(0, 0, cache), OFF, BOX)
    assert cache.data(BOX) == Qt.CheckState.PartiallyChecked
    assert page.total.text() == "13 items, 4.2 GiB selected"
    asked.clear()
    QTest.keyClick(tree, Qt.Key.Key_Delete)
    assert asked == [MoveToTrash((ARTEFACTS, DUMP, *KERNELS[1:]))]
    assert not page.move_button.isEnabled(), "once at a time"
    QTest.keyClick(tree, Qt.Key.Key_F5)
    assert len(asked) == 1


def test_moved_items_leave_the_list_and_can_be_put_back(page, asked, link):
    scanned(link, *FINDS)
    assert not page.undo.isVisible()
    page.move_button.click()
    moved = tuple(TrashItem(kernel, "", "", 0.0) for kernel in KERNELS)
    left = Skipped(DUMP, "python (pid 4711) has it open")
    model = page.tree.rows
    model.setData(model.index(2, 0), OFF, BOX)
    model.setData(model.index(1, 0), ON, BOX)
    link.call(MoveToTrash).reply(
        (Receipt("one", 0.0, moved, (left,)), TrashContents(12, 174 * 2**20, "one"))
    )
    settle()
    assert page.tree.finds == (DUMP, ARTEFACTS, ORPHAN)
    assert model.chosen() == (ARTEFACTS,), "what was chosen and left stays so"
    assert (
        page.outcome.text()
        == "Moved 12 items, 174 MiB, to the trash · 1 skipped: /data/core.\\x1b[31m1: python (pid"
        " 4711) has it open"
    )
    assert "12 items, 174 MiB" in page.trash.text()
    asked.clear()
    QTest.keyClick(page, Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier)
    assert asked == [PutBack("one")]
    link.call(PutBack).reply((UndoResult("one", KERNELS), TrashContents()))
    assert asked[-1] == Scan(), "the list is made anew"
    assert not page.undo.isVisible()


def test_emptying_the_trash_asks_for_confirmation(page, asked, link):
    scanned(link, trash=TrashContents(3, GIB, "one"))
    assert page.empty.text() == NOTHING
    asked.clear()
    page.empty_trash.click()
    assert (
        page.question.text.text() == "Permanently delete 3 items, 1.0 GiB? This cannot be undone."
    )
    assert page.question.no.hasFocus()
    QTest.keyClick(page.question.no, Qt.Key.Key_Escape)
    assert not page.question.isVisible()
    assert asked == []
    page.empty_trash.click()
    page.question.yes.click()
    assert asked == [EmptyTrash()]
    link.call(EmptyTrash).reply((EmptyResult(3, GIB), TrashContents()))
    assert page.outcome.text() == "Deleted 3 items, 1.0 GiB"


def test_a_failure_is_reported_and_a_search_can_be_stopped(page, asked, link):
    link.call(Scan).fail("the daemon does not answer")
    assert page.outcome.text() == "the daemon does not answer"
    page.again.click()
    page.stop.click()
    assert asked[-1] == Scan()
    assert link.call(Scan).cancelled


def test_real_files_are_moved_and_put_back(
    qapp, clean_qt, tmp_path: Path, qtbot, monkeypatch: pytest.MonkeyPatch
):
    for name in (
        "TRITON_HOME",
        "XDG_CACHE_HOME",
        "XDG_DATA_HOME",
        "HF_HOME",
        "HF_HUB_CACHE",
        "CUDA_CACHE_PATH",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    kernel = tmp_path / "cache" / "K"
    write(kernel / "a.cubin", b"k" * 2**20)
    aged(kernel, 60)
    with state_folder(tmp_path / "home"):
        settings.save(Settings(source="cpu", clean_memory="off"))
        desktop = Desktop(qapp)
        desktop.start()
        desktop.window.show_page("settings")
        desktop.window.settings.clean.click()
        page = desktop.window.cleanup
        qtbot.waitUntil(lambda: len(page.tree.rows.chosen()) == 1, timeout=PATIENCE_MS)
        page.move_button.click()
        qtbot.waitUntil(lambda: "to the trash" in page.outcome.text(), timeout=PATIENCE_MS)
        assert not kernel.exists()
        page.undo.click()
        qtbot.waitUntil(lambda: len(page.tree.rows.chosen()) == 1, timeout=PATIENCE_MS)
        assert (kernel / "a.cubin").read_bytes() == b"k" * 2**20
        desktop.window.rail.buttons["settings"].click()
        assert desktop.window.pages.currentWidget() is desktop.window.settings
        desktop.window.close()
        desktop.stop()
        desktop.window.deleteLater()


def test_the_tree_model_follows_the_rules_of_qt(page, qtmodeltester):
    page.tree.show_finds(FINDS)
    qtmodeltester.check(page.tree.rows)
    page.tree.show_finds(())
    qtmodeltester.check(page.tree.rows)


@pytest.mark.parametrize(("width", "height"), [(730, 500), (2400, 1400)])
def test_the_actions_are_at_the_bottom_near_the_list(page, link, width, height):
    page.parentWidget().resize(width, height)
    page.resize(width, height)
    scanned(link, DUMP, ARTEFACTS)
    assert page.tree.verticalScrollBar().maximum() == 0
    corner = page.move_button.mapTo(page, page.move_button.rect().bottomRight())
    assert height - corner.y() < 20, "they do not move with the number of rows"
    assert not page.about.isVisible(), "nothing is chosen"
    page.tree.setCurrentIndex(page.tree.rows.index(1, 0))
    assert page.about.isVisible() == (width == 2400), "there is room to describe the item"


def test_the_reason_has_the_room_that_the_path_can_spare(page, link):
    page.parentWidget().resize(730, 500)
    page.resize(730, 500)
    path = "/data/models/checkpoints/a-long-name-of-a-model-that-was-copied-twice"
    scanned(link, Finding("duplicate", encoded(path), encoded("/data"), GIB, "x", DAY, "seal"))
    header = page.tree.header()
    assert header.sectionSize(3) > header.sectionSize(0), "the reason decides"
    assert page.tree.textElideMode() == Qt.TextElideMode.ElideMiddle, "the end names the file"


def test_a_path_is_whole_where_the_reason_leaves_room_and_the_legend_wraps(page, link):
    page.parentWidget().resize(730, 500)
    page.resize(730, 500)
    scanned(link, *FINDS)
    header = page.tree.header()
    assert header.sectionSize(0) >= page.tree.sizeHintForColumn(0), "no path is cut"
    assert header.sectionSize(3) >= page.tree.sizeHintForColumn(3), "no reason is cut"
    one_line, share = page.share.heightForWidth(4000), page.share
    assert share.height() == share.heightForWidth(share.width()) > one_line


def test_the_space_is_shown_by_kind_and_the_current_item_is_described(page, link):
    page.parentWidget().resize(2400, 1400)
    page.resize(2400, 1400)
    scanned(link, *FINDS)
    assert [part.name for part in page.share.parts][:2] == [
        "Process on a GPU (1)",
        "Artefacts of a job (1)",
    ]
    model = page.tree.rows
    page.tree.setCurrentIndex(model.index(0, 0, model.index(1, 0)))
    assert "/data/jobs/7/artefacts" in page._facts.toPlainText()
    assert "may go: artefacts" in page._facts.toPlainText()
    scanned(link)
    assert not page.share.isVisible() and not page.about.isVisible()


def test_groups_that_were_opened_stay_open_when_the_finds_change(page, link):
    scanned(link, *KERNELS, DUMP)
    tree = page.tree
    (at,) = (i for i, group in enumerate(tree.rows.groups) if group.kind == "cache")
    assert not tree.isExpanded(tree.rows.index(at, 0)), "a long group is closed at first"
    tree.expand(tree.rows.index(at, 0))
    tree.show_finds((*KERNELS[1:], DUMP))
    assert tree.isExpanded(tree.rows.index(at, 0))
