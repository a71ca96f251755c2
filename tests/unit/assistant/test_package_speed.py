"""The rwkv package beside our engine, in a process that can be ended."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from gpudeck.app.models.model_list import package_text
from gpudeck.assistant.host.package_speed import package_speed
from gpudeck.assistant.host_protocol import ModelSpeed, PackageSpeed, TokenRate
from gpudeck.assistant.idle import Cancelled
from gpudeck.scheduler.protocol.errors import UserError
from tests.unit.accel.rwkv.rwkv_models import random_model, to_hf, write_hf


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("models") / "tiny-7"
    return str(write_hf(folder, to_hf(random_model(layers=2, channels=64, vocabulary=1024))))


def package_processes() -> list[int]:
    """List those that this test started; others on the machine may run the package, too."""
    return [
        process.pid
        for process in psutil.process_iter(["cmdline", "ppid"])
        if process.info["ppid"] == os.getpid()
        and "gpudeck.assistant.host.rwkv_package" in (process.info["cmdline"] or ())
    ]


@pytest.mark.slow
def test_the_package_computes_the_same_model(model: str) -> None:
    speed = package_speed(model, "cpu", lambda: None)
    assert speed.name.startswith("rwkv 0.8") and speed.strategy == "cpu fp32"
    for rate in (speed.decode, speed.prefill):
        assert 0 < rate.low <= rate.median <= rate.high


def test_a_model_that_it_cannot_read_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the rwkv package cannot compute this model: ") as e:
        package_speed(str(tmp_path / "nowhere"), "cpu", lambda: None)
    assert "\n" not in str(e.value)


def test_it_ends_at_once_when_somebody_needs_the_device(model: str) -> None:
    def check() -> None:
        if package_processes():
            raise Cancelled

    with pytest.raises(Cancelled):
        package_speed(model, "cpu", check)
    assert package_processes() == []


def test_both_engines_are_named_with_their_speeds() -> None:
    def rate(value: float) -> TokenRate:
        return TokenRate(value, value * 0.9, value * 1.1, 5)

    package = PackageSpeed("rwkv 0.8.32", "cpu fp32", rate(40.0), rate(200.0))
    speed = ModelSpeed("tiny", "cpu", 13_000_000, 1.0, rate(400.0), rate(1000.0), package)
    assert package_text(speed) == [
        "rwkv 0.8.32 (cpu fp32): generation 40.0 tok/s (from 36.0 to 44.0), "
        "prompt processing 200 tok/s (from 180 to 220)",
        "our engine is 10.0 times as fast as the package at decoding and "
        "5.00 times as fast as the package at reading prompts",
    ]
    assert package_text(ModelSpeed("tiny", "cpu", 1, 1.0, rate(1.0), rate(1.0))) == []
