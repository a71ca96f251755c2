"""Notifications go to the desktop's own command; markup in them is text."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpudeck.app.shell.notifications import COMMAND, notify
from tests.support import eventually


def test_the_command_gets_title_and_text_and_no_markup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = tmp_path / COMMAND
    command.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" > "{tmp_path}/told.new"; mv "{tmp_path}/told.new"'
        f' "{tmp_path}/told"\n'
    )
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert notify("GPU Deck: no progress", "job 3 (<b>--help</b>) & more")
    told = eventually(lambda: (tmp_path / "told").exists() and (tmp_path / "told").read_text())
    assert told.splitlines()[-3:] == [
        "--",
        "GPU Deck: no progress",
        "job 3 (&lt;b&gt;--help&lt;/b&gt;) &amp; more",
    ]


def test_without_the_command_nothing_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not notify("GPU Deck")
