"""The timing loop, on real calls; its GPU half is tested in tests/gpu."""

import time

import numpy as np
import pytest
import torch

from gpudeck.accel.runtime import capability
from gpudeck.accel.runtime.timing import MAX_AHEAD, Measurement, _calls_a_mark, _calls_in, measure

CPU = torch.device("cpu")


def test_every_call_is_counted_once_and_lies_within_the_wall_time():
    calls, reports = [], []
    before = time.time()
    m = measure(
        lambda: calls.append(sum(range(5000))),
        0.6,
        CPU,
        lambda elapsed, done: reports.append((elapsed, done, len(calls))),
    )
    after = time.time()
    assert m.timing.count == len(m.samples_ms) == len(calls)
    assert sum(m.samples_ms) / 1e3 <= m.wall_s
    assert 0.6 <= m.wall_s <= after - before
    assert before <= m.started <= m.ended <= after + 0.01  # two clocks
    assert reports == sorted(reports) and len(reports) >= 2
    assert all(done == made for _, done, made in reports)  # never work that is not finished
    assert reports[-1][1] == len(calls)


def test_a_call_longer_than_the_time_given_still_runs_once():
    m = measure(lambda: time.sleep(0.02), 0.0001, CPU, lambda *_: None)
    assert m.timing.count == 1 and m.timing.minimum >= 20


def test_a_call_that_fails_ends_the_loop():
    with pytest.raises(ZeroDivisionError):
        measure(lambda: 1 / 0, 1.0, CPU, lambda *_: None)


@pytest.mark.parametrize("ms", [0.0, 0.004, 0.03, 0.19, 0.5, 30.0])
@pytest.mark.parametrize("seconds", [0.001, 0.05])
def test_a_turn_has_whole_samples_one_that_is_not_counted_and_one_that_is(ms, seconds):
    step = _calls_a_mark([9.0, ms], torch.device("cuda"))
    count = _calls_in(seconds, [ms] * 3, step)
    assert count % step == 0 and 2 * step <= count <= max(MAX_AHEAD, 2 * step)
    assert step == 1 or 0.1 <= max(ms, 0.001) * step <= 0.3, "so much work between two events"
    assert _calls_a_mark([ms], CPU) == 1


def test_percentiles():
    samples = tuple(float(x) for x in np.random.default_rng(0).permutation(np.arange(1, 102)))
    t = Measurement(samples, 0.0, 1.0, 1.0).timing
    assert (t.minimum, t.median, t.p50, t.p95, t.p99, t.maximum, t.count) == (
        1,
        51,
        51,
        96,
        100,
        101,
        101,
    )


def test_the_device_is_named(monkeypatch):
    device = capability.find_device()
    assert device.units >= 1 and device.free_memory() > 0
    if device.kind == "cpu":
        assert (
            str(device) == f"CPU: {device.name}, {torch.get_num_threads()}"
            f" thread{'s'[: torch.get_num_threads() != 1]}"
        )
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-0815")
        with pytest.raises(
            RuntimeError,
            match=(
                r"CUDA_VISIBLE_DEVICES names GPU GPU-0815, and torch cannot use it: .* Set it to an"
                r" empty text to compute on the CPU"
            ),
        ):
            capability.find_device()


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (
            (
                "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15"
                " UTC 2024\nGCC version:  gcc version 12.3.0"
            ),
            "535.183.01",
        ),
        (
            (
                "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build "
                " (x)  Tue Sep 23 2025\n"
            ),
            "580.95.05",
        ),
        ("something else\n", None),
    ],
)
def test_versions_name_the_driver_where_there_is_one(text, version, monkeypatch, tmp_path):
    monkeypatch.setattr(capability, "_DRIVER", tmp_path / "version")
    assert "driver" not in capability.versions()
    (tmp_path / "version").write_text(text)
    assert capability.versions().get("driver") == version
    assert capability.versions()["torch"] == torch.__version__
