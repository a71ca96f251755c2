"""Every event of a job's timeline has a name that the catalogues translate."""

from __future__ import annotations

import ast
from pathlib import Path

from gpudeck.scheduler.protocol.jobs import EVENTS

ROOT = Path(__file__).parents[3] / "scheduler"


def test_every_event_is_in_the_table() -> None:
    found = {
        node.args[1].value
        for file in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "Event"
        and len(node.args) > 1
        and isinstance(node.args[1], ast.Constant)
    }
    assert found and found <= set(EVENTS)
