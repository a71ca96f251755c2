"""Test the commands that run workloads and print their results."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from tests.integration.shell import Shell

COMPARE = (
    "seq=16,32",
    "head_dim=8",
    "heads=2",
    "causal=both",
    "direction=both",
    "backends=auto,flash,math,cudnn",
    "seconds=0.1",
)


def test_run_takes_parameters_and_prints_the_result(sh: Shell, tmp_path: Path) -> None:
    out = sh("run", "gemm", "size=16", "--wait", "seconds=0.1")  # in any order
    assert "TFLOP/s" in out
    assert "pass" in out
    job = sh.json("jobs", "--limit", "1")[0]
    assert job["spec"]["workload"] == "gemm"
    assert job["spec"]["params"]["size"] == "16"
    assert job["state"]["devices"] == ["cpu"], "the job holds the device"
    assert job["state"]["result"]["params"]["size"] == 16
    number = str(job["id"])
    assert sh("results", number).splitlines()[-1].startswith("pass: relative error")
    assert "must end with .csv or .json" in sh.fails(
        "results", number, "--out", str(tmp_path / "x.txt"), status=1
    )
    assert "cannot write" in sh.fails(
        "results", number, "--out", str(tmp_path / "no" / "x.csv"), status=1
    )


def test_workloads_and_their_parameters_are_listed(sh: Shell) -> None:
    assert "linear_attention  Attention whose memory" in sh("run")
    rows = [line.split(maxsplit=2) for line in sh("run", "gemm", "--list").splitlines()]
    assert [row[0] for row in rows[1:]] == ["size", "dtype", "backend", "seconds"]
    assert rows[2][1] == "float32", "the default of a machine without a GPU"
    assert "bfloat16, float16, float32" in rows[2][2], "what it may be"


def test_a_parameter_without_a_meaning_is_refused(sh: Shell) -> None:
    said = sh.fails("run", "compare", "operation=gemm", "seq=64", status=2)
    assert "gemm takes no seq. It takes: operation, sizes" in said


def test_results_of_a_job_without_a_result_is_an_error(sh: Shell) -> None:
    plain = str(sh.json("submit", "--wait", "--", "true")["id"])
    assert "left no result" in sh.fails("results", plain, status=1)


@pytest.mark.slow
def test_a_comparison_is_printed_and_written_as_csv_and_json(sh: Shell, tmp_path: Path) -> None:
    out = sh("run", "compare", *COMPARE, "--wait")
    assert "pass" in out and "all 32 cells: gpudeck results " in out
    number = out.split()[-1]
    table = sh("results", number)
    assert table.splitlines()[1].split() == ["TFLOP/s", "auto", "flash", "math", "cudnn"]
    assert (
        "backward, d 8, S 32, causal" in table
        and "cudnn: cannot do this: it needs a CUDA GPU" in table
    )
    whole = sh.json("results", number)
    assert len(whole["cells"]) == 32 and whole["verdict"] == "pass"
    for name in ("grid.csv", "grid.json"):
        assert name in sh("results", number, "--out", str(tmp_path / name))
    rows = list(csv.DictReader(io.StringIO((tmp_path / "grid.csv").read_text())))
    assert [row["contender"] for row in rows[:4]] == ["auto", "flash", "math", "cudnn"] and len(
        rows
    ) == 32
    assert json.loads((tmp_path / "grid.json").read_text()) == whole


def test_validation_prints_a_verdict(sh: Shell) -> None:
    out = sh("run", "validate", "seq=16", "head_dim=8", "trials=3", "inputs=outliers", "--wait")
    assert "pass" in out
    said = sh("results", out.split()[-1])
    assert "trials failed" in said and "backward, d 8, S 16, causal" in said


@pytest.mark.slow
def test_tuning_is_stored_in_the_state_folder(sh: Shell, shared_home: Path) -> None:
    sh("run", "tune", "seq=16", "head_dim=8", "seconds=0.1", "--wait")
    assert (shared_home / "attention.csv").read_text().count("\n") == 1 + 8


def test_results_of_any_job_are_what_it_left_or_printed(sh: Shell) -> None:
    job = str(sh.json("submit", "--wait", "--", "echo", "step=3 loss=0.5")["id"])
    assert sh("results", job).split("\n") == ["step 3.0", "loss 0.5", ""]
    assert sh.json("results", job) == {"step": 3.0, "loss": 0.5}
    assert "--json > FILE" in sh.fails("results", job, "--out", "x.csv", status=1)
