"""Test that the wheel holds what the program needs at run time, and no training."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.distribution import installed_files, installed_name

ROOT = Path(__file__).parents[2]
IMPORT_ALL = """
import importlib, importlib.util, pkgutil, sys
names = []
missing = () if importlib.util.find_spec("jax") else ("gpudeck.accel.jax",)  # an extra
for room in ("assistant", "accel", "scheduler"):
    package = importlib.import_module(f"gpudeck.{room}")
    assert package.__file__.startswith(sys.argv[1]), package.__file__
    names += [n.name for n in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]
for name in names:
    if not name.endswith("__main__") and not name.startswith(missing):
        importlib.import_module(name)
print(*names)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Lay out the files of the wheel as pip installs them."""
    folder = tmp_path_factory.mktemp("site-packages")
    build = [sys.executable, "setup.py", "--quiet", "build_py", "--build-lib", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, timeout=100)
    return folder


def test_it_holds_every_file_that_is_needed_and_no_other(installed: Path) -> None:
    found = {str(file.relative_to(installed)) for file in installed.rglob("*") if file.is_file()}
    wanted = {installed_name(file) for file in installed_files()}
    assert found == wanted, f"`make dist` says more; missing: {sorted(wanted - found)}"
    assert not [name for name in found if "assistant/training/" in name or "confusion" in name]


@pytest.mark.slow
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
    assert {"gpudeck.assistant.workloads.rain", "gpudeck.assistant.host.server"} <= set(
        found.stdout.split()
    )


def test_random_machines_are_drawn_from_the_shipped_recording(installed: Path) -> None:
    code = (
        "from random import Random; from gpudeck.assistant.workloads.random_machines import *\n"
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
    assert recording.startswith(str(installed / "gpudeck" / "assets"))
