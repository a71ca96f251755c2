"""Attention is measured while the GPU is idle, under a lease that a job takes back at once: a real
daemon and process, a GPU played at the hardware's edge, and backends that run on the CPU."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from gpudeck.accel.attention import attention, choose
from gpudeck.accel.attention.lessons import STORE, USAGE
from gpudeck.accel.lessons import usage
from gpudeck.accel.lessons.records import decode_learned
from gpudeck.accel.lessons.store import learning
from gpudeck.accel.runtime import state_files
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import paths, settings
from gpudeck.scheduler.protocol.devices import ASSISTANT_MARK
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.protocol.snapshot import Idle
from gpudeck.scheduler.services.helper_service import attention_is_due
from tests.integration.deck import ready
from tests.support import eventually, state_folder

HERE = Path(__file__).parent / "fake_gpu"
ROOT = Path(__file__).parents[2]
SETTINGS = Settings(source="nvml", idle_dwell_s=0.0, telemetry_hz=10.0, tune_attention=False)


@pytest.fixture
def deck(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """Yield a daemon with an idle GPU, and shapes that programs used."""
    (tmp_path / "gpu").mkdir()
    monkeypatch.setenv("FAKE_GPU", str(tmp_path / "gpu"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), str(ROOT)]))
    monkeypatch.setattr(usage, "DEVICES", ("cpu",))
    with state_folder(tmp_path / "home"):
        settings.save(SETTINGS)
        assert not attention_is_due()
        learning("idle")
        q = torch.randn(1, 2, 24, 16, requires_grad=True)
        for _ in range(3):
            attention(q, q, q, causal=True).sum().backward()
        USAGE.note()
        with Client() as client:
            ready(client)
            eventually(lambda: isinstance(client.snapshot().devices[0].use, Idle))
            client.configure(tune_attention=True)
            # the daemon starts it, too, where torch finds no GPU: it fails and is tried again later
            log, told = paths.attention_tuner_log(), "CUDA_VISIBLE_DEVICES names GPU"
            eventually(lambda: log.exists() and told in log.read_text(), 60.0)
            eventually(lambda: not client.snapshot().devices[0].leased)
            yield client
    learning("once")
    USAGE.forget()
    STORE.forget()
    choose.cache_clear()


@contextmanager
def tuner(tmp_path: Path, *manner: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(HERE / "tuner.py"), str(tmp_path / "gpu"), *manner]
    environment = {**os.environ, ASSISTANT_MARK: "1"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def measured() -> set[str]:
    contents = state_files.read(state_files.learned_file("attention"))
    return {m.direction for m in decode_learned(contents)}


@pytest.mark.slow
def test_used_shapes_are_measured_and_the_gpu_is_given_back(deck: Client, tmp_path: Path) -> None:
    assert attention_is_due()
    with tuner(tmp_path) as process:
        assert process.wait(60) == 0
    assert measured() == {"forward", "backward"}
    assert not attention_is_due() and paths.attention_tuned_file().stat().st_mode & 0o777 == 0o600
    eventually(lambda: not deck.snapshot().devices[0].leased)


@pytest.mark.slow
def test_a_job_evicts_it_and_what_was_measured_stays(deck: Client, tmp_path: Path) -> None:
    with tuner(tmp_path, "slowly") as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["measures\n"] * 2
        assert deck.snapshot().devices[0].leased
        began = time.monotonic()
        job = deck.submit([sys.executable, "-c", "pass"], gpus=1)
        assert deck.wait(job.id, 30.0).status == "done"
        assert process.wait(30) in (0, -9) and time.monotonic() - began < 30
    assert measured() == {"forward"} and attention_is_due()
