"""Test the tour with a real daemon, real attention, a real window and real files."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpudeck.app.cli.connection import daemon_status
from gpudeck.app.shell.window import PAGES
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import settings
from gpudeck.scheduler.protocol.settings import TEMPLATE, Settings

BRIEF = (
    "import sys; from gpudeck.app.cli.main import main; from gpudeck.app.tour import render, steps;"
    " render.render_pages.__defaults__ = (render.SIZES[:1], render.SCHEMES[:1]);"
    " steps.PAGE_S = steps.WATCH_S = 0.1; sys.exit(main(sys.argv[1:]))"
)
"""Run a command whose tour takes a quarter of the pictures and does not pause before them."""
WHOLE = pytest.param(False, marks=pytest.mark.slow, id="whole")


def gpudeck(*words: str, cwd: Path, brief: bool = False) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY")}
    env["OMP_NUM_THREADS"] = "1"  # other tests run on the other cores
    return subprocess.run(
        [sys.executable, "-P", *(("-c", BRIEF) if brief else ("-m", "gpudeck")), *words],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


@pytest.fixture
def quick_home(home: Path) -> Path:
    """Return a state folder for the CPU, which counts as idle at once whatever the machine does."""
    settings.save(
        Settings(source="cpu", idle_util_percent=100, idle_dwell_s=0, model_folder=TEMPLATE)
    )
    return home


def size_of(png: Path) -> tuple[int, int]:
    return struct.unpack(">II", png.read_bytes()[16:24])


def pictures(brief: bool) -> set[str]:
    """Return the names of the pictures that a tour takes of every page."""
    return {
        f"{page}-{scheme}-{width}x{height}.png"
        for page in PAGES
        for scheme in ("light", "dark")[: 1 if brief else 2]
        for width, height in ((1280, 800), (2560, 1440))[: 1 if brief else 2]
    }


@pytest.mark.parametrize("brief", [pytest.param(True, id="brief"), WHOLE])
def test_gpudeck_without_a_display_runs_the_tour(
    quick_home: Path, tmp_path: Path, brief: bool
) -> None:
    ran = gpudeck(cwd=tmp_path, brief=brief)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    first, *_ = ran.stdout.splitlines()
    assert "no display" in first
    out = tmp_path / "gpudeck-tour"
    assert (
        str(out) in first
        and str(out / "report.md") in ran.stdout
        and str(out / "results.json") in ran.stdout
    )

    during, training = "dashboard-during-the-job.png", "training.png"
    assert size_of(out / during) == size_of(out / training) == (1280, 800)
    assert {p.name for p in out.glob("*.png")} == pictures(brief) | {during, training}
    for name in pictures(brief):
        width, height = size_of(out / name)
        assert name.endswith(f"-{width}x{height}.png")

    results: dict[str, Any] = json.loads((out / "results.json").read_text())
    job = results["job"]
    assert job["state"]["type"] == "done" and job["state"]["result"]["verdict"] == "pass"
    assert job["spec"]["workload"] == "attention" and job["state"]["devices"] == ["cpu"]
    assert results["devices"][0]["device"]["note"] == "CPU: no NVIDIA GPU found"
    trained = results["training"]
    assert trained["spec"]["workload"] == "train" and trained["state"]["type"] == "done"
    losses = trained["state"]["result"]["curves"][0]["values"]
    assert len(losses) == 60 and losses[-1] < losses[0] - 1
    assert f"the loss fell from {losses[0]:.3f} to {losses[-1]:.3f}" in ran.stdout
    live = results["live"]
    assert live["counted_tflops"] > 0 and live["counters_tflops"] is None
    assert live["shown_tflops"] == pytest.approx(
        live["counted_tflops"], rel=0.25
    )  # the CPU is shared with other tests
    assert results["brief"]["writer"] == "template"
    assert set(results["pictures"]) == {p.name for p in out.glob("*.png")}

    report = (out / "report.md").read_text()
    assert results["brief"]["text"] in report and "Written by: template" in report
    assert "<b>Utilisation, %</b>" in (out / "report.html").read_text()
    assert (out / "report.pdf").read_bytes().startswith(b"%PDF-")
    assert not daemon_status().running  # the tour ends the daemon that it started


@pytest.mark.slow
def test_the_brief_does_not_wait_for_a_busy_machine(home: Path, tmp_path: Path) -> None:
    settings.save(Settings(source="cpu", idle_dwell_s=300, model_folder=TEMPLATE))
    ran = gpudeck(cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "brief written by: template" in ran.stdout


@pytest.mark.slow
@pytest.mark.parametrize("brief", [True, False], ids=["brief", "whole"])
def test_a_replay_is_pictured_but_runs_no_job(home: Path, tmp_path: Path, brief: bool) -> None:
    settings.save(Settings(source="replay:h100.trace.gz*2"))
    whole = gpudeck("tour", "--out", str(tmp_path / "whole"), cwd=tmp_path)
    assert (
        whole.returncode == 1
        and "gpudeck tour --pictures" in whole.stderr
        and whole.stderr.count("\n") == 1
    )
    out = tmp_path / "out"
    ran = gpudeck("tour", "--pictures", "--out", str(out), cwd=tmp_path, brief=brief)
    assert ran.returncode == 0, ran.stderr
    assert {file.name for file in out.iterdir()} == pictures(brief)
    assert not daemon_status().running


def test_an_unwritable_folder_is_reported_in_one_line(quick_home: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ran = gpudeck("tour", "--out", str(tmp_path / "file" / "x"), cwd=tmp_path)
    assert ran.returncode == 1 and ran.stdout == ""
    assert ran.stderr.startswith("gpudeck: cannot write to ") and ran.stderr.count("\n") == 1


def test_ask_and_report_on_the_command_line(quick_home: Path, tmp_path: Path) -> None:
    with Client() as deck:
        job = deck.wait(
            deck.submit([sys.executable, "-c", "raise SystemExit(7)"], name="boom").id, timeout=30
        )
    asked = gpudeck("ask", "what", "failed?", cwd=tmp_path)
    assert asked.returncode == 0, asked.stderr
    assert (
        "boom" in asked.stdout and "7" in asked.stdout and "Written by a template." in asked.stdout
    )
    told = json.loads(gpudeck("report", "--job", str(job.id), "--json", cwd=tmp_path).stdout)
    assert told["writer"] == "template" and "boom" in told["text"] and told["facts"]
    assert told["report"]["kind"] == "job" and told["report"]["job"] == job.id
    written = gpudeck("report", "--out", "brief.md", cwd=tmp_path)
    assert written.returncode == 0 and "boom" in (tmp_path / "brief.md").read_text()
    daily = gpudeck("report", "--daily", "--format", "pdf", "--out", "day", cwd=tmp_path)
    assert daily.returncode == 0 and (tmp_path / "day").read_bytes().startswith(b"%PDF-")
    assert daily.stdout == "The report is in day. Written by: template.\n"
    weekly = json.loads(gpudeck("report", "--weekly", "--json", cwd=tmp_path).stdout)["report"]
    assert weekly["until"] - weekly["since"] == pytest.approx(7 * 86400, abs=2)
    day = ("--since", "2026-11-20", "--until", "2026-11-21")
    past = json.loads(gpudeck("report", *day, "--json", cwd=tmp_path).stdout)["report"]
    assert past["until"] - past["since"] == 86400
    endless = gpudeck("report", "--daily", "--until", "2026-11-21", cwd=tmp_path)
    assert endless.returncode == 2 and "--until needs an earlier --since" in endless.stderr
    too_soon = gpudeck("report", "--format", "pdf", cwd=tmp_path)
    assert (too_soon.returncode, too_soon.stderr) == (
        2,
        "gpudeck: a pdf report needs a file: --out FILE.pdf\n",
    )
    unknown = gpudeck("report", "--job", "99", cwd=tmp_path)
    assert unknown.returncode == 1 and unknown.stderr.count("\n") == 1 and "99" in unknown.stderr
