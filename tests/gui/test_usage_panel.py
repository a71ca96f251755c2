"""The window says what each person's jobs used in a week, with verdicts."""

from __future__ import annotations

import msgspec
import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from gpudeck.app.format.usage import UsageRow
from gpudeck.app.jobs.usage_panel import ReadUsage
from gpudeck.app.widgets import theme
from tests.gui import snapshots
from tests.gui.conftest import Fed
from tests.gui.snapshots import NOW

CTRL_SHIFT = Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier
JUNE = UsageRow("2026-W27", "ada", 2, 2, 1.0)
ADA = UsageRow("2026-W48", "ada", 1204, 1200, 40.0, 0.0, 7.2e6, 40.0, 10.0, 1.0)
BEN = UsageRow("2026-W48", "ben", 3, 1, 10.0, 2.0, None, 0.0, 0.0, 6.0)


@pytest.fixture
def panel(fed: Fed):
    fed.window.show_page("jobs")
    made = snapshots.gpu_snapshot(2)
    settings = msgspec.structs.replace(made.settings, energy_price=0.5, currency="EUR")
    fed.feed(msgspec.structs.replace(made, settings=settings))
    fed.window.jobs.table.setFocus()
    QTest.keyClick(fed.window.jobs, Qt.Key.Key_U, CTRL_SHIFT)
    found = fed.window.jobs.usage
    assert found.isVisible() and not fed.window.jobs.details.isVisible()
    return found


def test_each_person_has_a_line_with_verdicts(fed: Fed, panel) -> None:
    asked = next(request for request in fed.asked if isinstance(request, ReadUsage))
    assert asked.by == "week" and asked.since < NOW - 11 * 7 * 86400
    fed.reply(ReadUsage, (ADA, BEN, JUNE))
    assert [line.cells for line in panel.model.rows] == [
        ("ada", "23–29 Nov", "1,204", "40.0", "25 %", "2.00 kWh"),
        ("ben", "23–29 Nov", "3", "10.0", "–", "–"),
        ("ada", "29 Jun – 05 Jul", "2", "1.0", "–", "–"),
    ]
    assert [verdict.text for verdict in panel.verdicts.shown] == [
        "ada, 23–29 Nov: the jobs used 2.00 kWh: 1.00 EUR",
    ], "what the row says is not repeated"
    fed.window.resize(1280, 800)
    fed.settle()
    assert not panel.table.isColumnHidden(5), "the energy has room"
    for line in panel.model.rows:
        needed = panel.table.fontMetrics().horizontalAdvance(line.cells[1])
        assert needed + theme.M <= panel.table.columnWidth(1)
    panel.table.selectRow(1)
    assert [verdict.text for verdict in panel.verdicts.shown] == [
        "ben, 23–29 Nov: jobs that failed held GPUs for 6.0 of 10.0 GPU-hours"
    ]
    QTest.keyClick(panel, Qt.Key.Key_Escape)
    assert not panel.isVisible() and fed.window.jobs.details.isVisible()


def test_months_are_read_on_request_and_nothing_is_said_plainly(fed: Fed, panel) -> None:
    fed.reply(ReadUsage, (ADA,))
    panel.by.setCurrentIndex(1)
    newest = [request for request in fed.asked if isinstance(request, ReadUsage)][-1]
    assert newest.by == "month"
    fed.reply(newest, ())
    assert panel.empty.isVisible() and panel.empty.text() == "No job has ended in this time."
    assert panel.verdicts.isHidden()
    fed.feed(msgspec.structs.replace(fed.window.state.snapshot, time=NOW + 5))
    assert len([request for request in fed.asked if isinstance(request, ReadUsage)]) == 2
    fed.feed(msgspec.structs.replace(fed.window.state.snapshot, time=NOW + 65))
    fed.fail(ReadUsage, "the job belongs to another user")
    assert panel.empty.text() == "the job belongs to another user"
