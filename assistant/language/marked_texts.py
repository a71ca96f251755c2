"""Collect the assistant's texts that the catalogues translate."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
_FOLDERS = ("answers", "tools", "host", "language", "intents", "reports")
_TABLES = ("TERMS", "_TITLES", "_STANDINGS", "_SENTENCES", "_REASONS", "_REMEDIES", "_PROBLEMS",
           "_EXAMPLES", "_ABILITIES", "_CHANGED", "_NO_GPU", "_SAID", "_DECLINED",
           "MEANINGS", "GUIDES", "_OUTCOME", "_METRICS",
           "_SUBJECTS", "_TALK", "_ELSEWHERE", "_WITHOUT", "HEADS", "_REACHED",
           "_LIMITED")  # fmt: skip
"""Tables and constants of texts that are looked up by a variable."""
_COUNTED = ("_ALIKE", "_IN_STATE", "_BESIDES")
"""Tables of texts with their plural forms."""


def messages() -> dict[str, str]:
    """Return all texts, each with its plural form or an empty text."""
    found = dict.fromkeys(_of_the_table(), "")
    for folder in _FOLDERS:
        for file in sorted((ROOT / folder).glob("*.py")):
            found |= dict(_of_module(ast.parse(file.read_text(encoding="utf-8"))))
    return {text: plural for text, plural in found.items() if text}


def _of_module(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and _assigned(node) in _TABLES:
            yield from ((text, "") for text in _values(node.value))
        elif isinstance(node, ast.Assign) and _assigned(node) in _COUNTED:
            pairs = node.value.values if isinstance(node.value, ast.Dict) else []
            yield from (tuple(_values(pair))[:2] for pair in pairs)  # type: ignore[misc]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            texts = list(_strings(node.args[0]))
            if node.func.attr == "count" and len(node.args) > 1:
                yield from zip(texts, _strings(node.args[1]), strict=False)
            elif node.func.attr == "text":
                yield from ((text, "") for text in texts)
            elif node.func.attr == "captions":
                yield from ((text, "") for argument in node.args for text in _strings(argument))
        elif isinstance(node, ast.Call) and node.args and _called(node) == "text":
            yield from ((text, "") for text in _strings(node.args[0]))
        elif isinstance(node, ast.Call) and len(node.args) > 2 and _called(node) == "sheet":
            yield from ((text, "") for text in _strings(node.args[2]))


def _called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else ""


def _assigned(node: ast.Assign) -> str:
    return node.targets[0].id if isinstance(node.targets[0], ast.Name) else ""


def _values(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Dict):
        for value in node.values:
            yield from _strings(value)
    elif isinstance(node, ast.Tuple):
        for value in node.elts:
            yield from _strings(value)
    else:
        yield from _strings(node)


def _strings(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from _strings(node.body)
        yield from _strings(node.orelse)


def _of_the_table() -> Iterator[str]:
    """Yield the texts of the table of queries and orders, read without importing it."""
    tree = ast.parse((ROOT / "query" / "table.py").read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _called(node) in ("Measure", "Subject", "Verb"):
            yield from _strings(node.args[0])
        elif isinstance(node, ast.Assign) and _assigned(node) == "AGGREGATES":
            yield from _values(node.value)
