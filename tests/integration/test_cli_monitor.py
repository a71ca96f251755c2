"""Test the commands that show and record the devices."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from gpudeck.scheduler.client import Client
from gpudeck.scheduler.devices import trace
from tests.integration.shell import Shell
from tests.support import eventually


def test_status_shows_the_device_and_why_a_field_is_missing(sh: Shell, shared: Client) -> None:
    out = sh("status")
    assert out.startswith(("CPU is ", "CPU has no job")), "the first line says what is free"
    assert "CPU: no NVIDIA GPU found" in out
    assert "No jobs are waiting or running." in out
    reading = shared.snapshot().devices[0].reading
    assert reading is not None
    assert "TFLOP/s: – (" in out
    found = sh.json("status")
    assert found["devices"][0]["device"]["kind"] == "cpu"
    assert found["devices"][0]["reading"]["values"]["mem_total"] == reading.values["mem_total"]


def test_record_writes_a_trace_that_can_be_read(sh: Shell, tmp_path: Path) -> None:
    out = sh("record", str(tmp_path / "a.trace.gz"), "--seconds", "1.2")
    header, moments = trace.read(tmp_path / "a.trace.gz")
    assert f"{len(moments)} readings" in out
    assert header.devices[0].id == "cpu-0", "it names the kind of device, not this one"
    assert all(not r.processes for m in moments for r in m.readings)
    taken = (tmp_path / "a.trace.gz").read_bytes()
    assert "exists already" in sh.fails("record", str(tmp_path / "a.trace.gz"), "--seconds", "1")
    assert (tmp_path / "a.trace.gz").read_bytes() == taken
    assert "cannot write the trace" in sh.fails(
        "record", str(tmp_path / "no" / "folder"), "--seconds", "1"
    )
    for phases in ("idle", "nope=3", "idle=x", "idle=-1"):
        sh.fails("record", str(tmp_path / "b"), "--phases", phases, status=2)
    assert not (tmp_path / "b").exists()


def test_an_interrupted_recording_reports_what_was_written(cpu_home: Path, tmp_path: Path) -> None:
    file = tmp_path / "a.trace.gz"
    command = [sys.executable, "-P", "-m", "gpudeck", "record", str(file), "--seconds", "600"]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    eventually(file.exists)
    with Client() as deck:
        taken = deck.snapshot().devices[0].reading
        eventually(lambda: deck.snapshot().devices[0].reading.time > taken.time + 1)
    run.send_signal(signal.SIGINT)
    out, err = run.communicate(timeout=30)
    assert (run.returncode, out) == (130, "")
    assert "interrupted: " in err and "replay:" in err and err.count("\n") == 1
    assert f"{len(trace.read(file)[1])} readings" in err


def test_power_limits_need_a_gpu(sh):
    assert "No GPU can be read here" in sh("power")
    assert sh.json("power") == []
    assert "no GPU 0" in sh.fails("power", "0", "300")
    assert "missing limit" in sh.fails("power", "0", status=2)
