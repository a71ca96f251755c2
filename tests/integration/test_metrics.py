"""Test the metrics of a real daemon with recorded GPUs, using Prometheus' own parser."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gpudeck.app.cli.devices.metrics import token_file
from gpudeck.app.cli.devices.prometheus import DCGM
from gpudeck.app.cli.main import main
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import paths, settings
from gpudeck.scheduler.protocol.fields import FIELDS
from gpudeck.scheduler.protocol.settings import Settings
from tests.integration.deck import ready
from tests.support import eventually

Samples = dict[str, list[tuple[dict[str, str], float]]]


def parsed(text: str) -> Samples:
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


@pytest.fixture
def eight(home: Path) -> Iterator[Client]:
    settings.save(Settings(source="replay:h100.trace.gz*8"))
    with Client() as deck:
        eventually(lambda: ready(deck).snapshot().devices[-1].reading)
        yield deck


def scrape(url: str, token: str = "") -> str:
    request = urllib.request.Request(
        url, headers={"Authorization": f"Bearer {token}"} if token else {}
    )
    with urllib.request.urlopen(request, timeout=20) as reply:
        assert reply.headers["Content-Type"].startswith("text/plain")
        return reply.read().decode()


def test_eight_gpus_are_served_under_the_names_of_dcgm(
    eight: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    eight.submit(["true"], hold=True, name='has "quotes"\nand lines')
    with subprocess.Popen(
        [sys.executable, "-m", "gpudeck", "metrics", "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdout is not None
        try:
            url = server.stdout.readline().split()[-1]
            assert str(token_file()) in server.stdout.readline()
            assert token_file().stat().st_mode & 0o777 == 0o600
            token = token_file().read_text()
            found = parsed(scrape(url, token))
            with pytest.raises(urllib.error.HTTPError, match="401"):
                scrape(url)
            with pytest.raises(urllib.error.HTTPError, match="401"):
                scrape(url, "wrong")
            with pytest.raises(urllib.error.HTTPError, match="404"):
                scrape(url.removesuffix("metrics"), token)
        finally:
            server.terminate()
    reading = eight.snapshot().devices[3].reading
    assert reading is not None
    for field, value in reading.values.items():
        if field in DCGM:
            assert [labels["gpu"] for labels, _ in found[DCGM[field].name]] == [
                str(i) for i in range(8)
            ]
        if FIELDS[field].pace == "static" and field in DCGM:
            assert found[DCGM[field].name][3][1] == pytest.approx(value * DCGM[field].factor)
    labels, _ = found["DCGM_FI_DEV_GPU_UTIL"][3]
    assert labels["UUID"] == "REPLAY-3"
    assert labels["modelName"] == "REPLAY NVIDIA H100 80GB HBM3"
    assert labels["DCGM_FI_DRIVER_VERSION"]
    assert all(0 <= v <= 1 for _, v in found["DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"])
    assert all(0 < v < 90_000 for _, v in found["DCGM_FI_DEV_FB_FREE"])
    assert len(found["gpudeck_tflops"]) == 8
    assert found["gpudeck_queue_jobs"][0] == ({"state": "queued"}, 1)
    assert "DCGM_FI_DEV_FAN_SPEED" not in found, "what cannot be read is a gap"


def test_a_cpu_has_metrics_of_its_own(cpu_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["metrics", "--once"]) == 0
    found = parsed(capsys.readouterr().out)
    assert found["gpudeck_cpu_util_percent"][0][0]["device"] == "cpu"
    assert not [name for name in found if name.startswith("DCGM")]


def test_an_unavailable_address_is_reported_in_one_line(
    cpu_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["metrics", "--host", "192.0.2.1"]) == 1
    assert "Choose another port with --port" in capsys.readouterr().err


def test_metric_names_are_unique() -> None:
    names = [d.name for d in DCGM.values()]
    assert len(set(names)) == len(names)
    assert set(DCGM) <= set(FIELDS)


def test_the_grafana_dashboard_uses_only_served_metrics(
    eight: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["metrics", "--once"]) == 0
    families = [*text_string_to_metric_families(capsys.readouterr().out)]
    served = {family.name for family in families}
    labels = {
        family.name: {label for sample in family.samples for label in sample.labels}
        for family in families
    }
    text = (paths.assets() / "grafana" / "gpudeck.json").read_text()
    dashboard = json.loads(text)
    asked = set(re.findall(r"\b(?:DCGM_FI|gpudeck)_\w+", text))  # panels, variables, annotations
    assert len(asked) > 10
    assert asked <= served
    for name, selected in re.findall(r"\b((?:DCGM_FI|gpudeck)_\w+)\{([^}]*)\}", text):
        assert set(re.findall(r"(\w+)[=!]~?", selected)) <= labels[name], name
    for target in (target for panel in dashboard["panels"] for target in panel["targets"]):
        (name, *_) = re.findall(r"\b(?:DCGM_FI|gpudeck)_\w+", target["expr"])
        by_prometheus = {"instance"}
        assert (
            set(re.findall(r"{{(\w+)}}", target.get("legendFormat", "")))
            <= labels[name] | by_prometheus
        ), target
    places = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in dashboard["panels"]]
    assert len(set(places)) == len(places)
