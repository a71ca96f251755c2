"""Provide a real daemon that reads this machine's CPU, and shells that talk to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import settings
from gpudeck.scheduler.protocol.settings import TEMPLATE, Settings
from tests.integration.deck import ready
from tests.integration.shell import Shell
from tests.support import state_folder


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run tests that share a daemon in one process, because each process would start its own."""
    for item in items:
        if (
            "shared_home" in getattr(item, "fixturenames", ())
            and item.get_closest_marker("xdist_group") is None
        ):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


@pytest.fixture(scope="module")
def shared_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the state folder of the module's daemon, for tests that leave no traces in it."""
    with state_folder(tmp_path_factory.mktemp("shared") / "home") as folder:
        settings.save(Settings(source="cpu", model_folder=TEMPLATE))
        yield folder


@pytest.fixture
def shared(shared_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """Return a client of the module's daemon."""
    monkeypatch.setenv("GPUDECK_HOME", str(shared_home))
    with Client() as deck:
        yield ready(deck)


@pytest.fixture
def cpu_home(home: Path) -> Path:
    """Return a new state folder whose settings read the CPU, even on a machine with GPUs."""
    settings.save(Settings(source="cpu", model_folder=TEMPLATE))
    return home


@pytest.fixture
def sh(capsys: pytest.CaptureFixture[str], shared: Client) -> Shell:
    """Return a shell that talks to the module's daemon."""
    return Shell(capsys)


@pytest.fixture
def alone(capsys: pytest.CaptureFixture[str], cpu_home: Path) -> Shell:
    """Return a shell with a new state folder, in which no daemon runs yet."""
    return Shell(capsys)
