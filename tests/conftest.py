"""Fixtures for every room."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import state_folder


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A state folder of the test's own. No daemon, probe or job that used it outlives the test."""
    with state_folder(tmp_path / "home") as folder:
        yield folder
