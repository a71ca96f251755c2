"""Index the functions, classes and imports of the modules of a project."""

from __future__ import annotations

import ast
import os
import re
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpudeck.accel.inject.source import Source, Unreadable, read
from gpudeck.language.text import phrase

SHOWN = 60
"""The most characters that are shown of an expression."""
UP = 4
"""How many folders above a file may be the root of its absolute imports."""
_LIBRARIES = frozenset(("torch", "numpy", "math", "typing", "einops", "functools", "os", "sys"))
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Module:
    """Hold the syntax tree of one source with what its names mean."""

    source: Source
    tree: ast.Module
    imports: dict[str, str] = field(default_factory=dict)
    """What each imported name stands for, such as {"F": "torch.nn.functional"}."""
    functions: dict[str, Function] = field(default_factory=dict)
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)
    starts: list[int] = field(default_factory=list)
    """Where each line starts in the text."""

    attributes_of: dict[ast.ClassDef, dict[str, list[ast.expr]]] = field(default_factory=dict)
    shadows: list[Any] | None = None
    """Names of torch's that are bound again; see `gpudeck.accel.inject.shadows`."""
    derived: dict[str, Any] = field(default_factory=dict)
    """What was concluded from the whole file once, by what it is about."""
    scripted: set[str] = field(default_factory=set)
    """The functions that are passed to torch.jit.script."""

    def attributes(self, owner: ast.ClassDef) -> dict[str, list[ast.expr]]:
        """Return everything that a class assigns to the attributes of `self`."""
        if owner not in self.attributes_of:
            found = self.attributes_of[owner] = {}
            for node in ast.walk(owner):
                if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
                    continue
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    if isinstance(target, ast.Attribute) and name_of(target.value) == "self":
                        found.setdefault(target.attr, []).append(node.value)
        return self.attributes_of[owner]

    def offset(self, line: int, column: int) -> int:
        """Return the place in the text of a position in the tree, whose columns count bytes."""
        start = self.starts[line - 1]
        end = self.starts[line] if line < len(self.starts) else len(self.source.text)
        text = self.source.text[start:end]
        if text.isascii():
            return start + column
        return start + len(text.encode()[:column].decode())

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """Return where a node starts and ends in the text."""
        assert node.end_lineno is not None and node.end_col_offset is not None
        return (
            self.offset(node.lineno, node.col_offset),
            self.offset(node.end_lineno, node.end_col_offset),
        )

    def dotted(self, node: ast.expr) -> str:
        """Return the full name of a function such as `torch.nn.functional.softmax`, or ''."""
        if isinstance(node, ast.Name):
            return self.imports.get(node.id, "")
        if isinstance(node, ast.Attribute) and (base := self.dotted(node.value)):
            return f"{base}.{node.attr}"
        return ""


def parse(source: Source) -> Module:
    """Parse a source.

    Raises:
        Unreadable: says where the syntax is wrong.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the user's own invalid escapes
            tree = ast.parse(source.text)
    except SyntaxError as e:
        why = " ".join((e.msg or "").split())
        raise Unreadable(phrase("this is not Python 3: {why}", why=why), e.lineno or 1) from e
    except (ValueError, RecursionError, MemoryError) as e:
        raise Unreadable(phrase("this cannot be parsed: {why}", why=type(e).__name__)) from e
    module = Module(source, tree)
    module.starts = [0, *(m.end() for m in re.finditer("\n", source.text))]
    try:
        _index(module)
    except RecursionError as e:
        raise Unreadable(phrase("its code is too deeply nested to be followed")) from e
    return module


def _index(module: Module) -> None:
    """Note what the names of a module mean."""
    for node in _statements(module.tree.body):
        if isinstance(node, ast.Import):
            for name in node.names:
                whole = name.name if name.asname else name.name.partition(".")[0]
                module.imports[name.asname or whole] = whole
        elif isinstance(node, ast.ImportFrom):
            home = "." * node.level + (node.module or "")
            for name in node.names:
                dot = "" if home.endswith(".") or not home else "."
                module.imports[name.asname or name.name] = f"{home}{dot}{name.name}"
    module.scripted = set(re.findall(r"jit\.script\(\s*(\w+)", module.source.text))
    for statement in module.tree.body:
        if isinstance(statement, Function):
            module.functions[statement.name] = statement
        elif isinstance(statement, ast.ClassDef):
            module.classes[statement.name] = statement


def code_of(node: ast.AST) -> str:
    """Return the first characters of the code of a node."""
    try:
        return ast.unparse(node)[:SHOWN]
    except ValueError:  # a number of so many digits that Python writes it in no decimal form
        return "an expression"


def name_of(node: ast.expr) -> str:
    """Return the name that an expression is, or an empty text."""
    return node.id if isinstance(node, ast.Name) else ""


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield all statements, also within functions and classes, without their expressions."""
    for statement in body:
        yield statement
        for name in ("body", "orelse", "finalbody", "handlers"):
            yield from _statements(getattr(statement, name, ()))


class Project:
    """Find and keep the modules of one project."""

    def __init__(self) -> None:
        self._modules: dict[Path, Module] = {}
        self._homes: dict[tuple[Path, str], tuple[Module, str] | None] = {}

    def module(self, path: Path) -> Module:
        """Return a module. Raises Unreadable."""
        found = self._modules.get(path)
        if found is None:
            found = self._modules[path] = parse(read(path))
        return found

    def home(self, module: Module, name: str) -> tuple[Module, str] | None:
        """Return the module of the project that an imported name comes from, and its name there."""
        folder = module.source.path.parent
        if (folder, name) not in self._homes:
            self._homes[folder, name] = None  # for modules that import from each other
            self._homes[folder, name] = self._origin(self._find(folder, name))
        return self._homes[folder, name]

    def _origin(self, found: tuple[Module, str] | None) -> tuple[Module, str] | None:
        """Follow a name that a module, such as a package's `__init__`, only imports itself."""
        if found is None:
            return None
        module, name = found
        if name in module.functions or name in module.classes or name not in module.imports:
            return found
        return self.home(module, module.imports[name]) or found

    def _find(self, folder: Path, name: str) -> tuple[Module, str] | None:
        package, _, last = name.rpartition(".")
        dots = len(name) - len(name.lstrip("."))
        parts = [part for part in package.split(".") if part]
        if not parts or parts[0] in _LIBRARIES:
            return None
        above = [folder, *folder.parents]
        for root in above[dots - 1 : dots] if dots else above[:UP]:
            path = root.joinpath(*parts)
            for file in (path.with_suffix(".py"), path / "__init__.py"):
                if os.path.isfile(file):  # noqa: PTH113 - which is false for names that are too long
                    try:
                        return self.module(file), last
                    except Unreadable:
                        return None
        return None
