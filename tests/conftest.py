"""Fixtures for every room."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from gpudeck.assistant.one_thread import import_numpy
from tests.hook import Hook
from tests.support import state_folder

# the system's messages are in English here, also where Qt sets the locale of whoever runs the tests
os.environ["LC_ALL"] = "C.UTF-8"
# a test that imports a package of ours by the name of its folder would get it a second time
sys.modules.update(dict.fromkeys(("app", "accel", "assistant", "scheduler", "language")))
import_numpy()  # as the window and the assistant do: other tests run on the other cores
os.environ["OMP_WAIT_POLICY"] = "passive"  # torch's threads that wait would take others' cores
# nothing is judged by its time, which depends on other programs; each run tries new examples, but
# in CI a commit passes or fails only for its contents
settings.register_profile(
    "gpudeck",
    deadline=None,
    suppress_health_check=(HealthCheck.too_slow,),
    derandomize=bool(os.environ.get("CI")),
)
settings.load_profile("gpudeck")


def pytest_configure() -> None:
    """Let the tests' commands receive Ctrl+C, which a shell disables for background processes."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Import another share of the modules first in each process of several.

    They would otherwise all rewrite the assertions of the same module at the same moment, where
    no compiled modules are kept yet.
    """
    gc.disable()  # what is collected stays: looking for garbage in it takes a fifth of the time
    worker = getattr(session.config, "workerinput", None)
    if worker is None:
        return
    root, number = session.config.rootpath, int(worker["workerid"].removeprefix("gw"))
    given = (root.joinpath(folder).glob("**/test_*.py") for folder in session.config.args)
    for file in sorted(chain.from_iterable(given))[number :: worker["workercount"]]:
        with suppress(Exception, pytest.skip.Exception):  # pytest reports it when it comes to it
            import_module(".".join(file.relative_to(root).with_suffix("").parts))


def pytest_collection_finish() -> None:
    """Look for garbage again, once all tests are collected."""
    gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the checks that did not run on this machine, and why."""
    for report in terminalreporter.getreports("skipped"):
        if isinstance(report.longrepr, tuple):  # not a failure that was expected
            what = f"{report.nodeid}: {report.longrepr[2].removeprefix('Skipped: ')}"
            terminalreporter.write_line(f"NOT CHECKED: {what}", yellow=True)


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    """Exclude what exists before a module's tests from garbage collection, and from searches for
    leaked objects, which would otherwise look at all of torch again and again.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def one_thread() -> Iterator[None]:
    """Let torch compute with one thread, because problems are small and tests run in parallel."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def interpreted() -> Iterator[Callable[..., Any]]:
    """Return a function that runs another one in a process where Triton's kernels are interpreted.

    Triton decides this when the kernels are defined.
    """
    import torch

    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("TRITON_INTERPRET", "1")
            pool.submit(torch.set_num_threads, 1).result()
        yield lambda function, *args, **kwargs: pool.submit(function, *args, **kwargs).result()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """Return a new state folder; no process that uses it survives the test."""
    with state_folder(tmp_path / "home") as folder:
        yield folder


@pytest.fixture
def hook() -> Iterator[Hook]:
    made = Hook()
    yield made
    made.close()
