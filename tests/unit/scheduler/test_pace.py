"""How often devices are read, and when a GPU is left to sleep."""

from __future__ import annotations

from pathlib import Path

import pytest

from scheduler.devices import sleep
from scheduler.protocol.settings import Settings
from scheduler.telemetry.pace import ASLEEP, CALM_HZ, pace


def test_fast_for_those_who_look_slow_for_nobody_and_never_faster_than_set() -> None:
    assert pace(Settings(telemetry_hz=10), watched=True, may_sleep=True) == 10.0
    assert pace(Settings(telemetry_hz=10), watched=False, may_sleep=False) == CALM_HZ
    assert pace(Settings(telemetry_hz=0.1), watched=False, may_sleep=False) == 0.1
    assert pace(Settings(), watched=False, may_sleep=True) == ASLEEP


@pytest.mark.parametrize(
    ("status", "can"),
    [
        (
            "Runtime D3 status:          Enabled (fine-grained)\nVideo Memory:               Active\n",
            True,
        ),
        ("Runtime D3 status:          Enabled (coarse-grained)\n", True),
        (
            "Runtime D3 status:          Disabled by default\nVideo Memory:  Active\nSelf Refresh: Enabled\n",
            False,
        ),
        ("Runtime D3 status:          Not supported\n", False),
        ("\xff\n", False),
        ("", False),
    ],
)
def test_a_gpu_can_sleep_where_the_driver_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, status: str, can: bool
) -> None:
    monkeypatch.setattr(sleep, "_GPUS", tmp_path)
    assert not sleep.can_sleep(), "no GPU"
    (tmp_path / "0000:01:00.0").mkdir()
    assert not sleep.can_sleep(), "a driver that tells nothing"
    (tmp_path / "0000:01:00.0" / "power").write_text(status, encoding="latin-1")
    assert sleep.can_sleep() == can
