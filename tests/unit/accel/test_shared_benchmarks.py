"""Benchmarks that several processes share: cases are claimed once, and one measures alone."""

from __future__ import annotations

import csv
import fcntl
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.benchmarks.rows import merge
from tests.benchmarks.shared_gpu import SharedGpu


def _together(*runs: Callable[[], None]) -> None:
    threads = [threading.Thread(target=run, daemon=True) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "they wait for each other"


def test_each_case_is_claimed_once_and_measured_while_nobody_prepares(tmp_path: Path) -> None:
    lock, busy, done = threading.Lock(), {"preparing": 0, "alone": 0}, []

    def enter(kind: str, by: int) -> None:
        with lock:
            busy[kind] += by
            assert busy["alone"] in (0, 1)
            assert not (busy["alone"] and busy["preparing"])

    def run() -> None:
        gpu = SharedGpu(tmp_path)
        for case in gpu.claimed(range(24)):
            with gpu.preparing():
                enter("preparing", 1)
                time.sleep(0.001)
                for _ in range(2):  # learning, then timing
                    enter("preparing", -1)
                    with gpu.alone():
                        enter("alone", 1)
                        time.sleep(0.001)
                        enter("alone", -1)
                    enter("preparing", 1)
                enter("preparing", -1)
            with lock:
                done.append(case)

    _together(run, run, run, run)
    assert sorted(done) == list(range(24))


def test_nobody_begins_to_prepare_while_another_waits_to_measure(tmp_path: Path) -> None:
    order: list[str] = []
    first = SharedGpu(tmp_path)

    def measure() -> None:
        gpu = SharedGpu(tmp_path)
        with gpu.preparing(), gpu.alone():
            order.append("measured")

    def prepare() -> None:
        gpu = SharedGpu(tmp_path)
        _until_one_waits(tmp_path)
        with gpu.preparing():
            order.append("prepared")

    def hold() -> None:
        with first.preparing():
            _until_one_waits(tmp_path)
            for _ in range(50):  # leaves time for what must not happen
                if not order:
                    time.sleep(0.001)

    _together(hold, measure, prepare)
    assert order == ["measured", "prepared"]


def _until_one_waits(folder: Path) -> None:
    """Return once somebody waits to measure, or 2 s later, as one may have measured already."""
    fd = os.open(folder / "waiting", os.O_RDWR)
    try:
        until = time.monotonic() + 2
        while time.monotonic() < until and not _is_shared(fd):
            time.sleep(0.001)
    finally:
        os.close(fd)


def _is_shared(fd: int) -> bool:
    """Return whether another holds a shared lock: who begins to prepare holds an exclusive one."""
    held = []
    for kind in (fcntl.LOCK_EX, fcntl.LOCK_SH):
        try:
            fcntl.flock(fd, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            held.append(kind)
    fcntl.flock(fd, fcntl.LOCK_UN)
    return held == [fcntl.LOCK_EX]


def test_rows_replace_those_of_the_same_case_and_others_stay(tmp_path: Path) -> None:
    merge("t", [{"a": 1, "us": "5", "old": "y"}, {"a": 2, "us": "6", "old": ""}], ("a",), tmp_path)
    merge("t", [{"a": 2, "us": "7", "new": "x"}, {"a": 2, "us": "8", "new": ""}], ("a",), tmp_path)

    def write(i: int) -> Callable[[], None]:
        return lambda: merge("t", [{"a": i, "us": "0", "new": ""}], ("a",), tmp_path) and None

    _together(*(write(i) for i in range(3, 9)))
    with (tmp_path / "t.csv").open(newline="") as f:
        rows = [(r["a"], r["us"], r["old"], r["new"]) for r in csv.DictReader(f)]
    assert rows[:3] == [("1", "5", "y", ""), ("2", "7", "", "x"), ("2", "8", "", "")]
    assert sorted(rows[3:]) == [(str(i), "0", "", "") for i in range(3, 9)]
    assert [p.name for p in tmp_path.iterdir()] == ["t.csv"]
