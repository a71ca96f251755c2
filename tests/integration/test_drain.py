"""Drain GPUs by command and after a fault: a real daemon and probe, NVML from recordings."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpudeck.app.cli.main import main
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import settings
from gpudeck.scheduler.protocol.jobs import Done, Queued
from gpudeck.scheduler.protocol.settings import TEMPLATE, Settings
from tests.integration.deck import kill_daemon, python, ready, running
from tests.support import eventually

ROOT = Path(__file__).parents[2]
UNTIL = "import os, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.01)"


@pytest.fixture
def nvml(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the file that says what NVML answers."""
    settings.save(Settings(source="nvml", telemetry_hz=10.0, model_folder=TEMPLATE))
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'tests' / 'integration' / 'edge'}:{ROOT}")
    monkeypatch.setenv("RECORDED_NVML", str(tmp_path / "nvml.json"))
    tell(tmp_path / "nvml.json")
    yield tmp_path / "nvml.json"


def tell(file: Path, **told: object) -> None:
    new = file.with_suffix(".new")
    new.write_text(json.dumps({"gpus": 2, **told}))
    new.replace(file)


def client() -> Client:
    deck = ready(Client())
    eventually(lambda: [d for d in deck.snapshot().devices if d.reading])
    return deck


def test_a_gpu_with_a_fault_gets_no_new_job_until_it_is_taken_back(
    nvml: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    go = tmp_path / "go"
    with client() as deck:
        first = deck.submit(python(UNTIL, go), gpus=1)
        assert running(deck, first).devices == (deck.snapshot().devices[0].device.id,)
        tell(nvml, xids=[[0, 13], [0, 79], [0, 45]])
        notice = eventually(lambda: [n for n in deck.snapshot().notices if "GPU 0 is drained" in n])
        assert notice == [
            "GPU 0 is drained after a hardware fault: Xid 79: the GPU has fallen off the bus. "
            "Once it is reset or replaced: gpudeck undrain 0"
        ]
        assert "hardware errors" in {alert.rule for alert in deck.snapshot().alerts}
        assert deck.job(first.id).status == "running"
        both = deck.submit(["true"], gpus=2)
        state = deck.job(both.id).state
        assert isinstance(state, Queued)
        assert str(state.reason) == "needs 2 GPUs; drained: GPU 0"
    kill_daemon()
    with client() as deck:
        assert deck.job(both.id).status == "queued"
        capsys.readouterr()
        assert main(["undrain", "0"]) == 0
        assert capsys.readouterr().out == "GPU 0 is in use again.\n"
        go.touch()
        assert isinstance(deck.wait(both.id, 30).state, Done)
        eventually(lambda: not [n for n in deck.snapshot().notices if "drained" in n])
        assert deck.snapshot().settings.drained == ""


def test_a_gpu_whose_driver_asks_for_a_reset_is_drained_once(
    nvml: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tell(nvml, fields={"230": 1})
    with client() as deck:
        notice = eventually(lambda: [n for n in deck.snapshot().notices if "GPU 0 is drained" in n])
        assert notice == [
            "GPU 0 is drained after a hardware fault: the driver asks for a reset of the GPU. "
            "Once it is reset or replaced: gpudeck undrain 0"
        ]
        eventually(lambda: "recovery needed" in {a.rule for a in deck.snapshot().alerts})
        assert main(["undrain", "0"]) == 0
    kill_daemon()
    with client() as deck:  # the driver still asks, and the user knows
        assert deck.snapshot().settings.drained == deck.snapshot().devices[1].device.id
        assert deck.submit(["true"], gpus=1).wait(30).status == "done"


def test_gpus_are_drained_by_index_and_uuid(nvml: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with client() as deck:
        ids = [state.device.id for state in deck.snapshot().devices]
        deck.configure(drained="1")
        assert main(["drain", "0", ids[1]]) == 0
        assert capsys.readouterr().out == "GPU 0, GPU 1 are drained; no new jobs start there.\n"
        assert deck.snapshot().settings.drained == ", ".join(sorted(ids))
        assert main(["undrain", "--json", ids[0]]) == 0
        assert json.loads(capsys.readouterr().out) == {"drained": [ids[1]]}
        assert main(["drain", "7"]) == 1
        assert "there is no GPU 7. See: gpudeck status" in capsys.readouterr().err
