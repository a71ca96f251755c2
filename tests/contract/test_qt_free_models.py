"""Every module of the app's rooms that works without Qt is in the contract that keeps it so."""

from __future__ import annotations

import ast
import tomllib
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
OUTSIDE = ("gpudeck.app.cli", "gpudeck.app.report", "gpudeck.app.tour")
"""Rooms that are not part of the window."""


@cache
def app_modules() -> dict[str, Path]:
    """Return the files of all modules of the app, by name."""
    found = {}
    for file in (ROOT / "app").rglob("*.py"):
        parts = ("gpudeck", *file.relative_to(ROOT).with_suffix("").parts)
        found[".".join(parts).removesuffix(".__init__")] = file
    return found


@cache
def imports(module: str) -> frozenset[str]:
    """Return the modules that are imported anywhere in a module, parent packages included."""
    names = set()
    for node in ast.walk(ast.parse(app_modules()[module].read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    parents = {name.rpartition(".")[0] for name in names}
    return frozenset(names | parents)


def needs_qt(module: str) -> bool:
    """Report if a module imports Qt, directly or through other modules of the app."""
    seen, open_modules = {module}, [module]
    while open_modules:
        found = imports(open_modules.pop())
        if any(name.split(".")[0] in ("PySide6", "pyqtgraph") for name in found):
            return True
        open_modules += found & app_modules().keys() - seen
        seen |= found
    return False


def test_every_module_without_qt_is_in_the_contract():
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = config["tool"]["importlinter"]["contracts"]
    (listed,) = (c["source_modules"] for c in contracts if c["name"] == "models are free of Qt")
    free = {
        name
        for name, file in app_modules().items()
        if not name.startswith(OUTSIDE) and file.name != "__init__.py" and not needs_qt(name)
    }
    assert sorted(free - set(listed)) == []
    assert sorted(set(listed) - app_modules().keys()) == []
    assert len(listed) == len(set(listed))
