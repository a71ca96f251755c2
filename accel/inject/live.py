"""Link the attention of a live model, and take that back."""

from __future__ import annotations

import ast
import copy
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Self

from torch import nn
from torch.nn import functional

from gpudeck.accel.inject import link
from gpudeck.accel.inject.finding import Site
from gpudeck.accel.inject.project import Function, Project
from gpudeck.accel.inject.rewrite import in_place
from gpudeck.accel.inject.source import Unreadable

ALIAS = "_gpudeck"
PROCESSOR = "processor"
"""The attribute under which the attention modules of diffusers keep what computes them."""


class Stacked(RuntimeError):
    """Says that two patchers replace the same method of a module."""


class _Replaced(NamedTuple):
    module: nn.Module
    name: str
    ours: Any
    before: Any
    """What the instance had there itself, or `_CLASS_S` if it had the attribute of its class."""
    label: str


_CLASS_S = object()


class Patch:
    """Hold what was replaced in a model until `undo`, or until the end of a `with`."""

    def __init__(self, replaced: list[_Replaced], left: list[str]) -> None:
        self._replaced = replaced
        self.left = left
        """What was found and left alone, in words."""

    @property
    def linked(self) -> list[str]:
        """Return what was replaced, such as `Attention.forward`."""
        return sorted({r.label for r in self._replaced})

    def undo(self) -> None:
        """Restore the methods and processors.

        Raises:
            Stacked: if another patcher has replaced one since; nothing is changed then.
        """
        for r in self._replaced:
            if r.module.__dict__.get(r.name) is not r.ours:
                raise Stacked(
                    f"{type(r.module).__name__}.{r.name} was replaced by another patcher since;"
                    " undo that one first"
                )
        for r in self._replaced:
            if r.before is _CLASS_S:
                del r.module.__dict__[r.name]
            else:
                r.module.__dict__[r.name] = r.before
        self._replaced.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.undo()


def patch(model: nn.Module) -> Patch:
    """Link the attention in the methods of all modules of a model.

    Methods of people's own classes and of libraries are rewritten from their sources, for these
    instances only; so are the processors that the attention modules of diffusers call. Instances of
    torch.nn.MultiheadAttention are linked where no weights are asked for.

    Raises:
        Stacked: if a method to replace has been replaced before, by this or another patcher.
    """
    wanted: list[_Replaced] = []
    sources = _Sources()
    for module in model.modules():
        cls = type(module)
        for name, function in sources.methods(cls).items():
            if name in module.__dict__:
                by = getattr(module.__dict__[name], "__module__", "another patcher")
                raise Stacked(f"{cls.__name__}.{name} has been replaced already, by {by}")
            method = types.MethodType(function, module)
            wanted.append(_Replaced(module, name, method, _CLASS_S, f"{cls.__name__}.{name}"))
        if (processor := module.__dict__.get(PROCESSOR)) is not None:
            wanted += _processor(module, processor, sources)
    for r in wanted:
        r.module.__dict__[r.name] = r.ours
    return Patch(wanted, sorted(sources.left))


def _processor(module: nn.Module, before: Any, sources: _Sources) -> list[_Replaced]:
    """Return a twin of an object that a module calls, of a class whose `__call__` is linked."""
    cls = type(before)
    if getattr(cls, ALIAS, None) is link:
        raise Stacked(f"{cls.__name__}.__call__ has been replaced already, by {__name__}")
    function = sources.methods(cls).get("__call__")
    if function is None:
        return []
    twin = copy.copy(before)
    twin.__class__ = type(cls.__name__, (cls,), {"__call__": function, ALIAS: link})
    return [_Replaced(module, PROCESSOR, twin, before, f"{cls.__name__}.__call__")]


class _Sources:
    """Read each class and each file once."""

    def __init__(self) -> None:
        self.left: set[str] = set()
        self._project = Project()
        self._files: dict[str, tuple[ast.Module, list[Site]] | None] = {}
        self._methods: dict[type, dict[str, Callable[..., Any]]] = {}

    def methods(self, cls: type) -> dict[str, Callable[..., Any]]:
        """Return the linked methods of a class."""
        if cls not in self._methods:
            is_torch_s = cls is nn.MultiheadAttention
            self._methods[cls] = {"forward": _multihead()} if is_torch_s else self._linked(cls)
        return self._methods[cls]

    def _file(self, file: str) -> tuple[ast.Module, list[Site]] | None:
        """Return the rewritten tree of a file, and its attentions; None if it cannot be read."""
        if file not in self._files:
            try:
                text, sites = in_place(self._project, self._project.module(Path(file)), ALIAS)
                self._files[file] = ast.parse(text), sites
            except Unreadable:
                self._files[file] = None
        return self._files[file]

    def _linked(self, cls: type) -> dict[str, Callable[..., Any]]:
        found: dict[str, Callable[..., Any]] = {}
        for base in cls.__mro__:
            file = getattr(sys.modules.get(base.__module__), "__file__", None)
            if not file or base.__module__.partition(".")[0] == "torch":
                continue
            tree, sites = self._file(file) or (ast.Module([], []), [])
            for site in sites:
                owner, _, name = site.function.rpartition(".")
                if owner != base.__qualname__:
                    continue
                if not site.edits:
                    self.left.add(f"{site.function}: {site.finding.reason}")
                elif name not in found and base.__dict__.get(name) is getattr(cls, name, None):
                    function = _compiled(tree, file, base, name)
                    if function is None:
                        self.left.add(f"{site.function}: it is decorated")
                    else:
                        found[name] = function
        return found


def _compiled(tree: ast.Module, file: str, cls: type, name: str) -> Callable[..., Any] | None:
    """Compile one method of the rewritten source; its globals and line numbers stay."""
    original = cls.__dict__[name]
    for node in ast.walk(tree):
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
