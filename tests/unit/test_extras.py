"""A part that is missing is named with the command that fits the environment."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from gpudeck import extras

ROOT = Path(__file__).parents[2]
CODE = "from gpudeck.extras import Missing; print(Missing('torch', 'compute').command)"


def command_in(folder: Path, *options: str) -> str:
    """Return the command in a new environment."""
    subprocess.run([sys.executable, "-m", "venv", *options, str(folder)], check=True, timeout=100)
    done = subprocess.run(
        [str(folder / "bin" / "python"), "-c", CODE],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.strip()


def test_the_command_is_one_of_the_tool_that_made_the_environment(tmp_path: Path) -> None:
    python = tmp_path / "bare" / "bin" / "python"
    assert command_in(tmp_path / "bare", "--without-pip") == (
        f"uv pip install -p {python} 'gpudeck[compute]'"
    )
    (tmp_path / "bare" / "pipx_metadata.json").touch()
    assert (
        command_in(tmp_path / "bare", "--without-pip") == "pipx inject gpudeck 'gpudeck[compute]'"
    )
    assert extras.Missing("mcp", "mcp").command == f"{sys.executable} -m pip install 'gpudeck[mcp]'"


@pytest.mark.parametrize(
    ("module", "extra"), [("torch.nn", "compute"), ("PySide6.QtCore", "window"), ("nope", None)]
)
def test_an_import_that_failed_is_told_by_its_package(module: str, extra: str | None) -> None:
    found = extras.missing_by(ModuleNotFoundError(f"No module named {module!r}", name=module))
    assert (found and found.extra) == extra


def test_what_is_installed_is_not_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert extras.missing_of("window", "compute", "assistant") is None
    monkeypatch.setitem(extras.EXTRAS, "compute", ("torch", "no_such_package"))
    missing = extras.missing_of("window", "compute")
    assert missing == ("no_such_package", "compute")
    assert str(missing).startswith("no_such_package is not installed. Install the part “compute”")


def test_all_brings_every_part() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (brought,) = project["optional-dependencies"]["all"]
    assert {*extras.PARTS} - {"compute"} == {*brought[len("gpudeck[") : -1].split(",")}
