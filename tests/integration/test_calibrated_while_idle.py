"""The daemon calibrates a GPU that was long idle by itself, and gives way to everybody else: a real
daemon, queue and job, and a recorded GPU with counters."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from gpudeck.language.text import Text
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import calibration, paths, settings
from gpudeck.scheduler.protocol.calibration import UNCALIBRATED
from gpudeck.scheduler.protocol.calibration_job import has_counters, versions_of
from gpudeck.scheduler.protocol.job_options import MAX_PRIORITY
from gpudeck.scheduler.protocol.jobs import Job, Running
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.protocol.snapshot import Idle
from gpudeck.scheduler.services.self_calibration import REVIEW_S
from tests.integration.deck import kill_daemon, python, ready
from tests.integration.test_eviction import tenant
from tests.support import eventually, state_folder

HERE = Path(__file__).parent / "fake_gpu"
ROOT = Path(__file__).parents[2]
SETTINGS = Settings(
    source="nvml", idle_dwell_s=0.0, telemetry_hz=10.0, tune_attention=False, calibrate_after=0.01
)
HOLD = "import pathlib, sys, time\nwhile not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.02)"


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "gpu").mkdir()
    monkeypatch.setenv("FAKE_GPU", str(tmp_path / "gpu"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), str(ROOT)]))
    return tmp_path / "gpu"


@pytest.fixture
def deck(gpu: Path, tmp_path: Path) -> Iterator[Client]:
    with state_folder(tmp_path / "home"):
        settings.save(SETTINGS)
        with Client() as client:
            yield ready(client)


def surveys(deck: Client) -> list[Job]:
    """The daemon's own jobs, the newest first."""
    return [job for job in deck.snapshot().jobs if job.spec.name == "calibrate"]


def surveying(deck: Client, gpu: Path, count: int = 1) -> Job:
    """The newest of so many, once it is on the GPU."""
    eventually(lambda: len(surveys(deck)) == count and on(gpu), 30.0)
    assert surveys(deck)[0].status == "running"
    return surveys(deck)[0]


def on(gpu: Path) -> bool:
    return any(file.name.isdigit() for file in gpu.iterdir())


def left(deck: Client, gpu: Path, job: Job) -> None:
    """Wait until the job has given way."""
    eventually(lambda: deck.job(job.id).status == "cancelled", 30.0)
    for file in gpu.iterdir():
        if file.name.isdigit():
            file.unlink()


def notices(deck: Client) -> list[str]:
    return [note.key for note in deck.snapshot().notices if isinstance(note, Text)]


def test_an_idle_gpu_is_calibrated_once(deck: Client, gpu: Path) -> None:
    job = surveying(deck, gpu)
    assert (job.spec.gpus, job.spec.priority) == (1, -MAX_PRIORITY)
    assert any("calibrates the GPUs" in note for note in notices(deck))
    (gpu / "surveyed").touch()
    assert deck.wait(job.id, 30.0).status == "done"
    eventually(lambda: not any("calibrates the GPUs" in note for note in notices(deck)))
    kill_daemon()
    with Client() as again:
        ready(again)
        eventually(lambda: isinstance(again.snapshot().devices[0].use, Idle))
        time.sleep(2 * REVIEW_S)
        assert [each.id for each in surveys(again)] == [job.id], "one try for each driver"


@pytest.mark.slow
def test_another_job_ends_it_and_it_is_tried_again(deck: Client, gpu: Path, tmp_path: Path) -> None:
    job = surveying(deck, gpu)
    other = deck.submit(python(HOLD, tmp_path / "end"), gpus=1)
    left(deck, gpu, job)
    eventually(lambda: deck.job(other.id).status == "running")
    assert len(surveys(deck)) == 1, "not while another job runs"
    (tmp_path / "end").touch()
    assert deck.wait(other.id, 30.0).status == "done"
    assert surveying(deck, gpu, 2).id > other.id


def test_the_assistant_gets_the_gpu_though_it_is_calibrated(deck: Client, gpu: Path) -> None:
    job = surveying(deck, gpu)
    with tenant(deck, gpu, "insists") as held:
        left(deck, gpu, job)
        assert deck.snapshot().devices[0].leased
        assert len(surveys(deck)) == 1
        held.kill()
    assert surveying(deck, gpu, 2).id > job.id, "it is tried again"


def test_of_different_cards_those_with_counters_are_calibrated(gpu: Path, tmp_path: Path) -> None:
    (gpu / "mixed").touch()
    with state_folder(tmp_path / "home"):
        settings.save(SETTINGS)
        with Client() as deck:
            old, new = ready(deck).snapshot().devices
            job = surveying(deck, gpu)
            assert isinstance(job.state, Running)
            assert (old.device.name, new.device.name) == ("NVIDIA GeForce RTX 2080", "NVIDIA H100")
            assert job.state.devices == (new.device.id,)


@pytest.mark.slow
def test_a_program_that_is_no_job_ends_it(deck: Client, gpu: Path) -> None:
    job = surveying(deck, gpu)
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as other:
        (gpu / "new").write_text(str(2**30))
        (gpu / "new").rename(gpu / str(other.pid))
        eventually(lambda: deck.job(job.id).status == "cancelled", 30.0)
        time.sleep(2 * REVIEW_S)
        assert len(surveys(deck)) == 1
        other.kill()


@pytest.mark.slow
def test_it_is_turned_off_by_a_setting(deck: Client, gpu: Path) -> None:
    job = surveying(deck, gpu)
    deck.configure(calibrate_after="off")
    left(deck, gpu, job)
    time.sleep(2 * REVIEW_S)
    assert len(surveys(deck)) == 1


@pytest.mark.slow
def test_a_calibrated_gpu_is_left_alone(gpu: Path, tmp_path: Path) -> None:
    with state_folder(tmp_path / "home"):
        settings.save(msgspec.structs.replace(SETTINGS, calibrate_after="off"))
        with Client() as deck:
            ready(deck)
            eventually(lambda: has_counters(deck.snapshot().devices[0]))
            card = deck.snapshot().devices[0].device
            vbios, driver = versions_of(card)
            made = {"device": card.id, "vbios": vbios, "driver": driver, "made": 1.0}
            calibration.keep([msgspec.structs.replace(UNCALIBRATED, **made)])
            assert calibration.find(card.id, vbios, driver) and not surveys(deck)
            deck.configure(calibrate_after=0.0)
            time.sleep(2 * REVIEW_S)
            assert not surveys(deck)
            other = msgspec.structs.replace(UNCALIBRATED, **(made | {"driver": "1.0"}))
            paths.replace_file(calibration.file(), msgspec.json.encode((other,)))
            assert surveying(deck, gpu)
