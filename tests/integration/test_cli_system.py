"""Test the commands that maintain the daemon, the store and the models."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
from pathlib import Path

import pytest

from gpudeck.assistant.library import recommended
from tests.integration.deck import kill_daemon
from tests.integration.shell import Shell, gpudeck
from tests.unit.accel.rwkv.rwkv_models import random_model, to_hf, vocabulary_file, write_hf
from tests.unit.assistant.hub_server import folder_files, serving


def test_daemon_starts_stops_and_reports_its_status(alone: Shell, cpu_home: Path) -> None:
    alone("daemon", "status", status=1)
    assert "is not running" in alone("daemon", "stop")
    assert "The daemon is running (pid " in alone("daemon", "start")
    state = alone.json("daemon", "status")
    assert state["running"] is True
    assert state["home"] == str(cpu_home)
    assert "has stopped" in alone("daemon", "stop")
    assert "Readings now come from cpu" in alone("daemon", "start", "--source", "cpu")
    assert "no trace at" in alone.fails("daemon", "start", "--source", "replay:nowhere.gz")
    assert alone.json("status")["settings"]["source"] == "cpu", (
        "a trace that cannot be played changes nothing"
    )
    kill_daemon()
    assert "CPU" in alone("status"), "a verb starts the daemon where none runs"


def test_settings_are_listed_explained_and_changed(alone: Shell) -> None:
    assert re.search(r"^idle_dwell_s +15 +15$", alone("settings"), re.M)
    assert alone("settings", "idle_dwell_s=30", "tune_attention=off").startswith("idle_dwell_s: 30")
    assert alone.json("settings", "idle_dwell_s", "tune_attention") == {
        "idle_dwell_s": 30.0,
        "tune_attention": False,
    }
    assert "How long a device must be idle" in alone("settings", "idle_dwell_s")
    for wrong, said in (
        ("idle_dwell_s=301", "idle_dwell_s must be at most 300"),
        ("idle_dwell_s=soon", "must be a number"),
        ("tune_attention=yes", "tune_attention is one of on, off; got 'yes'"),
        ("laptop_sleep=maybe", "laptop_sleep is one of auto, on, off"),
        ("idle_dwell=1", "no setting is called 'idle_dwell'"),
    ):
        assert said in alone.fails("settings", "telemetry_hz=5", wrong)
    assert alone.json("settings", "telemetry_hz") == {"telemetry_hz": 2.0}, "all or nothing"


def test_doctor_checks_everything_and_reports_failures(alone: Shell, cpu_home: Path) -> None:
    findings = {f["what"]: f for f in alone.json("doctor")}
    assert {f["verdict"] for f in findings.values()} <= {"ok", "warning"}
    assert set(findings) >= {
        "Python and packages",
        "state folder",
        "disk",
        "settings",
        "window libraries",
        "daemon",
        "devices",
        "suspending programs",
    }
    assert alone("doctor").count("\n") == len(findings)
    (cpu_home / "settings.json").write_text("{")
    kill_daemon()
    alone("doctor", status=1)


def test_a_store_of_a_newer_version_is_reported_in_one_line(alone: Shell, cpu_home: Path) -> None:

    alone("daemon", "start")
    alone("daemon", "stop")
    with sqlite3.connect(cpu_home / "gpudeck.sqlite") as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    assert "newer GPU Deck (schema 99" in alone.fails("status")


def test_models_are_listed_chosen_and_removed(sh: Shell, tmp_path: Path) -> None:
    folder = write_hf(
        tmp_path / "tiny-7", to_hf(random_model(layers=1, channels=64, vocabulary=64))
    )
    shutil.copy(vocabulary_file(), folder)
    assert "No model is in use" in sh("models")
    assert sh("models", "add", str(folder)).startswith("tiny-7 (")
    (made,) = sh.json("models")
    assert (made["name"], made["layers"], made["dialect"]) == (
        "tiny-7",
        1,
        "flash-linear-attention",
    )
    sh("models", "use", "tiny-7")
    assert re.search(r"tiny-7 .* in use", sh("models"))
    (folder / "model.safetensors").write_bytes(b"")
    assert "truncated or damaged" in sh("models"), (
        "why it cannot be used is said where it is listed"
    )
    assert "truncated or damaged" in sh.fails("models", "use", str(folder))
    sh("models", "use", "none")
    sh("models", "remove", "tiny-7")
    assert "No model is in use" in sh("models")
    assert "no model, or more than one" in sh.fails("models", "use", "tiny-7")
    sh("models", "use", "template")
    assert "OWNER/NAME" in sh.fails("models", "pull", "tiny-7")
    assert "Example" in sh.fails("models", "benchmark", status=2)


def test_the_recommended_model_is_offered_downloaded_and_used(
    alone: Shell, cpu_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_hf(tmp_path / "tiny", to_hf(random_model(layers=1, channels=64, vocabulary=64)))
    shutil.copy(vocabulary_file(), folder)
    offered = recommended.Released("ada/tiny", 450_000_000, 1024, 903_000_000)
    monkeypatch.setattr(recommended, "RELEASED", (offered,))
    listed = alone("models")
    assert "ada/tiny" in listed and "licence Apache-2.0" in listed
    assert "gpudeck models pull --recommended" in listed
    assert "belongs to" in alone.fails("models", "use", "--recommended", status=2)
    with serving(folder_files(folder)) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        said = alone("models", "pull", "--recommended")
    assert said.index("licence Apache-2.0") < said.index("is in use on cpu")
    (used,) = alone.json("settings", "model_folder").values()
    assert used == str(cpu_home / "models" / "ada--tiny")


def test_daemon_start_waits_for_a_new_source(alone: Shell, cpu_home: Path) -> None:
    alone("daemon", "start")
    told = alone("daemon", "start", "--source", "replay:h100.trace.gz")
    assert "Readings now come from replay:h100.trace.gz" in told
    assert "To end it: gpudeck daemon start --source auto" in told
    assert "gpudeck run" not in alone("jobs")
    seen = alone.json("status")
    assert (seen["source"], {s["device"]["kind"] for s in seen["devices"]}) == (
        "replay of h100.trace.gz",
        {"replay"},
    )
    assert "but it cannot be read: " in alone.fails("daemon", "start", "--source", "nvml"), (
        "there is no GPU here"
    )
    alone("daemon", "start", "--source", "cpu")
    assert alone.json("status")["devices"][0]["device"]["kind"] == "cpu"


@pytest.mark.usefixtures("shared")
def test_the_command_line_is_in_english_on_a_german_desktop(sh: Shell) -> None:
    english = sh("status")
    german = {**os.environ, "LANGUAGE": "de", "LC_ALL": "de_DE.UTF-8", "LANG": "de_DE.UTF-8"}
    done = gpudeck("status", env=german)
    assert done.returncode == 0, done.stderr
    words = re.compile(r"[A-Za-z]{3,}")
    assert words.findall(done.stdout) == words.findall(english)
