"""`gpudeck search` and the workload `search`, as people use them."""

import json
import math
import os
import subprocess
import sys

import pytest

from gpudeck.accel import result as results
from gpudeck.accel.search import installed
from gpudeck.accel.search.journal import Entry, Journal, Problem
from gpudeck.accel.search.verdict import decode, encode
from gpudeck.accel.workloads import search
from gpudeck.accel.workloads.harness import serve
from gpudeck.app.cli.main import main
from tests.unit.accel.search.test_declared import TEXT
from tests.unit.accel.search.test_search import verdict

KERNEL = "import torch\n\ndef candidate(x):\n    return torch.softmax(x, -1)\n"


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUDECK_HOME", str(tmp_path / "home"))


@pytest.mark.slow
def test_the_workload_leaves_a_result_that_names_the_configuration(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("GPUDECK_RESULT", str(tmp_path / "result.json"))
    argv = ["--task=gelu", "--rows=32", "--columns=64", "--minutes=0.02", "--seconds=0.3"]
    assert serve("search", search.work, argv) == 0
    found = results.read((tmp_path / "result.json").read_bytes())
    assert str(found.verdict) == "pass" and found.backend.startswith("block ")
    assert found.checks[0].passed and found.timing.count > 20
    assert str(found.reason).startswith("correct")
    assert json.loads(capsys.readouterr().out.splitlines()[0])["gpudeck"] == "progress"


def test_a_saved_verdict_is_installed_listed_and_removed(tmp_path, capsys):
    file = tmp_path / "verdict.json"
    file.write_bytes(encode(verdict(1.5, source=KERNEL)))
    assert main(["search", "install", str(file)]) == 0
    (kernel,) = installed.installed()
    copy = installed.kernel_file(kernel.digest)
    assert kernel.source.place == str(copy) and copy.read_text() == KERNEL
    assert f"gpudeck search remove {kernel.name}" in capsys.readouterr().out
    assert main(["search", "list"]) == 0
    assert kernel.name in capsys.readouterr().out
    assert main(["search", "remove", kernel.name]) == 0
    assert installed.installed() == [] and not copy.exists()


def test_a_verdict_with_infinite_numbers_is_read_again():
    """As of a winner that was refused after few rounds, or whose result was not finite."""
    few = decode(encode(verdict(-math.inf)))
    assert few.race.speedup.low < -1e300 and not few.is_faster
    assert decode(encode(verdict(1.5))) == verdict(1.5)


def test_a_search_is_shown_with_its_best_over_time_and_why_others_were_refused(capsys):
    problem = Problem("softmax", "t", {"rows": 64}, "float32", "card", "torch 2")
    assert main(["search", "show"]) == 0
    assert "Nothing was searched" in capsys.readouterr().out
    with Journal(problem) as journal:
        journal.add(Entry({"block": 1}, "timed", 9.0, seconds=2.0, by="sample"))
        journal.add(Entry({"block": 2}, "pruned", why="spilled 8", seconds=1.0, by="sample"))
        journal.add(Entry({"block": 4}, "timed", 9.5, seconds=1.0, by="surrogate"))
        journal.add(Entry({"block": 8}, "timed", 5.0, seconds=1.5, by="endpoint"))
    assert main(["search", "show"]) == 0
    assert problem.name in capsys.readouterr().out
    assert main(["search", "show", problem.name]) == 0
    progress, variants = capsys.readouterr().out.split("OUTCOME")
    assert [line.split() for line in progress.splitlines()[2:4]] == [
        ["2.0", "9.0", "sample", "block=1"], ["5.5", "5.0", "endpoint", "block=8"]
    ]  # fmt: skip
    assert "spilled 8" in variants.splitlines()[-1]
    assert main(["search", "show", problem.name, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["entries"][3]["by"] == "endpoint"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["judge"], "judge needs a TARGET"),
        (["judge", "x.py"], "judge needs --task"),
        (["judge", "missing.py", "--task", "softmax"], "there is no file missing.py"),
        (["tune", "missing.py"], "there is no file missing.py"),
        (["tune", "nested.json", "--size", "rows=4"], "nested.json declares its sizes itself"),
        (["install", "missing.json"], "cannot read missing.json: No such file or directory"),
        (["install", "."], "cannot read .: Is a directory"),
        (["install", "/dev/zero"], "cannot read /dev/zero: it has over 16 MiB"),
        (["install", "/proc/self/mem"], "cannot read /proc/self/mem: Input/output error"),
        (["install", "nested.json"], "nested.json is no verdict"),
        (["remove", "nothing"], "no kernel is called nothing"),
        (["show", "nothing"], "no search is called nothing"),
    ],
)
def test_errors_are_one_line_that_says_what_to_do(argv, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nested.json").write_text('{"a":' * 100_000)
    assert main(["search", *argv]) != 0
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (["--size", "rows"], "expected a whole number"),
        (["--size", "rows=0"], "expected a whole number, 1 or more"),
        (["--seed", str(2**64)], "expected a whole number below 2^63"),
        (["--seconds", "nan"], "expected a number of seconds, above 0"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(option, message, capsys):
    with pytest.raises(SystemExit):
        main(["search", "judge", "x.py", "--task", "softmax", *option])
    assert message in capsys.readouterr().err


def test_what_is_no_verdict_or_not_faster_is_not_installed(tmp_path, capsys):
    file = tmp_path / "verdict.json"
    file.write_text("{}")
    assert main(["search", "install", str(file)]) != 0
    assert "is no verdict" in capsys.readouterr().err
    file.write_bytes(encode(verdict(1.0)))
    assert main(["search", "install", str(file)]) != 0
    assert "only a kernel that is judged faster" in capsys.readouterr().err
    assert installed.installed() == []


@pytest.mark.slow
def test_a_file_is_judged_in_a_program_of_its_own(tmp_path):
    file, record = tmp_path / "kernel.py", tmp_path / "verdict.json"
    file.write_text(KERNEL)
    command = [sys.executable, "-m", "gpudeck", "search", "judge", str(file), "--task=softmax",
               "--size=rows=64", "--size=columns=64", "--seconds=1", "--no-compile",
               f"--save={record}"]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 1 and "refused: it has a library compute" in ran.stdout
    ran = subprocess.run(
        [*command, "--library"], env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert decode(record.read_bytes()).source == KERNEL


def test_a_declared_kernel_is_searched_by_the_command(tmp_path, capsys):
    file = tmp_path / "kernel.py"
    file.write_text(TEXT)
    options = ["--search-seconds=1", "--seconds=0.5", "--no-compile"]
    assert main(["search", "tune", str(file), *options]) == 0
    said = capsys.readouterr().out
    assert "correct" in said and "block=" in said and "wrong=0" in said
    file.write_text(TEXT.replace("SPACE", "SPICE"))
    assert main(["search", "tune", str(file)]) != 0
    assert "has no SPACE" in capsys.readouterr().err


def test_a_task_of_the_catalog_is_searched_by_the_command(capsys):
    options = ["--size=rows=16", "--size=columns=32", "--search-seconds=1", "--seconds=0.5"]
    assert main(["search", "tune", "row_sum", "--no-compile", *options]) == 0
    said = capsys.readouterr().out
    assert "correct" in said and "block=" in said and "rows=16 columns=32" in said
