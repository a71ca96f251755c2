"""Check the Python code of a page: its syntax, its imports, and the names and options it uses."""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gpudeck import accel
from gpudeck.extras import missing_by
from tests.manual_commands.pages import blocks

_UNKNOWN = object()
"""What a name stands for where only running the code would tell."""


def problems(page: Path) -> Iterator[str]:
    """Yield what the page's Python code names that does not exist.

    A name that one block imports is known in those after it, as readers read them in order.
    """
    names: dict[str, Any] = {"accel": accel}
    for block in blocks(page, "python"):
        try:
            tree = ast.parse(block.text)
        except SyntaxError as e:
            yield f"{page.name}:{block.line}: {e}"
            continue
        for node in ast.walk(tree):
            try:
                _check(node, names)
            except (AttributeError, ImportError, TypeError) as e:
                yield f"{page.name}:{block.line + getattr(node, 'lineno', 1) - 1}: {e}"


def stands_alone(code: str) -> bool:
    """Return whether a block defines every name that it uses, so that it can be run."""
    used, bound = set(), set(dir(builtins))
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                used.add(name)
            case ast.Name(id=name) | ast.arg(arg=name):
                bound.add(name)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                bound.add(name)
            case ast.alias(name=name, asname=other):
                bound.add((other or name).partition(".")[0])
    return used <= bound


def _check(node: ast.AST, names: dict[str, Any]) -> None:
    """Import, look up and compare what one node names; raise an error where that fails."""
    match node:
        case ast.Import(names=found):
            for alias in found:
                first = alias.name.partition(".")[0]
                whole = _module(alias.name)
                names[alias.asname or first] = whole if alias.asname else _module(first)
        case ast.ImportFrom(module=str(module), names=found):
            for alias in found:
                names[alias.asname or alias.name] = _imported(module, alias.name)
        case ast.Attribute():
            _value(node, names)
        case ast.Call(func=function, keywords=given):
            _check_options(_value(function, names), {k.arg for k in given if k.arg})
        case ast.Name(id=name, ctx=ast.Store()):
            names[name] = _UNKNOWN


def _module(name: str) -> Any:
    return _known(importlib.import_module, name)


def _imported(module: str, name: str) -> Any:
    """Return what `from module import name` gives."""
    home = _module(module)
    if home is _UNKNOWN:
        return _UNKNOWN
    return getattr(home, name) if hasattr(home, name) else _module(f"{module}.{name}")


def _known(find: Callable[..., Any], *given: Any) -> Any:
    """Return what is found, or _UNKNOWN where it needs a package of an extra that is missing."""
    try:
        return find(*given)
    except ModuleNotFoundError as e:
        if missing_by(e) is None:
            raise
        return _UNKNOWN


def _value(node: ast.AST, names: dict[str, Any]) -> Any:
    """Return what a name, or an attribute of one, stands for."""
    match node:
        case ast.Name(id=name):
            return names.get(name, _UNKNOWN)
        case ast.Attribute(value=owner, attr=name):
            found = _value(owner, names)
            return _UNKNOWN if found is _UNKNOWN else _known(getattr, found, name)
    return _UNKNOWN


def _check_options(function: Any, given: set[str]) -> None:
    """Raise TypeError where a function of ours does not take the options by these names."""
    if not given or not str(getattr(function, "__module__", "")).startswith("gpudeck."):
        return
    taken = inspect.signature(function).parameters
    # `unknown` collects what is refused by its name
    if any(p.kind is p.VAR_KEYWORD and p.name != "unknown" for p in taken.values()):
        return
    if missing := given - taken.keys():
        raise TypeError(f"{function.__name__} takes no {', '.join(sorted(missing))}")
