"""The import rules hold, and a violation of any of them is caught; what must be cheap to import is cheap."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PACKAGES = ("app", "accel", "assistant", "scheduler")


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """import-linter on the packages in `folder`, with the contracts in its pyproject.toml."""
    # -I: the packages are those in `folder`, whatever is installed
    run = f"import sys; sys.path.insert(0, {str(folder)!r}); from importlinter.cli import lint_imports_command as c; c(['--no-cache'])"
    return subprocess.run(
        [sys.executable, "-I", "-c", run],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_the_rules_hold() -> None:
    found = lint(ROOT)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "0 broken" in found.stdout


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("copy")
    for package in PACKAGES:
        shutil.copytree(
            ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


VIOLATIONS = [
    (
        "scheduler/telemetry/idle.py",
        "import torch",
        "app and scheduler never import torch or triton",
    ),
    (
        "app/format/values.py",
        "import accel.attention.api",
        "app and scheduler never import torch or triton",
    ),
    ("assistant/intents/roles.py", "from PySide6 import QtCore", "nothing below app imports Qt"),
    (
        "assistant/facts/fact.py",
        "import assistant.reports.contents",
        "the assistant's words run one way",
    ),
    ("scheduler/client.py", "import sqlite3", "only scheduler.store speaks SQL"),
    ("scheduler/telemetry/monitor.py", "import pynvml", "only scheduler.devices talks to NVML"),
    ("scheduler/client.py", "import scheduler.store", "the client knows only the door"),
    ("scheduler/protocol/jobs.py", "import scheduler.queue.queue", "scheduler runs one way"),
    ("scheduler/queue/reaper.py", "import scheduler.executors.local", "scheduler runs one way"),
    (
        "accel/result.py",
        "import scheduler.client",
        "rooms: app, then assistant, then accel and scheduler side by side",
    ),
    (
        "scheduler/protocol/settings.py",
        "import app",
        "rooms: app, then assistant, then accel and scheduler side by side",
    ),
    ("accel/runtime/timing.py", "import accel.workloads.catalog", "accel runs one way"),
    (
        "accel/attention/backends/own.py",
        "import accel.attention.reference",
        "a kernel never imports its oracle",
    ),
    ("accel/attention/inputs.py", "import accel.attention.dispatch", "attention runs one way"),
    ("app/format/values.py", "from PySide6 import QtCore", "models are free of Qt"),
    ("app/shell/window.py", "import app.cli.main", "app runs one way"),
]


def test_every_violation_is_caught_by_name(copy: Path) -> None:
    """All at once: building the graph of the imports takes most of the time."""
    for file, line, _ in VIOLATIONS:
        text = (copy / file).read_text()
        (copy / file).write_text(
            text.replace(
                "from __future__ import annotations\n",
                f"from __future__ import annotations\n{line}\n",
                1,
            )
        )
        assert line in (copy / file).read_text()
    found = lint(copy)
    assert found.returncode != 0
    broken = {
        line.partition(" BROKEN")[0] for line in found.stdout.splitlines() if " BROKEN" in line
    }
    assert broken == {name for _, _, name in VIOLATIONS}
    for file, line, _ in VIOLATIONS:
        importer, imported = file.removesuffix(".py").replace("/", "."), line.split()[1]
        assert f"{importer} -> {imported}" in found.stdout


HEAVY = frozenset(
    {
        "torch",
        "triton",
        "PySide6",
        "pyqtgraph",
        "pynvml",
        "sqlite3",
        "numpy",
        "safetensors",
        "rwkv",
        "psutil",
    }
)


@pytest.mark.parametrize(
    ("module", "allowed"),
    [
        ("scheduler.client", set()),
        ("scheduler.protocol.jobs", set()),
        ("accel", set()),
        ("accel.result", set()),
        ("accel.workloads.catalog", set()),
        ("assistant.client", set()),
        ("app.cli.main", set()),
        ("scheduler.daemon.daemon", {"sqlite3", "psutil"}),
        ("scheduler.devices.probe", {"psutil"}),
    ],
)
def test_a_cold_import_brings_in_nothing_heavy(module: str, allowed: set[str]) -> None:
    code = f"import sys, {module}; print(*sorted({set(HEAVY)!r} & {{m.partition('.')[0] for m in sys.modules}}))"
    found = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    assert set(found.stdout.split()) <= allowed


@pytest.mark.parametrize("command", ["status", "jobs", "submit", "cancel"])
def test_a_command_that_is_used_all_day_loads_what_it_needs_and_no_more(command: str) -> None:
    dear = {
        *HEAVY,
        "assistant",
        "asyncio",
        "subprocess",
        "email",
        "importlib.metadata",
        "app.shell.main",
        "app.tour",
        "app.cli.assistant",
    }
    code = (
        "import sys; from app.cli.main import load; from app.cli.catalog import COMMANDS\n"
        f"load(next(c for c in COMMANDS if c.name == {command!r}))\n"
        f"print(*sorted({dear!r} & set(sys.modules)))"
    )
    found = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (found.returncode, found.stdout.strip()) == (0, ""), found.stderr


def test_the_window_starts_with_what_its_first_page_needs_and_no_more() -> None:
    dear = {
        "torch",
        "asyncio",
        "multiprocessing",
        "pydoc",
        "email",
        "assistant.client",
        "assistant.tools",
        "assistant.facts",
    }
    dear |= {
        "pyqtgraph.parametertree",
        "PySide6.QtTest",
        "app.jobs.page",
        "app.strip.fleet_view",
        "app.assistant.session_files",
        "app.assistant.conversation",
    }
    code = (
        "import os, subprocess, sys; from app.shell.main import begin; begin(); import app.shell.desktop\n"
        "subprocess.run(['printenv', 'OPENBLAS_NUM_THREADS'])\n"
        f"print(*sorted({dear!r} & set(sys.modules)))"
    )
    home = {
        "PATH": os.environ["PATH"],
        "GPUDECK_HOME": "/dev/null",
        "QT_QPA_PLATFORM": "offscreen",
    }  # where no daemon can be started
    found = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd="/",
        env=home,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (found.returncode, found.stdout.split(), found.stderr) == (0, [], "")


def test_the_runner_of_jobs_needs_nothing_but_the_standard_library() -> None:
    runner = ROOT / "scheduler" / "executors" / "runner.py"
    code = f"import runpy; runpy.run_path({str(runner)!r})"
    found = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code],
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (found.returncode, found.stderr) == (0, "")
