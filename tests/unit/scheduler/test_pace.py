"""Devices are read as often as needed, and a GPU may sleep where the driver allows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpudeck.scheduler.devices import supervisor
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.telemetry.monitor import ASLEEP, CALM_HZ, polling_rate


def test_the_rate_falls_while_nobody_watches_and_never_exceeds_the_setting() -> None:
    assert polling_rate(Settings(telemetry_hz=10), watched=True, may_sleep=True) == 10.0
    assert polling_rate(Settings(telemetry_hz=10), watched=False, may_sleep=False) == CALM_HZ
    assert polling_rate(Settings(telemetry_hz=0.1), watched=False, may_sleep=False) == 0.1
    assert polling_rate(Settings(), watched=False, may_sleep=True) == ASLEEP


@pytest.mark.parametrize(
    ("status", "can"),
    [
        (
            (
                "Runtime D3 status:          Enabled (fine-grained)\nVideo Memory:              "
                " Active\n"
            ),
            True,
        ),
        ("Runtime D3 status:          Enabled (coarse-grained)\n", True),
        (
            (
                "Runtime D3 status:          Disabled by default\nVideo Memory:  Active\nSelf"
                " Refresh: Enabled\n"
            ),
            False,
        ),
        ("Runtime D3 status:          Not supported\n", False),
        ("\xff\n", False),
        ("", False),
    ],
)
def test_a_gpu_can_sleep_if_the_driver_enables_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, status: str, can: bool
) -> None:
    monkeypatch.setattr(supervisor, "_GPU_FOLDERS", tmp_path)
    assert not supervisor.can_sleep(), "no GPU"
    (tmp_path / "0000:01:00.0").mkdir()
    assert not supervisor.can_sleep(), "a driver without this file"
    (tmp_path / "0000:01:00.0" / "power").write_text(status, encoding="latin-1")
    assert supervisor.can_sleep() == can
