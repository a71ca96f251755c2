"""What tests.gpu.sanitize reads in the logs of compute-sanitizer, and when it tells of it."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.benchmarks.rows import merge, read
from tests.gpu import handover, sanitize

BAD_READ = """========= Invalid __global__ read of size 16 bytes
=========     at hopper_forward+0x1a40 in forward.py:300
=========     by thread (3,0,0) in block (1,0,0)
"""
LOG = f"""========= COMPUTE-SANITIZER
begin one
end one: 1.5 0.002 a*2 b*1
begin two
{BAD_READ}end two: 0.2 0.001 a*1
begin three
failed three: ValueError: no such backend
begin fp8 four
end fp8 four: 0.1 0.03 a*1
begin five
end five: 0.1 0.03 a*1
begin six
"""


def test_each_call_of_a_log_has_its_verdict():
    rows = {row["call"]: row for row in sanitize.verdicts("memcheck", LOG)}
    assert {name: row["verdict"] for name, row in rows.items()} == {
        "one": "ok", "two": "errors", "three": "failed", "fp8 four": "ok", "five": "wrong",
        "six": "not finished",
    }  # fmt: skip
    assert rows["one"]["launches"] == 3 and rows["two"]["errors"] == 1
    assert "Invalid __global__ read" in rows["two"]["said"]
    assert "no such backend" in rows["three"]["said"]


@pytest.fixture
def started(monkeypatch):
    """Replace the processes by ones that write a call's log and then hang."""

    def start(tool, names, folder, number):
        log = folder / f"{tool or 'compile'}.{number}"
        code = "import sys, time\nprint(sys.argv[1], end='', flush=True)\ntime.sleep(600)"
        said = "".join(f"begin {n}\nend {n}: 0.1 0.001 a*1\n" for n in names[:1])
        said += f"begin {names[1]}\n" if names[1:] else ""
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-c", code, said], stdout=out, start_new_session=True
            )
        running.append(process)
        return tool, log, process

    running: list[subprocess.Popen[bytes]] = []
    monkeypatch.setattr(sanitize, "started", start)
    return running


def test_a_verdict_is_told_before_the_rest_has_ended_and_none_is_left_out(started):
    stopped = threading.Event()
    rows = []
    for row in sanitize.watched(["one", "two", "three"], ["memcheck"], 1, 600.0, stopped):
        rows.append((row["tool"], row["call"], row["verdict"]))
        if len(rows) == 2:
            assert all(process.poll() is None for process in started)
            stopped.set()
    assert rows == [
        ("none", "one", "ok"), ("memcheck", "one", "ok"),
        ("none", "two", "not finished"), ("memcheck", "two", "not finished"),
        ("memcheck", "three", "not begun"),
    ]  # fmt: skip
    assert all(process.poll() is not None for process in started)


def test_only_the_race_of_a_known_hand_over_is_explained():
    source = handover.__file__
    lines = Path(source).read_text().splitlines()
    write = next(i for i, line in enumerate(lines, 1) if "words.index(i % 2).store" in line)
    read = next(i for i, line in enumerate(lines, 1) if "smem.index(i % 2).load" in line)
    known = sanitize.kind_of(source, str(write), source, str(read))
    assert known.startswith("hand-over: _produce")
    assert sanitize.kind_of(source, str(read), source, str(write)).startswith("race: _consume")


def test_races_that_the_tool_sees_in_the_minimal_kernel_fail_no_other_run():
    pair = (
        "========= Error: Race reported\n"
        "=========     Read Thread (1,0,0) at _consume in handover.py:33\n"
        "=========     Write Thread (160,0,0) at _produce in handover.py:42\n"
    )
    log = "".join(f"begin {name}\n{pair}end {name}: 0.1 0.001 a*1\n" for name in ("control", "one"))
    rows = {row["call"]: row for row in sanitize.verdicts("racecheck", log)}
    assert rows["control"]["verdict"] == "ok" and rows["one"]["verdict"] == "errors"
    assert "race: _consume" in str(rows["control"]["said"])


def test_calls_whose_verdicts_are_oldest_come_first_and_taken_rows_replace_only_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, *_ = sanitize.RUNS
    old = [
        {"tool": "memcheck", "call": name, "verdict": "ok", "date": date}
        for name, date in ((name, "2026-01-02") for name in sanitize.RUNS)
    ]
    merge("sanitizer", old, ("tool", "call"), tmp_path)
    monkeypatch.setattr(sanitize, "RESULTS", tmp_path)
    new = [
        {"tool": "memcheck", "call": first, "verdict": "errors", "date": "2026-02-03"},
        {"tool": "memcheck", "call": second, "verdict": "not finished", "date": "2026-02-03"},
    ]
    taken = merge("sanitizer", new, ("tool", "call"), tmp_path / "other")
    monkeypatch.setattr(sys, "argv", ["sanitize", "--take", str(taken), "--out", str(tmp_path)])
    assert sanitize.main() == 0
    rows = {row["call"]: row["verdict"] for row in read(tmp_path / "sanitizer.csv")}
    assert (rows[first], rows[second], len(rows)) == ("errors", "ok", len(sanitize.RUNS))
    assert sanitize.calls()[-1] == first and sanitize.calls()[0] == second
