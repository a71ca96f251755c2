"""Find what a call calls: a function, a method, or a module in an attribute of the class."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field

from gpudeck.accel.inject import vocabulary as words
from gpudeck.accel.inject.product import Names, Value, Values, flat
from gpudeck.accel.inject.project import Function, Module, Project, name_of

OTHER_SOFTMAX = "softmax over another axis"
SOFTMAXES = frozenset(("softmax", OTHER_SOFTMAX))
"""The kinds of called modules that are a softmax."""
DEEPEST = 5
"""How many helper functions are followed into each other."""


@dataclass
class Place:
    """Say where the trace is."""

    project: Project
    module: Module
    owner: ast.ClassDef | None
    function: Function
    depth: int = 0
    local: dict[str, Function] = field(default_factory=dict)
    """The functions that are defined within this one."""


@dataclass(frozen=True)
class Callee:
    """Name a function with the module and the class that define it."""

    module: Module
    owner: ast.ClassDef | None
    function: Function


@dataclass(frozen=True)
class Arguments:
    """Hold what a call passes on."""

    positional: tuple[Values, ...]
    named: dict[str, Values]
    starred: bool

    @property
    def all(self) -> Value:
        """Return the items of all arguments."""
        return flat((*self.positional, *self.named.values()))

    def bound(self, function: Function, *, method: bool) -> Names | None:
        """Return the names of the parameters; None if scores meet stars or too many arguments."""
        spec = function.args
        static = any(
            isinstance(d, ast.Name) and d.id == "staticmethod" for d in function.decorator_list
        )
        names = [a.arg for a in (*spec.posonlyargs, *spec.args)][int(method and not static) :]
        if self.all and (self.starred or len(self.positional) > len(names)):
            return None
        bound: Names = dict(zip(names, self.positional, strict=False))
        known = {*names, *(a.arg for a in spec.kwonlyargs)}
        if any(flat(value) and name not in known for name, value in self.named.items()):
            return None
        return bound | {n: v for n, v in self.named.items() if n in known}


def callees(place: Place, func: ast.expr, name: str) -> list[Callee]:
    """Return the functions that a call may run; `name` is the dotted name of `func`."""
    if isinstance(func, ast.Name):
        if func.id in place.local:
            return [Callee(place.module, None, place.local[func.id])]
        if func.id in place.module.functions:
            return [Callee(place.module, None, place.module.functions[func.id])]
    owner = place.owner
    if isinstance(func, ast.Attribute) and owner and name_of(func.value) in ("self", "cls"):
        return _member(place, place.module, owner, func.attr)
    if name and not name.startswith("torch"):
        found = place.project.home(place.module, name)
        if found and (function := found[0].functions.get(found[1])):
            return [Callee(found[0], None, function)]
    return []


def _member(place: Place, module: Module, owner: ast.ClassDef, name: str) -> list[Callee]:
    """Return a method, or the forward method of a module that an attribute holds."""
    for m, c in _bases(place.project, module, owner):
        for statement in c.body:
            if isinstance(statement, Function) and statement.name == name:
                return [Callee(m, c, statement)]
    for m, value in _attributes(place, name):
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
            made = m.classes.get(value.func.id)
            if made is not None:
                return _member(place, m, made, "forward")
    return []


def _bases(
    project: Project, module: Module, owner: ast.ClassDef, depth: int = 0
) -> list[tuple[Module, ast.ClassDef]]:
    """Return a class and the classes that it inherits from, each with its module."""
    found = [(module, owner)]
    for base in owner.bases if depth < DEEPEST else ():
        if isinstance(base, ast.Name) and base.id in module.classes:
            found += _bases(project, module, module.classes[base.id], depth + 1)
            continue
        home = project.home(module, module.dotted(base))
        inner = home[0].classes.get(home[1]) if home else None
        if home and inner:
            found += _bases(project, home[0], inner, depth + 1)
    return found


def _attributes(place: Place, name: str) -> list[tuple[Module, ast.expr]]:
    """Return everything that the class assigns to self.NAME."""
    if place.owner is None:
        return []
    return [
        (module, value)
        for module, owner in _bases(place.project, place.module, place.owner)
        for value in module.attributes(owner).get(name, ())
    ]


def axis_of(call: ast.Call, rest: Sequence[ast.expr]) -> int | None:
    """Return the axis that a softmax names: as `dim`, or first in `rest`; None if it is unknown."""
    named = [k.value for k in call.keywords if k.arg == "dim"]
    node = next(iter([*named, *rest]), None)
    sign = 1
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node, sign = node.operand, -1
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return sign * node.value
    return None


def is_other_axis(axis: int | None) -> bool:
    """Return True if an axis of scores, which have at least two, is certainly not the last one."""
    return axis is not None and (axis < -1 or axis == 0)


def _softmax(call: ast.Call, rest: Sequence[ast.expr]) -> str:
    return OTHER_SOFTMAX if is_other_axis(axis_of(call, rest)) else "softmax"


def module_kinds(place: Place, func: ast.expr) -> set[str]:
    """Return what a called module may be: softmax, dropout, identity; empty if unknown."""
    if isinstance(func, ast.Call):
        return _kinds(place.module, func)
    if not (
        isinstance(func, ast.Attribute)
        and isinstance(func.value, ast.Name)
        and func.value.id == "self"
    ):
        return set()
    kinds: set[str] = set()
    for module, value in _attributes(place, func.attr):
        found = _kinds(module, value)
        if not found:
            return set()
        kinds |= found
    return kinds


def _kinds(module: Module, value: ast.expr) -> set[str]:
    if isinstance(value, ast.IfExp):
        body, other = _kinds(module, value.body), _kinds(module, value.orelse)
        return body | other if body and other else set()
    if isinstance(value, ast.Call):
        name = module.dotted(value.func)
        if name == "functools.partial" and value.args:
            partial = module.dotted(value.args[0])
            return {_softmax(value, value.args[2:])} if partial in words.SOFTMAX else set()
        kind = words.MODULES.get(name)
        if kind == "softmax":
            kind = _softmax(value, value.args)
        return {kind} if kind else set()
    return {"softmax"} if module.dotted(value) in words.SOFTMAX else set()
