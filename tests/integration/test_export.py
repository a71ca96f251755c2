"""The history as files, by the command line, from a real daemon."""

from __future__ import annotations

import csv
import sys
import time
from pathlib import Path

import pytest

from gpudeck.app.cli.main import main
from gpudeck.app.report.recording import write_recording
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.devices import trace
from gpudeck.scheduler.devices.trace import ReplaySource
from gpudeck.scheduler.protocol import settings
from gpudeck.scheduler.protocol.devices import Device
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.protocol.snapshot import Columns
from tests.support import eventually, state_folder


@pytest.fixture(scope="module")
def deck(tmp_path_factory):
    """A daemon that has read this machine's CPU a few times."""
    with state_folder(tmp_path_factory.mktemp("export") / "home"):
        settings.save(Settings(source="cpu", telemetry_hz=10.0))
        with Client() as client:
            eventually(lambda: len(client.history("cpu", ["util"], 0.0).times) > 5)
            yield client


def test_a_csv_holds_what_was_read(
    deck: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "x.csv"
    assert (
        main(
            [
                "export",
                "--device",
                "0",
                "--since",
                "2h",
                "--fields",
                "util,mem_used,temp",
                "--out",
                str(file),
            ]
        )
        == 0
    )
    with file.open() as f:
        rows = list(csv.DictReader(f))
    assert capsys.readouterr().out == f"Wrote {len(rows)} rows to {file}.\n"
    told = deck.history(
        "cpu",
        ["util", "mem_used"],
        float(rows[0]["seconds"]) - 1e-3,
        float(rows[-1]["seconds"]) + 1e-3,
    )
    assert [round(t, 3) for t in told.times] == [float(row["seconds"]) for row in rows]
    assert [float(row["mem_used"]) for row in rows] == told.columns["mem_used"]
    assert all(row["util"] == row["util_low"] == row["util_high"] for row in rows)
    assert {row["device"] for row in rows} == {"CPU"}
    stamp = time.strptime(rows[0]["time"], "%Y-%m-%dT%H:%M:%S%z")
    assert abs(time.mktime(stamp) - float(rows[0]["seconds"])) < 1


def test_parquet_holds_the_same(deck: Client, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    file = tmp_path / "x.parquet"
    assert main(["export", "--points", "3", "--out", str(file)]) == 0
    table = parquet.read_table(file)
    assert 0 < table.num_rows <= 3
    assert set(deck.fields("cpu", 0.0)) <= set(table.column_names)
    assert all(row["util_low"] <= row["util"] <= row["util_high"] for row in table.to_pylist())


def test_a_recording_of_the_past_is_replayed_as_it_was(deck: Client, tmp_path: Path) -> None:
    file = tmp_path / "incident.trace.gz"
    for _ in range(2):  # a file that the user chose again is replaced
        assert main(["export", "--since", "1h", "--out", str(file)]) == 0
    header, moments = trace.read(file)
    assert [device.kind for device in header.devices] == ["cpu"]
    begin, end = moments[0].time, moments[-1].time
    told = deck.history("cpu", ["util", "mem_used"], begin - 1e-3, end + 1e-3)
    assert [moment.time for moment in moments] == told.times
    read = [moment.readings[0].values["mem_used"] for moment in moments]
    assert read == told.columns["mem_used"]
    source = ReplaySource(file, start=1000.0)
    (device,) = source.devices()
    assert (device.kind, device.name) == ("replay", f"REPLAY {header.devices[0].name}")
    (reading,) = source.read(1000.0 + moments[3].time - begin)
    assert reading.values["mem_used"] == read[3]


def test_a_recording_holds_every_value_also_0(tmp_path: Path) -> None:
    file, cpu = tmp_path / "x.trace.gz", Device("cpu", 0, "EPYC", "cpu")
    write_recording(
        file, [(cpu, Columns([1.0, 2.0], {"util": [0.0, None], "temp": [40.0, 41.0]}))], ()
    )
    _, moments = trace.read(file)
    found = [dict(moment.readings[0].values) for moment in moments]
    assert found == [{"util": 0.0, "temp": 40.0}, {"temp": 41.0}]


@pytest.mark.usefixtures("deck")
@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--out", "x.xls"], "must end with .csv, .parquet or .trace.gz"),
        (["--device", "7", "--out", "x.csv"], "there is no device 7"),
        (["--fields", "utilisation", "--out", "x.csv"], "unknown field utilisation"),
        (["--since", "20h", "--until", "19h", "--out", "x.csv"], "there are no readings"),
        (["--out", "/proc/x.csv"], "cannot write /proc/x.csv"),
    ],
)
def test_an_export_error_is_one_line(argv, words, capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["export", *argv]) == 1
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("deck")
def test_without_its_package_parquet_names_the_extra(capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert main(["export", "--out", str(tmp_path / "x.parquet")]) == 1
    assert "pip install 'gpudeck[parquet]'" in capsys.readouterr().err


def test_a_job_stands_on_the_time_axis_of_its_device(deck: Client) -> None:
    before = time.time()
    job = deck.wait(deck.submit(["true"], name="quick", gpus=1).id)
    (span,) = [a for a in deck.annotations(before) if a.kind == "job"]
    assert (span.job, span.device, str(span.text)) == (job.id, "cpu", f"job {job.id} (quick): done")
    assert before <= span.time <= span.until <= time.time()
    assert deck.annotations(0.0, before - 1) == ()
