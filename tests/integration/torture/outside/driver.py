"""Run campaigns from the outside beside each other, and report what they found as one table."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from tests.benchmarks.rows import context, merge
from tests.integration.torture.outside.verdict import CLASSES
from tests.integration.torture.outside.world import namespaces

CHUNK = 125
"""Faults of one campaign, which has a state folder of its own."""
SHOWN_S = 15.0
"""Seconds between two lines of progress."""


class Tally:
    """Count the faults that strike in all campaigns, and show the progress."""

    def __init__(self, wanted: int) -> None:
        self._wanted, self._struck = wanted, 0
        self._started = self._shown = time.monotonic()
        self._lock = threading.Lock()

    def count(self) -> None:
        """Count a fault."""
        with self._lock:
            self._struck += 1
            if time.monotonic() - self._shown > SHOWN_S:
                self._shown = time.monotonic()
                self.show(f"{self._struck} of {self._wanted} faults")

    def show(self, text: str) -> None:
        """Print a line with the time since the start."""
        print(f"{time.monotonic() - self._started:6.0f} s  {text}", flush=True)


def run(seed: int, faults: int) -> int:
    """Run campaigns until so many faults have struck, and return the exit status."""
    if not (apart := namespaces()):
        print("LEFT OUT: full and failing disks, power cuts, new boots: they need root", flush=True)
    sizes = [len(range(start, min(start + CHUNK, faults))) for start in range(0, faults, CHUNK)]
    tally, outcomes = Tally(faults), []
    keep = Path(tempfile.mkdtemp(prefix="torture-"))
    with ThreadPoolExecutor(min(4, 2 * (os.cpu_count() or 1))) as pool:
        waiting = [
            pool.submit(_campaign, seed + number, size, keep, apart, tally)
            for number, size in enumerate(sizes)
        ]
        for done in as_completed(waiting):
            outcomes.append(done.result())
            for what, line in outcomes[-1]["violations"]:
                tally.show(f"{what}: {line}")
    return _report(outcomes, seed)


def _campaign(seed: int, size: int, keep: Path, apart: list[str], tally: Tally) -> dict[str, Any]:
    """Run one campaign as a process, and return its outcome."""
    folder = keep / str(seed)
    command = [
        *(*apart, sys.executable, "-m", "tests.integration.torture.outside", folder),
        *("--seed", seed, "--faults", size, "--keep", keep / f"{seed}-found"),
        *(["--apart", "--disk"] if apart else []),
    ]
    with subprocess.Popen(
        list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        found = {"faults": {}, "violations": []}
        for values in _lines(process):
            if "struck" in values:
                tally.count()
            else:
                found = values
        assert process.stderr is not None
        if process.wait():
            found["violations"].append(
                ("campaigns that broke off", f"seed {seed}: {process.stderr.read()[-3000:]}")
            )
    shutil.rmtree(folder, ignore_errors=True)
    return found


def _lines(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert process.stdout is not None
    for line in process.stdout:
        yield json.loads(line)


def _report(outcomes: list[dict[str, Any]], seed: int) -> int:
    """Print the table, write its rows, and return the exit status."""
    faults = sum((Counter(o["faults"]) for o in outcomes), Counter[str]())
    ends = sum((Counter(o.get("ends", {})) for o in outcomes), Counter[str]())
    broken = Counter(what for o in outcomes for what, _ in o["violations"])
    sums = {
        "jobs acknowledged": "acknowledged",
        "runs that jobs recorded": "runs",
        "submissions repeated": "repeated",
        "submissions given up": "refused",
        "of these, jobs that ran": "unclear_and_run",
        "jobs gone with a damaged store or disk": "vanished",
    }
    counts = {
        **dict(sorted(faults.items())),
        "faults in all": faults.total(),
        **{name: sum(o.get(key, 0) for o in outcomes) for name, key in sums.items()},
        **{f"jobs that ended as {end}": count for end, count in sorted(ends.items())},
        **{what: broken.pop(what, 0) for what in CLASSES},
        **broken,
    }
    where = context(
        f"{os.cpu_count()} cores, {os.uname().sysname} {os.uname().release.split('-')[0]}",
        ["msgspec"],
    )
    for name, count in counts.items():
        print(f"{name:50} {count:7}")
    rows = [
        {"count of": name, "count": count, "seed": seed, **where} for name, count in counts.items()
    ]
    print(merge("torture_outside", rows, ("count of", "seed")))
    return int(any(o["violations"] for o in outcomes))
