"""Starting a process of ours: one that is slow is waited for, one that hangs is given up, and
what one says is passed on."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpudeck.scheduler.background import launch
from gpudeck.scheduler.protocol.errors import UserError


def start(folder: Path, code: str) -> None:
    (folder / "process_of_ours.py").write_text(code)
    launch.start_process(
        "process_of_ours", folder / "log", "the process", {"PYTHONPATH": str(folder)}
    )


def test_a_slow_process_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "STILL_S", 1.0)
    start(
        tmp_path,
        "import time\nend = time.monotonic() + 1.6\nwhile time.monotonic() < end:"
        " sum(range(10**6)); time.sleep(0.15)\nprint('ready', flush=True)",
    )


def test_a_process_that_hangs_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "STILL_S", 0.5)
    with pytest.raises(UserError, match="the process did not start: no answer within "):
        start(tmp_path, "import time\ntime.sleep(600)")


def test_a_process_that_never_answers_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "STILL_S", 0.2)
    monkeypatch.setattr(launch, "LONGEST_S", 0.5)
    with pytest.raises(UserError, match="no answer within "):
        start(tmp_path, "while True: pass")


def test_the_error_of_a_process_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^the process did not start: the disk is full$"):
        start(tmp_path, "print('the disk is full')")
    with pytest.raises(
        UserError, match=r"^the process did not start: it ended with an error; see "
    ):
        start(tmp_path, "raise SystemExit(1)")
