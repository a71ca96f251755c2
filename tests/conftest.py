"""Fixtures for every room."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.hook import Hook
from tests.support import state_folder

# Elsewhere each run tries examples that nobody has tried; there, a commit passes or fails for what is in it.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")


def pytest_configure() -> None:
    """What a shell starts in the background does not hear Ctrl+C, nor would the commands that tests start, and interrupt."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def imported() -> None:
    """What is there before the first test is not looked at again and again: by the collector, and by tests that search all objects."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def one_thread() -> Iterator[None]:
    """Torch computes with one thread: problems are small, and other tests run beside them."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def interpreted() -> Iterator[Callable[..., Any]]:
    """Runs a function in a process where Triton's kernels are interpreted: Triton decides that when they are defined."""
    import torch

    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("TRITON_INTERPRET", "1")
            pool.submit(torch.set_num_threads, 1).result()
        yield lambda function, *args, **kwargs: pool.submit(function, *args, **kwargs).result()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A state folder of the test's own. No daemon, probe or job that used it outlives the test."""
    with state_folder(tmp_path / "home") as folder:
        yield folder


@pytest.fixture
def hook() -> Iterator[Hook]:
    made = Hook()
    yield made
    made.close()
