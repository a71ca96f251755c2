"""Test that the wheel holds what the program needs at run time, and no training."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WHEEL = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"][
    "wheel"
]
IMPORT_ALL = """
import importlib, importlib.util, pkgutil, sys
names = []
missing = () if importlib.util.find_spec("jax") else ("accel.jax",)  # an extra
for room in ("assistant", "accel", "scheduler"):
    package = importlib.import_module(room)
    assert package.__file__.startswith(sys.argv[1]), package.__file__
    names += [found.name for found in pkgutil.walk_packages(package.__path__, f"{room}.")]
for name in names:
    if not name.endswith("__main__") and not name.startswith(missing):
        importlib.import_module(name)
print(*names)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the files that the wheel's configuration includes to where a wheel installs them."""
    folder = tmp_path_factory.mktemp("site-packages")
    excluded = {ROOT / path.lstrip("/") for path in WHEEL["exclude"]}

    def left_out(parent: str, names: list[str]) -> set[str]:
        return {name for name in names if name == "__pycache__" or Path(parent, name) in excluded}

    for package in WHEEL["packages"]:
        shutil.copytree(ROOT / package, folder / package, ignore=left_out)
    for source, target in WHEEL["force-include"].items():
        if (ROOT / source).is_dir() and "/" not in target:  # the documents are not needed here
            (folder / target).symlink_to(ROOT / source)
    return folder


def test_training_is_not_in_the_wheel_and_the_words_of_the_intents_are(installed: Path) -> None:
    assert not (installed / "assistant" / "training").exists()
    assert (installed / "assistant" / "intents" / "words.txt").is_file()
    assert (installed / "assistant" / "py.typed").is_file()


def test_every_other_module_imports_without_training(installed: Path) -> None:
    found = subprocess.run(
        [sys.executable, "-P", "-c", IMPORT_ALL, str(installed)],
        cwd="/",
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    assert {"assistant.workloads.rain", "assistant.host.server"} <= set(found.stdout.split())


def test_random_machines_are_drawn_from_the_shipped_recording(installed: Path) -> None:
    code = (
        "from random import Random; from assistant.workloads.random_machines import *\n"
        "print(len(random_facts(Random(1), recorded=True)), TRACE)"
    )
    found = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd="/",
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    count, recording = found.stdout.split()
    assert int(count) > 5, found.stderr
    assert recording.startswith(str(installed / "gpudeck_assets"))
