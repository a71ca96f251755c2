"""Install the wheel and each of its parts into an empty environment, and use it as its users would.

Every command runs in a folder with files that a training project may well have, whose names are
those of our packages, and beside a package of PyPI that is called like one of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support import state_folder

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("installed")]
THEIRS = ("scheduler.py", "app.py", "assistant.py", "accel/__init__.py", "assets/x", "tests/x.py")
ATTENTION = """
import torch
from gpudeck import accel
q, k, v = (torch.randn(1, 2, 24, 16, requires_grad=True) for _ in range(3))
accel.attention(q, k, v, causal=True).sum().backward()
expected = q.grad.clone()
q.grad = None
torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward()
torch.testing.assert_close(q.grad, expected)
print(accel.__file__)
"""
QUEUE = """
import gpudeck, scheduler
assert scheduler.MINE
job = gpudeck.submit(["echo", "by Python"]).wait(60)
print(gpudeck.__file__, job.status, job.log().decode().strip())
"""
WINDOW = """
import threading
from PySide6.QtCore import QMetaObject, Qt
from PySide6.QtWidgets import QApplication
from gpudeck.app.shell.main import run
def end():
    print(*(type(w).__name__ for w in QApplication.topLevelWidgets() if w.isVisible()), flush=True)
    QMetaObject.invokeMethod(QApplication.instance(), "quit", Qt.ConnectionType.QueuedConnection)
threading.Timer(8, end).start()
print("status", run())
"""


class Environment(NamedTuple):
    """An environment with GPU Deck, and the folder in which commands run."""

    folder: Path
    project: Path

    def run(self, *words: str, status: int = 0) -> str:
        """Run a program of the environment; return all that it prints."""
        done = subprocess.run(
            [str(self.folder / "bin" / words[0]), *words[1:]],
            cwd=self.project, env={**os.environ, "QT_QPA_PLATFORM": "offscreen"},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=500, check=False,
        )  # fmt: skip
        assert done.returncode == status, done.stdout
        return done.stdout

    def packages(self) -> set[str]:
        """Return the names of all installed packages."""
        lines = self.run("python", "-m", "pip", "list", "--format", "freeze").splitlines()
        return {line.partition("==")[0].lower() for line in lines}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel of this checkout."""
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder), "."]
    subprocess.run(build, cwd=ROOT, check=True, timeout=300)
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture
def environment(
    wheel: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Environment]:
    """Install a part of the wheel with what it needs, and PyPI's package `scheduler` after it."""
    project = tmp_path / "project"
    for name in THEIRS:
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("MINE = True\n")
    found = Environment(tmp_path / "environment", project)
    venv.create(found.folder, with_pip=True)
    install = ("python", "-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt"))
    found.run(*install, f"{wheel}{request.param}")
    found.run("python", "-m", "pip", "install", "--quiet", "--no-deps", "scheduler")
    with state_folder(tmp_path / "home"):
        yield found


@pytest.mark.timeout(900)
@pytest.mark.parametrize("environment", [""], indirect=True)
def test_without_parts_it_is_a_queue_and_a_monitor(environment: Environment) -> None:
    assert not {"torch", "triton", "numba", "babel", "uvicorn"} & environment.packages()
    assert not [name for name in environment.packages() if name.startswith("pyside")]
    assert "CPU" in environment.run("gpudeck", "status")
    assert "done" in environment.run("gpudeck", "submit", "--wait", "--", "true")
    place, *said = environment.run("python", "-c", QUEUE).split(maxsplit=1)
    assert place.startswith(str(environment.folder))
    assert said == ["done by Python\n"]
    assert "gpudeck_snapshot" in environment.run("gpudeck", "metrics", "--once")
    assert "submit" in environment.run("gpudeck", "completion", "bash")
    environment.run("gpudeck", "doctor")
    for words, part, status in (
        (("ask", "hello"), "assistant", 1), (("run", "attention"), "compute", 2),
        (("tour",), "window", 1), ((), "window", 1), (("mcp",), "mcp", 1),
    ):  # fmt: skip
        (line,) = environment.run("gpudeck", *words, status=status).splitlines()
        python = environment.folder / "bin" / "python"
        assert f"{python} -m pip install 'gpudeck[{part}]'" in line


@pytest.mark.timeout(900)
@pytest.mark.parametrize("environment", ["[window]"], indirect=True)
def test_the_window_opens_without_torch(environment: Environment) -> None:
    assert "torch" not in environment.packages()
    said = environment.run("python", "-c", WINDOW)
    assert "MainWindow" in said
    assert said.endswith("status 0\n")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("environment", ["[compute]"], indirect=True)
def test_attention_has_gradients_without_qt(environment: Environment) -> None:
    assert not [name for name in environment.packages() if name.startswith(("pyside", "uvicorn"))]
    said = environment.run("python", "-c", ATTENTION)
    assert said.startswith(str(environment.folder))
    assert "done" in environment.run("gpudeck", "run", "attention", "seq=64", "--wait")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("environment", ["[assistant]"], indirect=True)
def test_the_assistant_answers(environment: Environment) -> None:
    environment.run("gpudeck", "submit", "--wait", "--name", "mine", "--", "true")
    assert "mine" in environment.run("gpudeck", "ask", "which jobs ended today?")
    assert "No model is in use" in environment.run("gpudeck", "models")
