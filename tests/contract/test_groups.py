"""Test that tests marked to share a process do, which keeps the suite fast."""

from __future__ import annotations

import os

import pytest


@pytest.mark.xdist_group("groups")
@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="there is one process only")
def test_grouped_tests_are_scheduled_by_their_group(request: pytest.FixtureRequest) -> None:
    assert request.node.nodeid.endswith("@groups"), (
        "this pytest-xdist does not work with this pytest; see pyproject.toml"
    )
