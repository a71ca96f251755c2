"""Fixtures for every room."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.hook import Hook
from tests.support import state_folder

# Elsewhere each run tries examples that nobody has tried; there, a commit passes or fails for what is in it.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")


@pytest.fixture(scope="session", autouse=True)
def imported() -> None:
    """What is there before the first test is not looked at again and again: by the collector, and by tests that search all objects."""
    gc.collect()
    gc.freeze()


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
