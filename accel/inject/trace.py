"""Follow products of queries and keys through a function, to the product with the values.

Two programs count as equal here if they compute the same real numbers wherever the original gives
finite ones; rounding may differ. The trace follows each product through names, branches, loops,
helper functions and methods. It accepts only operations that `gpudeck.accel.inject.rules` delays or
that do not touch the elements. Any other use of scores or weights is a problem, and an attention
with a problem is left alone.
"""

from __future__ import annotations

import ast

from gpudeck.accel.inject.callee import DEEPEST, Arguments, Callee, Place
from gpudeck.accel.inject.product import NOTHING, Found, Names, Values, flat
from gpudeck.accel.inject.project import Function, Module, Project
from gpudeck.accel.inject.statements import Statements


class Trace:
    """Follow the products of one function, and of the helpers that it calls."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.found = Found()
        self.followed: set[ast.AST] = set()
        """Helpers through which scores or weights were followed."""
        self._active: list[ast.AST] = []
        self._plain: dict[ast.AST, Values] = {}
        """What helpers return that were called without scores."""

    def run(self, module: Module, owner: ast.ClassDef | None, function: Function) -> Values:
        """Follow a function whose arguments are unknown."""
        return self._function(Place(self.project, module, owner, function), _unknown(function))

    def _function(self, place: Place, names: Names) -> Values:
        self._active.append(place.function)
        body = Statements(place, self.found, self._follow)
        body.block(place.function.body, names)
        self._active.pop()
        return NOTHING if body.returned is None else body.returned

    def _follow(self, place: Place, found: Callee, args: Arguments) -> Values | None:
        """Follow a call into a helper; None if its arguments cannot be matched."""
        if place.depth >= DEEPEST or found.function in self._active:
            return None
        names = args.bound(found.function, method=found.owner is not None)
        if names is None:
            return None
        if not args.all and found.function in self._plain:
            return self._plain[found.function]
        if any(flat(value) for value in names.values()):
            self.followed.add(found.function)
        inner = Place(self.project, found.module, found.owner, found.function, place.depth + 1)
        returned = self._function(inner, _unknown(found.function) | names)
        if flat(returned):
            self.followed.add(found.function)
        if not args.all:
            self._plain[found.function] = returned
        return returned


def _unknown(function: Function) -> Names:
    """Return the parameters of a function as names of which nothing is known."""
    spec = function.args
    listed = (*spec.posonlyargs, *spec.args, *spec.kwonlyargs, spec.vararg, spec.kwarg)
    return {a.arg: NOTHING for a in listed if a is not None}
