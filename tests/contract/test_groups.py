"""What the suite relies on to be fast: tests that are marked to share a process, and what is dear in it, do."""

from __future__ import annotations

import os

import pytest


@pytest.mark.xdist_group("groups")
@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="there is one process only")
def test_who_hands_out_the_tests_is_told_their_group(request: pytest.FixtureRequest) -> None:
    assert request.node.nodeid.endswith("@groups"), (
        "this pytest-xdist cannot tell this pytest; see pyproject.toml"
    )
