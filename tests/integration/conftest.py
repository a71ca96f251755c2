"""A real daemon, watching this machine's CPU, with a state folder of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler.client import Client
from scheduler.protocol import settings
from scheduler.protocol.settings import TEMPLATE, Settings
from tests.integration.deck import ready
from tests.support import state_folder


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that share a daemon run in one process: each of several would start its own."""
    for item in items:
        if (
            "shared_home" in getattr(item, "fixturenames", ())
            and item.get_closest_marker("xdist_group") is None
        ):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


@pytest.fixture(scope="module")
def shared_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The state folder of the module's daemon, for tests that leave it as they found it."""
    with state_folder(tmp_path_factory.mktemp("shared") / "home") as folder:
        settings.save(Settings(source="cpu", model_folder=TEMPLATE))
        yield folder


@pytest.fixture
def shared(shared_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """A client of the module's daemon."""
    monkeypatch.setenv("GPUDECK_HOME", str(shared_home))
    with Client() as deck:
        yield ready(deck)


@pytest.fixture
def cpu_home(home: Path) -> Path:
    """A state folder of the test's own, with settings that watch the CPU, also on a machine with GPUs."""
    settings.save(Settings(source="cpu", model_folder=TEMPLATE))
    return home
