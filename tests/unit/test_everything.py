"""The table of what takes long: rows of another machine are taken over whole or not at all."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from tests.everything import take

ROW = {
    "target": "gpu",
    "outcome": "failed (1)",
    "seconds": "1500",
    "last": "20 of 21 steps passed",
    "date": "2026-11-26 18:40",
    "device": "NVIDIA H100, 16 processors",
    "commit": "0123456789",
}


def file_of(folder: Path, *rows: dict[str, str]) -> Path:
    file = folder / "theirs.csv"
    with file.open("w", newline="") as opened:
        writer = csv.DictWriter(opened, list(ROW))
        writer.writeheader()
        writer.writerows(rows)
    return file


def test_a_row_of_another_machine_replaces_ours(tmp_path: Path) -> None:
    log = tmp_path / "log.md"
    ours = [
        ROW | {"outcome": "passed", "commit": "old"},
        ROW | {"target": "lint", "commit": "kept"},
    ]
    take(file_of(tmp_path, *ours), tmp_path, log)
    take(file_of(tmp_path, ROW), tmp_path, log)
    lines = log.read_text().splitlines()
    gpu = next(line for line in lines if line.startswith("| `make gpu`"))
    assert "failed (1) | 1500 s | 20 of 21 steps passed | 0123456789 | 2026-11-26 18:40" in gpu
    assert gpu.endswith("| NVIDIA H100, 16 processors |")
    assert "kept" in next(line for line in lines if line.startswith("| `make lint`"))
    assert "not run" in next(line for line in lines if line.startswith("| `make matrix`"))


@pytest.mark.parametrize(
    ("wrong", "said"), [({"target": "none"}, "no target 'none'"), ({"commit": ""}, "lacks commit")]
)
def test_a_row_that_says_too_little_changes_nothing(
    tmp_path: Path, wrong: dict[str, str], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        take(file_of(tmp_path, ROW, ROW | wrong), tmp_path, tmp_path / "log.md")
    assert not (tmp_path / "everything.csv").exists() and not (tmp_path / "log.md").exists()
