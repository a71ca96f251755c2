"""Write the changes of the source that let a product call ours."""

from __future__ import annotations

import ast
import re

from gpudeck.accel.inject import vocabulary as words
from gpudeck.accel.inject.finding import Edit
from gpudeck.accel.inject.project import Module


def operator_edits(module: Module, node: ast.expr, name: str) -> set[Edit]:
    """Return the changes that turn a @ b into a call."""
    assert isinstance(node, ast.BinOp)
    start, end = module.span(node)
    left, right = module.span(node.left)[1], module.span(node.right)[0]
    between = re.sub(r"#[^\n]*", lambda m: "#" * len(m[0]), module.source.text[left:right])
    at = left + between.index("@")
    before = len(between[: between.index("@")]) - len(between[: between.index("@")].rstrip(" "))
    return {
        Edit(start, start, f"{{link}}.{name}("),
        Edit(at - before, at + 1, ","),
        Edit(end, end, ")"),
    }


def call_edits(module: Module, node: ast.expr) -> set[Edit]:
    """Return the changes that let a call of a product call ours."""
    assert isinstance(node, ast.Call)
    start, end = module.span(node.func)
    if operation := words.operation(module.dotted(node.func)):
        allowed = {"beta", "alpha"} if operation == "baddbmm" else set()
        plain = {k.arg for k in node.keywords} <= allowed
        return {Edit(start, end, f"{{link}}.{operation}")} if plain else set()
    if not isinstance(node.func, ast.Attribute) or node.keywords or len(node.args) != 1:
        return set()
    base = module.span(node.func.value)[1]
    first = module.span(node.args[0])[0]
    between = module.source.text[base:first]
    found = re.search(r"\s*\.\s*" + node.func.attr + r"\s*\(\s*", between)
    if found is None:
        return set()
    return {
        Edit(start, start, f"{{link}}.{node.func.attr}("),
        Edit(base + found.start(), base + found.end(), ", "),
    }
