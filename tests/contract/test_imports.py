"""Test that the import contracts hold and catch violations, and that imports are cheap."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PACKAGES = ("gpudeck", "app", "accel", "assistant", "scheduler", "language")


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter on the package in `folder`, with the contracts in pyproject.toml."""
    # -I excludes installed packages
    run = (
        f"import sys; sys.path.insert(0, {str(folder)!r})\n"
        "from importlinter.cli import lint_imports_command\n"
        f"lint_imports_command(['--no-cache', '--config', {str(ROOT / 'pyproject.toml')!r}])"
    )
    return subprocess.run(
        [sys.executable, "-I", "-c", run],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_the_contracts_hold(copy: Path) -> None:
    found = lint(copy)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "0 broken" in found.stdout


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("copy")
    ignored = shutil.ignore_patterns("__pycache__")
    for package in PACKAGES:
        target = folder / "gpudeck" / package.removeprefix("gpudeck")
        shutil.copytree(ROOT / package, target, ignore=ignored, dirs_exist_ok=True)
    return folder


VIOLATIONS = [
    ("app", "accel/result.py", "import gpudeck.scheduler.client"),
    ("app", "scheduler/protocol/settings.py", "import gpudeck.app"),
    ("scheduler runs", "scheduler/protocol/jobs.py", "import gpudeck.scheduler.queue.queue"),
    ("scheduler runs", "scheduler/queue/reaper.py", "import gpudeck.scheduler.executors.local"),
    (
        "the protocol runs",
        "scheduler/protocol/units.py",
        "import gpudeck.scheduler.protocol.settings",
    ),
    ("clients know", "scheduler/client.py", "import gpudeck.scheduler.store"),
    ("accel runs", "accel/runtime/timing.py", "import gpudeck.accel.workloads.catalog"),
    ("app runs", "app/shell/window.py", "import gpudeck.app.cli.main"),
    ("app runs", "app/jobs/log_view.py", "import gpudeck.app.workloads.form"),
    ("app runs", "app/link/call.py", "import gpudeck.app.jobs.log_view"),
    ("app and scheduler never", "scheduler/telemetry/idle.py", "import torch"),
    ("app and scheduler never", "app/format/values.py", "import gpudeck.accel.attention.api"),
    ("clusters", "scheduler/executors/ray.py", "import ray"),
    ("nothing below app", "assistant/intents/tokens.py", "from PySide6 import QtCore"),
    ("only scheduler.devices", "scheduler/telemetry/alerts.py", "import pynvml"),
    ("only scheduler.store", "scheduler/client.py", "import sqlite3"),
    ("models are free", "app/format/values.py", "from PySide6 import QtCore"),
    ("a kernel", "accel/attention/backends/own.py", "import gpudeck.accel.attention.reference"),
    ("attention runs", "accel/attention/inputs.py", "import gpudeck.accel.attention.dispatch"),
    ("lessons run", "accel/lessons/store.py", "import gpudeck.accel.lessons.usage"),
    (
        "primitives run",
        "accel/primitives/quantize/fp8.py",
        "import gpudeck.accel.primitives.gemm.api",
    ),
    (
        "tile primitives",
        "accel/primitives/tiles/ring.py",
        "import gpudeck.accel.primitives.tiles.scans",
    ),
    ("products run", "accel/primitives/gemm/plain.py", "import gpudeck.accel.primitives.gemm.api"),
    ("search runs", "accel/search/draws.py", "import gpudeck.accel.search.judge"),
    ("precision runs", "accel/precision/linear.py", "import gpudeck.accel.precision.conversion"),
    ("injection runs", "accel/inject/form.py", "import gpudeck.accel.inject.scores"),
    ("reading code needs no torch", "accel/inject/scan.py", "import torch"),
    ("telemetry runs", "scheduler/telemetry/idle.py", "import gpudeck.scheduler.telemetry.monitor"),
    ("the store runs", "scheduler/store/packing.py", "import gpudeck.scheduler.store.recorder"),
    (
        "the assistant's packages",
        "assistant/facts/fact.py",
        "import gpudeck.assistant.reports.contents",
    ),
    ("queries run", "assistant/query/rows.py", "import gpudeck.assistant.query.execute"),
    (
        "the recognition",
        "assistant/intents/values.py",
        "import gpudeck.assistant.intents.understand",
    ),
    (
        "the assistant's tools",
        "assistant/tools/targets.py",
        "import gpudeck.assistant.tools.registry",
    ),
    (
        "the assistant's process",
        "assistant/host/channel.py",
        "import gpudeck.assistant.host.server",
    ),
    ("the engine", "assistant/engine/prompts.py", "import gpudeck.assistant.engine.engine"),
    ("the endpoint", "assistant/serve/replies.py", "import gpudeck.assistant.serve.endpoint"),
    ("only assistant.library.hub", "assistant/library/pull.py", "import huggingface_hub"),
    ("serving runs", "accel/serving/blocks.py", "import gpudeck.accel.serving.scheduler"),
    ("RWKV runs", "accel/rwkv/layers.py", "import gpudeck.accel.rwkv.model"),
    (
        "housekeeping runs",
        "assistant/housekeeping/walk.py",
        "import gpudeck.assistant.housekeeping.moving",
    ),
    ("nothing that ships", "app/shell/window.py", "import gpudeck.assistant.training"),
    ("training", "accel/training/shapes.py", "import gpudeck.accel.training.loop"),
    ("suspension", "scheduler/suspension/calls.py", "import gpudeck.scheduler.suspension.steps"),
    ("language", "language/numbers.py", "import gpudeck.language.words"),
]
"""The beginning of a contract's name, a file, and an import in it that breaks the contract."""


def test_every_contract_catches_a_violation(copy: Path) -> None:
    """Break all contracts at once, because building the graph of imports takes most of the time."""
    for _, file, line in VIOLATIONS:
        first = "from __future__ import annotations\n"
        text = (copy / "gpudeck" / file).read_text().replace(first, f"{first}{line}\n", 1)
        assert line in text
        (copy / "gpudeck" / file).write_text(text)
    found = lint(copy)
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    kept = {c["name"] for c in contracts["contracts"] if f"{c['name']} BROKEN" not in found.stdout}
    assert kept == set(), "add a violation of each contract"
    for start, file, line in VIOLATIONS:
        importer = f"gpudeck/{file}".removesuffix(".py").replace("/", ".")
        imported = line.split()[1]
        assert f"{importer} -> {imported}" in found.stdout, start


HEAVY = (
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
)
COMMAND_NEVER = (
    *HEAVY,
    "gpudeck.assistant",
    "asyncio",
    "subprocess",
    "email",
    "importlib.metadata",
    "gpudeck.app.shell.main",
    "gpudeck.app.tour",
    "gpudeck.app.cli.assistant",
)
WINDOW_NEVER = (
    "torch",
    "asyncio",
    "multiprocessing",
    "pydoc",
    "email",
    "gpudeck.assistant.client",
    "gpudeck.assistant.tools",
    "gpudeck.assistant.facts",
    "pyqtgraph.parametertree",
    "PySide6.QtTest",
    "gpudeck.app.jobs.page",
    "gpudeck.app.strip.fleet_view",
    "gpudeck.app.assistant.session_files",
    "gpudeck.app.assistant.conversation",
)


def run(code: str, *options: str, env: dict[str, str] | None = None) -> str:
    """Run Python code in a new process, which must not fail, and return what it prints."""
    found = subprocess.run(
        [sys.executable, *options, "-c", code],
        cwd="/",
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (found.returncode, found.stderr) == (0, "")
    return found.stdout


def loaded(code: str, modules: tuple[str, ...], env: dict[str, str] | None = None) -> set[str]:
    """Return which of `modules` a new process has loaded after running the code."""
    return set(run(f"{code}; print(*({set(modules)!r} & set(sys.modules)))", "-P", env=env).split())


@pytest.mark.parametrize(
    ("module", "allowed"),
    [
        ("gpudeck.scheduler.client", set()),
        ("gpudeck.scheduler.protocol.jobs", set()),
        ("gpudeck.accel", set()),
        ("gpudeck.accel.result", set()),
        ("gpudeck.accel.workloads.catalog", set()),
        ("gpudeck.assistant.client", set()),
        ("gpudeck.app.cli.main", set()),
        ("gpudeck.scheduler.daemon.daemon", {"sqlite3", "psutil"}),
        ("gpudeck.scheduler.devices.probe", {"psutil"}),
    ],
)
def test_a_cold_import_loads_nothing_heavy(module: str, allowed: set[str]) -> None:
    assert loaded(f"import sys, {module}", HEAVY) <= allowed


@pytest.mark.parametrize("command", ["status", "jobs", "submit", "cancel"])
def test_a_frequent_command_loads_only_what_it_needs(command: str) -> None:
    code = (
        "import sys; from gpudeck.app.cli.main import load\n"
        "from gpudeck.app.cli.catalog import COMMANDS\n"
        f"load(next(c for c in COMMANDS if c.name == {command!r}))"
    )
    assert loaded(code, COMMAND_NEVER) == set()


def test_the_window_loads_only_what_its_first_page_needs() -> None:
    code = (
        "import os, subprocess, sys; from gpudeck.app.shell.main import begin; begin()\n"
        "import gpudeck.app.shell.desktop; subprocess.run(['printenv', 'OPENBLAS_NUM_THREADS'])"
    )
    # no daemon can be started in this home
    env = {"GPUDECK_HOME": "/dev/null", "QT_QPA_PLATFORM": "offscreen", "PATH": os.environ["PATH"]}
    assert loaded(code, WINDOW_NEVER, env) == set(), "nor is OPENBLAS_NUM_THREADS passed on"


def test_the_assistant_multiplies_with_one_thread() -> None:
    code = (
        "import os, runpy, sys, gpudeck.scheduler.background.instance as instance\n"
        "instance.run_single_instance = lambda *_: 0\n"
        "try: runpy.run_module('gpudeck.assistant.host', run_name='__main__')\n"
        "except SystemExit: pass\n"
        "print('numpy' in sys.modules, len(os.listdir('/proc/self/task')))"
    )
    assert run(code, "-P") == "True 1\n"


@pytest.mark.parametrize("module", sorted({*COMMAND_NEVER, *WINDOW_NEVER}))
def test_the_modules_that_must_not_be_loaded_exist(module: str) -> None:
    assert find_spec(module), "update its name here"


def test_programs_in_the_texts_of_benchmarks_import_modules_that_exist() -> None:
    """Such programs run on GPUs only, and neither mypy nor another test reads them."""
    imported = {
        node.module
        for file in (ROOT / "tests/benchmarks").glob("*.py")
        for text in ast.walk(ast.parse(file.read_text()))
        if isinstance(text, ast.Constant) and isinstance(text.value, str)
        for node in ast.walk(_parsed(text.value))
        if isinstance(node, ast.ImportFrom) and node.module and node.module[:7] == "gpudeck"
    }
    assert imported and [module for module in sorted(imported) if not find_spec(module)] == []


def _parsed(text: str) -> ast.Module:
    """Return the syntax tree of a program, or an empty one of any other text."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):
        return ast.Module([], [])


def test_the_runner_of_jobs_needs_only_the_standard_library() -> None:
    runner = ROOT / "scheduler" / "executors" / "runner.py"
    run(f"import runpy; runpy.run_path({str(runner)!r})", "-I", "-S")
