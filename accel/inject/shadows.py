"""Find where a name that was imported from torch stands for something else."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpudeck.accel.inject.product import names_in
from gpudeck.accel.inject.project import Function, Module
from gpudeck.language.text import Text, phrase

_OURS = ("torch", "einops")
_KNOWN = frozenset(("torch", "math", "typing", "numpy", "einops", "collections", "os", "sys"))
"""Libraries whose star imports bring no other torch."""


class Shadow(NamedTuple):
    """Say that a name is bound again, and in which lines that holds."""

    name: str
    line: int
    first: int
    last: int


def shadows(module: Module) -> list[Shadow]:
    """Return the names of torch's modules and functions that a file binds again.

    A star import that comes after them may do that with any of them.
    """
    if module.shadows is None:
        known = {n for n, home in module.imports.items() if home.partition(".")[0] in _OURS}
        whole = (1, module.source.text.count("\n") + 2)
        module.shadows = list(_in_scope(module.tree.body, known, *whole)) if known else []
    return module.shadows


def shadowed(module: Module, function: Function) -> Text | None:
    """Return which name of torch's stands for something else in a function; None if none does."""
    used: frozenset[str] | None = None
    for shadow in shadows(module):
        if shadow.first <= function.lineno <= shadow.last:
            used = names_in(function) if used is None else used
            if shadow.name in used:
                return phrase(
                    "{name} may stand for something else than torch's (line {line})",
                    name=shadow.name,
                    line=shadow.line,
                )
    return None


def _in_scope(body: Sequence[ast.stmt], known: set[str], first: int, last: int) -> Iterator[Shadow]:
    """Yield what the statements of a module or a function bind, and those of inner functions."""
    imported: dict[str, str] = {}
    inner: list[Function | ast.ClassDef] = []
    for node in _own_nodes(body):
        line = getattr(node, "lineno", first)
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from (Shadow(n, line, first, last) for n in _anew(node, known, imported))
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            inner.append(node)
            if node.name in known:
                yield Shadow(node.name, line, first, last)
        elif isinstance(node, ast.Global):  # the function binds them for the whole file
            yield from (Shadow(n, line, 1, last + 10**9) for n in node.names if n in known)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in known:
            yield Shadow(node.id, line, first, last)
    for each in inner:
        end = each.end_lineno or each.lineno
        if isinstance(each, ast.ClassDef):  # methods do not see the names of their class
            methods = [s for s in each.body if isinstance(s, (ast.ClassDef, *FUNCTIONS))]
            yield from _in_scope(methods, known - {m.name for m in methods}, each.lineno, end)
            continue
        spec = each.args
        given = (*spec.posonlyargs, *spec.args, *spec.kwonlyargs, spec.vararg, spec.kwarg)
        named = {a.arg for a in given if a is not None} & known
        yield from (Shadow(n, each.lineno, each.lineno, end) for n in named)
        yield from _in_scope(each.body, known, each.lineno, end)


FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def _own_nodes(body: Sequence[ast.stmt]) -> Iterator[ast.AST]:
    """Yield the nodes of statements in their order, without what inner functions hold."""
    for statement in body:
        yield statement
        if isinstance(statement, (ast.ClassDef, *FUNCTIONS)):
            continue
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant):
            continue  # a name that is None if the import failed
        stack: list[ast.AST] = [*reversed(list(ast.iter_child_nodes(statement)))]
        while stack:
            node = stack.pop()
            if isinstance(node, ast.Lambda):
                continue
            if isinstance(node, ast.stmt):
                yield from _own_nodes([node])
                continue
            yield node
            stack += reversed(list(ast.iter_child_nodes(node)))


def _anew(
    node: ast.Import | ast.ImportFrom, known: set[str], imported: dict[str, str]
) -> Iterator[str]:
    """Yield the names that an import binds to something else than one before it."""
    home = "." * node.level + (node.module or "") if isinstance(node, ast.ImportFrom) else ""
    for each in node.names:
        if each.name == "*":
            if home.partition(".")[0] not in _KNOWN:
                yield from imported
            continue
        name = each.asname or (each.name if home else each.name.partition(".")[0])
        target = f"{home}.{each.name}" if home else each.name if each.asname else name
        if name in known and imported.setdefault(name, target) != target:
            yield name
