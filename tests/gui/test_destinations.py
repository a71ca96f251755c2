"""The settings page lists where the user is told, tests a destination, adds and removes one."""

from __future__ import annotations

import pytest
from PySide6.QtWidgets import QPushButton

from gpudeck.scheduler.protocol.destinations import Destination, DestinationState
from gpudeck.scheduler.verbs.notify import GetDestinations, SetDestination, TryDestination
from tests.gui import snapshots

PHONE = DestinationState("phone", "ntfy", "ntfy.sh", ("fail", "alert"), problem="no answer")


@pytest.fixture
def panel(fed):
    fed.feed(snapshots.cpu_snapshot())
    fed.window.show_page("settings")
    fed.settle()
    fed.reply(GetDestinations, (PHONE,))
    fed.settle()
    return fed.window.settings.destinations


def press(line, name):
    (found,) = [b for b in line.findChildren(QPushButton) if b.accessibleName() == name]
    found.click()


def test_a_destination_is_tested_and_removed(panel, fed):
    press(panel.lines["phone"], "Test phone")
    assert fed.asked == [TryDestination("phone")]
    fed.reply(TryDestination)
    assert panel.said.text() == "A test was sent to phone."
    press(panel.lines["phone"], "Test phone")
    fed.fail(TryDestination, "nothing was sent to phone: no answer")
    assert panel.said.text() == "nothing was sent to phone: no answer"
    press(panel.lines["phone"], "Remove phone")
    assert fed.asked[-1] == SetDestination("phone", None)
    fed.reply(SetDestination)
    fed.reply(GetDestinations, ())
    assert panel.lines == {}


def test_a_destination_is_added_and_its_address_is_not_shown(panel, fed):
    panel.name.setText("chat")
    panel.kind.setCurrentText("Slack")
    assert "hooks.slack.com" in panel.address.placeholderText()
    panel.address.setText("https://hooks.slack.com/services/s3cret")
    assert "s3cret" not in panel.address.displayText()
    panel.add.click()
    assert fed.asked == [
        SetDestination("chat", Destination("slack", "https://hooks.slack.com/services/s3cret"))
    ]
    fed.reply(SetDestination)
    assert (panel.name.text(), panel.address.text()) == ("", "")
    panel.kind.setCurrentText("Desktop")
    assert not panel.address.isEnabled()
