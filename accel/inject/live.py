"""Link the attention of a live model, and take that back."""

from __future__ import annotations

import ast
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from torch import nn
from torch.nn import functional

from accel.inject import link
from accel.inject.project import Function, Project
from accel.inject.rewrite import in_place
from accel.inject.source import Unreadable

ALIAS = "_gpudeck"


class Stacked(RuntimeError):
    """Says that two patchers replace the same method of a module."""


class Patch:
    """Hold what was replaced in a model until `undo`, or until the end of a `with`."""

    def __init__(self, replaced: list[tuple[nn.Module, str, Any]], left: list[str]) -> None:
        self._replaced = replaced
        self.left = left
        """What was found and left alone, in words."""

    @property
    def linked(self) -> list[str]:
        """Return what was replaced, such as `Attention.forward`."""
        return sorted({f"{type(m).__name__}.{name}" for m, name, _ in self._replaced})

    def undo(self) -> None:
        """Restore the methods.

        Raises:
            Stacked: if another patcher has replaced one since; nothing is changed then.
        """
        for module, name, ours in self._replaced:
            if module.__dict__.get(name) is not ours:
                raise Stacked(
                    f"{type(module).__name__}.{name} was replaced by another patcher since; undo"
                    " that one first"
                )
        for module, name, _ in self._replaced:
            del module.__dict__[name]
        self._replaced.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.undo()


def patch(model: nn.Module) -> Patch:
    """Link the attention in the methods of all modules of a model.

    Methods of people's own classes and of libraries are rewritten from their sources, for these
    instances only. Instances of torch.nn.MultiheadAttention are linked where no weights are asked
    for.

    Raises:
        Stacked: if a method to replace has been replaced before, by this or another patcher.
    """
    wanted: list[tuple[nn.Module, str, Any]] = []
    left: set[str] = set()
    known: dict[type, dict[str, Callable[..., Any]]] = {}
    for module in model.modules():
        cls = type(module)
        if cls not in known:
            known[cls], why = _methods(cls)
            left |= set(why)
        for name, function in known[cls].items():
            wanted.append((module, name, types.MethodType(function, module)))
    for module, name, _ in wanted:
        if name in module.__dict__:
            by = getattr(module.__dict__[name], "__module__", "another patcher")
            raise Stacked(f"{type(module).__name__}.{name} has been replaced already, by {by}")
    for module, name, method in wanted:
        module.__dict__[name] = method
    return Patch(wanted, sorted(left))


def _methods(cls: type) -> tuple[dict[str, Callable[..., Any]], list[str]]:
    """Return the linked methods of a class, and what is left alone."""
    if cls is nn.MultiheadAttention:
        return {"forward": _multihead()}, []
    found: dict[str, Callable[..., Any]] = {}
    left: list[str] = []
    for base in cls.__mro__:
        file = getattr(sys.modules.get(base.__module__), "__file__", None)
        if not file or base.__module__.partition(".")[0] == "torch":
            continue
        project = Project()
        try:
            text, sites = in_place(project, project.module(Path(file)), ALIAS)
        except Unreadable:
            continue
        for site in sites:
            owner, _, name = site.function.rpartition(".")
            if owner != base.__qualname__:
                continue
            if not site.edits:
                left.append(f"{site.function}: {site.finding.reason}")
            elif name not in found and base.__dict__.get(name) is getattr(cls, name, None):
                function = _compiled(text, file, base, name)
                if function is None:
                    left.append(f"{site.function}: it is decorated")
                else:
                    found[name] = function
    return found, left


def _compiled(text: str, file: str, cls: type, name: str) -> Callable[..., Any] | None:
    """Compile one method of the rewritten source; its globals and line numbers stay."""
    original = cls.__dict__[name]
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.ClassDef) or node.name != cls.__name__:
            continue
        for method in node.body:
            if isinstance(method, Function) and method.name == name:
                if method.decorator_list or not isinstance(original, types.FunctionType):
                    return None
                return _made(method, file, cls, original)
    return None


def _made(
    method: Function, file: str, cls: type, original: types.FunctionType
) -> Callable[..., Any]:
    """Make a function with the globals of the original, and what linked code calls enclosed."""
    factory = ast.parse(f"def make(__class__, {ALIAS}):\n    return {method.name}")
    outer = factory.body[0]
    assert isinstance(outer, ast.FunctionDef)
    method.returns = None
    for argument in (*method.args.posonlyargs, *method.args.args, *method.args.kwonlyargs):
        argument.annotation = None  # it may need names that exist only while a class is made
    outer.body.insert(0, method)
    scope: dict[str, Any] = {}
    exec(compile(factory, file, "exec", dont_inherit=True), original.__globals__, scope)  # noqa: S102
    made: Callable[..., Any] = scope["make"](cls, link)
    made.__defaults__ = original.__defaults__
    made.__kwdefaults__ = original.__kwdefaults__
    return made


def _multihead() -> Callable[..., Any]:
    """Return torch.nn.MultiheadAttention.forward with our attention under its fused path."""
    forward = functional.multi_head_attention_forward
    ours = {"scaled_dot_product_attention": link.scaled_dot_product_attention}
    inner = _rebound(forward, ours)
    names = types.SimpleNamespace(**vars(functional) | {"multi_head_attention_forward": inner})
    return _rebound(nn.MultiheadAttention.forward, {"F": names})


def _rebound(function: Any, names: dict[str, Any]) -> Callable[..., Any]:
    made = types.FunctionType(
        function.__code__, {**function.__globals__, **names}, function.__name__,
        function.__defaults__, function.__closure__,
    )  # fmt: skip
    made.__kwdefaults__ = function.__kwdefaults__
    return made
