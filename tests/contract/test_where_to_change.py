"""The table "Where would I change …?" of CONTRIBUTING names files that exist and hold its names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_CODE = re.compile(r"`([^`]+)`")
_NAMES_OF_OTHERS = ("auto", "accel.flex_attention", "log_limit", "tr(…)", "phrase(…)", "de.po")
"""What a row mentions without being in its files under this name."""


def rows() -> list[tuple[str, str]]:
    """Return each task with the cell that names its files."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text.split("## Where would I change …?")[1].split("|---|---|\n")[1].split("\n\n")[0]
    return [tuple(line.strip("| ").split(" | ", 1)) for line in table.splitlines()]  # type: ignore[misc]


def named_files(files: str) -> list[Path]:
    """Return the files and folders that a cell names."""
    paths = [code for code in _CODE.findall(files) if "/" in code or code.endswith(".po")]
    found = []
    for path in paths:
        folder = "language/catalogues" if path in ("fr.po", "es.po") else ""
        found.append(ROOT / folder / path.split("…")[0])
    return found


@pytest.mark.parametrize(("task", "files"), rows(), ids=lambda value: value[:40])
def test_the_files_of_a_task_exist_and_hold_what_the_row_names(task: str, files: str) -> None:
    paths = named_files(files)
    assert paths, task
    for path in paths:
        assert path.exists(), f"{task}: {path.relative_to(ROOT)}"
    source = "".join(
        file.read_text(encoding="utf-8", errors="replace")
        for path in paths
        for file in (path.rglob("*.py") if path.is_dir() else (path,))
    )
    for name in _CODE.findall(f"{task} {files}"):
        if re.fullmatch(r"[A-Za-z_]{3,}", name) and name not in _NAMES_OF_OTHERS:
            assert re.search(rf"\b{name}\b", source), f"{task}: {name} is in none of its files"
