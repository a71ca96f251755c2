"""What is refused is said by a value, so that a window can show it in its user's language."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from gpudeck.accel.rwkv.errors import ModelError
from gpudeck.accel.serving.errors import ModelRefused
from gpudeck.app.language.catalogues import ROOT
from gpudeck.scheduler.protocol.errors import UserError

ROOMS = ("scheduler", "app", "assistant", "accel/serving", "accel/rwkv")
PROGRAMS = {"RequestRefused"}
"""Errors that the clients of an endpoint read, in English as OpenAI's."""
ENGLISH = (
    "assistant/query/written.py",
    "assistant/tool_server", "assistant/training", "assistant/writing",
)  # fmt: skip
"""Where models read the errors, developers, and readers of a brief, which a model writes in English
alone."""


def _errors() -> set[str]:
    """Return the names of the errors whose line a person reads."""
    bases: dict[str, set[str]] = {}
    values: set[str] = set()  # as the reasons for a missing value, of which two have such names
    for room in ROOMS:
        for file in (ROOT / room).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.ClassDef):
                    of = {ast.unparse(base).split(".")[-1] for base in node.bases}
                    if "Struct" in of:
                        values.add(node.name)
                    else:
                        bases[node.name] = of
    found = {UserError.__name__, ModelRefused.__name__, ModelError.__name__}
    while more := {name for name, of in bases.items() if of & found} - found - values:
        found |= more
    return found - PROGRAMS


def _is_sentence(node: ast.expr) -> bool:
    """Return whether this is a string with words, alone or as one of two."""
    if isinstance(node, ast.IfExp):
        return _is_sentence(node.body) or _is_sentence(node.orelse)
    if isinstance(node, ast.BinOp):
        return _is_sentence(node.left) or _is_sentence(node.right)
    text = node.value if isinstance(node, ast.Constant) else ""
    return isinstance(node, ast.JoinedStr) or (isinstance(text, str) and " " in text)


def _plain(source: str, names: set[str]) -> Iterator[int]:
    """Yield the lines that make such an error of a plain string."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and node.args and _is_sentence(node.args[0]):
            called = ast.unparse(node.func).split(".")[-1]
            if called in names:
                yield node.lineno


@pytest.mark.parametrize("room", ROOMS)
def test_every_refusal_is_a_value(room: str) -> None:
    names = _errors()
    assert len(names) > 10
    found = [
        f"{file.relative_to(ROOT)}:{line}"
        for file in sorted((ROOT / room).rglob("*.py"))
        if not str(file.relative_to(ROOT)).startswith(ENGLISH)
        for line in _plain(file.read_text(), names)
    ]
    assert found == []


@pytest.mark.parametrize(
    "made", ['UserError(f"no {name}")', 'UserError("no job" if a else b)', 'e.UserError("no " + a)']
)
def test_a_plain_refusal_is_found(made: str) -> None:
    assert list(_plain(made, {"UserError"})) == [1]
