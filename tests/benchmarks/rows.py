"""Write rows of measurements as CSV, each with the device, the versions and the date."""

from __future__ import annotations

import csv
import datetime
import fcntl
import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

from tests.benchmarks.code_state import digest_sources, find_commit

RESULTS = Path(__file__).parent / "results"
_RUN = f"{datetime.datetime.now(datetime.UTC):%Y%m%dT%H%M%S}-{os.getpid()}"
"""Names this process: rows are compared with each other only within one run."""


def context(device: str, packages: Sequence[str], measured: Sequence[str] = ()) -> dict[str, str]:
    """Return the columns that describe where, when and with what a row was measured.

    Args:
        device: the name of the GPU or CPU.
        packages: the distributions whose versions matter.
        measured: the folders of the sources that are measured. Their state goes into the row, so
            that the documents can say when a figure belongs to older code.
    """
    versions = " ".join(f"{p}={metadata.version(p)}" for p in packages)
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M"),
        "device": device,
        "python": platform.python_version(),
        "versions": versions,
        "run": _RUN,
        "commit": find_commit(),
        "code": digest_sources(*measured) if measured else "",
    }


def installed(packages: Sequence[str]) -> list[str]:
    """Return those of the distributions that are installed here."""
    there = {d.metadata["Name"] for d in metadata.distributions()}
    return [package for package in packages if package in there]


def spread(samples: Sequence[float]) -> dict[str, float]:
    """Return median, P95, P99, minimum, maximum and count, rounded."""
    ordered = sorted(samples)
    p95, p99 = (ordered[round(share * (len(ordered) - 1))] for share in (0.95, 0.99))
    found = {
        "median": statistics.median(ordered),
        "p95": p95,
        "p99": p99,
        "min": ordered[0],
        "max": ordered[-1],
    }
    return {name: float(f"{value:.5g}") for name, value in found.items()} | {"count": len(ordered)}


def write(name: str, rows: Sequence[Mapping[str, object]], folder: Path = RESULTS) -> Path:
    """Write `rows` (all with the same keys) as NAME.csv, and replace an existing file."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.csv"
    with file.open("w", newline="") as f:
        out = csv.DictWriter(f, fieldnames=list(rows[0]))
        out.writeheader()
        out.writerows(rows)
    return file


def read(file: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV; none where it does not exist."""
    if not file.exists():
        return []
    with file.open(newline="") as lines:
        return list(csv.DictReader(lines))


def merge(
    name: str,
    rows: Sequence[Mapping[str, object]],
    keys: Sequence[str],
    folder: Path = RESULTS,
) -> Path:
    """Write `rows` to NAME.csv instead of those that have the same values of `keys`.

    Several processes may do so at once.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.csv"
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        new = {tuple(str(row[key]) for key in keys) for row in rows}
        kept = [row for row in read(file) if tuple(str(row[key]) for key in keys) not in new]
        columns = dict.fromkeys([column for row in (*kept[:1], rows[0]) for column in row], "")
        return write(name, [{**columns, **row} for row in (*kept, *rows)], folder)
    finally:
        os.close(lock)
