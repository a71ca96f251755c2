"""Provide a Ray head, in a network namespace, as it opens ports on all interfaces: make ray."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.settings import ClusterSettings
from tests.clusters.head import ADDRESS, Head, ray_command
from tests.integration.conftest import cpu_home
from tests.integration.deck import ready

__all__ = ["cpu_home"]


@pytest.fixture(scope="session")
def one_head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Head]:
    if {name for _, name in socket.if_nameindex()} != {"lo"}:
        pytest.fail("a Ray head must not be started where others can reach it. Run: make ray")
    if ray_command() is None:
        pytest.fail("Ray is not installed. Run: pip install 'gpudeck[ray]'")
    head = Head(tmp_path_factory.mktemp("head"))
    try:
        head.start()
        yield head
    finally:
        head.remove()


@pytest.fixture
def head(one_head: Head) -> Head:
    if not one_head.answers():
        one_head.kill()
        one_head.start()
    return one_head


@pytest.fixture
def deck(head: Head, cpu_home: Path) -> Iterator[Client]:
    with Client() as client:
        name(ready(client), head.token_file)
        yield client


def name(client: Client, token_file: Path) -> None:
    client.configure(clusters={"ray:lab": ClusterSettings(ADDRESS, str(token_file))})
