"""The table of weaknesses in tests/benchmarks/log/edges.md names tests that exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PAGE = TESTS / "benchmarks/log/edges.md"
ROWS = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if ".py::" in line]


@cache
def functions(file: str) -> set[str]:
    """Return the names of the tests in a file, also of those in classes."""
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(tree) if isinstance(node, kinds)}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip()[:60])
def test_the_tests_of_a_weakness_exist(row: str) -> None:
    named = re.findall(r"`(\S+\.py)::(test_\w+)`", row)
    assert named and len(named) == row.count(".py::")
    for file, name in named:
        assert name in functions(file), f"{file} has no {name}"
