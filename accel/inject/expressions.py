"""Follow expressions and calls."""

from __future__ import annotations

import ast
from collections.abc import Callable

from gpudeck.accel.inject import vocabulary as words
from gpudeck.accel.inject.callee import (
    SOFTMAXES,
    Arguments,
    Callee,
    Place,
    callees,
    module_kinds,
)
from gpudeck.accel.inject.operations import Operations
from gpudeck.accel.inject.product import (
    NOTHING,
    Found,
    Names,
    Value,
    Values,
    flat,
    merged,
    names_in,
    refuse,
    refuse_use,
)
from gpudeck.accel.inject.project import code_of
from gpudeck.language.text import phrase

Follow = Callable[[Place, Callee, Arguments], Values | None]
"""Follows a call into a helper; None if it cannot."""


class Expressions(Operations):
    """Find what the expressions of one function stand for."""

    def __init__(self, place: Place, found: Found, follow: Follow) -> None:
        super().__init__(place, found)
        self._follow = follow
        self._sharing: dict[str, str] = {}
        """Names of views, and of other names of a tensor, with the name that they are views of."""

    def value(self, node: ast.expr, names: Names, collect: bool = False) -> Values:
        """Follow an expression. With `collect`, a dict or list of scores is returned as a tuple."""
        if isinstance(node, ast.Name):
            return names.get(node.id, NOTHING)
        if isinstance(node, ast.Tuple) or (collect and isinstance(node, ast.List)):
            return tuple(self.value(e, names) for e in node.elts)
        handler = getattr(self, f"_{type(node).__name__.lower()}", None)
        if isinstance(node, (ast.BinOp, ast.Call, ast.Attribute, ast.Subscript, ast.IfExp,
                             ast.NamedExpr, ast.UnaryOp, ast.Compare, ast.BoolOp)):  # fmt: skip
            assert handler is not None
            result: Values = handler(node, names)
            return result
        if isinstance(node, ast.Constant):
            return NOTHING
        if isinstance(node, ast.Starred):
            return self.value(node.value, names)
        if isinstance(node, (ast.List, ast.Set, ast.Dict, ast.JoinedStr)):
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.expr):
                    found = flat(self.value(child, names))
                    refuse_use(found, node, phrase("are collected"))
            return NOTHING
        return self.captured(node, names)

    def _ifexp(self, node: ast.IfExp, names: Names) -> Values:
        self.value(node.test, names)
        return merged(self.value(node.body, names), self.value(node.orelse, names))

    def _namedexpr(self, node: ast.NamedExpr, names: Names) -> Values:
        value = self.value(node.value, names)
        names[node.target.id] = value
        return value

    def _attribute(self, node: ast.Attribute, names: Names) -> Values:
        base = flat(self.value(node.value, names))
        if node.attr not in words.FACT_ATTRIBUTES:
            refuse(base, node, phrase("{attribute} is taken of them", attribute=f".{node.attr}"))
        return NOTHING

    def _subscript(self, node: ast.Subscript, names: Names) -> Values:
        base = self.value(node.value, names)
        index = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if isinstance(base, tuple) and isinstance(index, int) and -len(base) <= index < len(base):
            return base[index]
        refuse(flat(base), node, phrase("a part of them is taken"))
        refuse_use(flat(self.value(node.slice, names)), node, phrase("are an index"))
        return NOTHING

    def _slice(self, node: ast.Slice, names: Names) -> Values:
        return self.captured(node, names)

    def _unaryop(self, node: ast.UnaryOp, names: Names) -> Values:
        refuse_use(flat(self.value(node.operand, names)), node, phrase("are negated"))
        return NOTHING

    def _compare(self, node: ast.Compare, names: Names) -> Values:
        identity = all(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops)
        for side in (node.left, *node.comparators):
            if not identity:
                refuse_use(flat(self.value(side, names)), node, phrase("are compared"))
        return NOTHING

    def _boolop(self, node: ast.BoolOp, names: Names) -> Values:
        for side in node.values:
            refuse_use(flat(self.value(side, names)), node, phrase("are tested"))
        return NOTHING

    def _binop(self, node: ast.BinOp, names: Names) -> Values:
        left, right = (flat(self.value(side, names)) for side in (node.left, node.right))
        if isinstance(node.op, ast.MatMult):
            return self.product(node, "@", (node.left, left), (node.right, right))
        return self.arithmetic(left, right, node.op, node, node.left, node.right)

    def captured(self, node: ast.AST, names: Names) -> Value:
        """Report scores that are named in a place that is not followed."""
        found = [flat(names.get(n.id, NOTHING)) for n in ast.walk(node) if isinstance(n, ast.Name)]
        what = type(node).__name__.lower()
        use = phrase("are used in a form ({what}) not followed", what=what)
        refuse_use(frozenset().union(*found), node, use)
        return NOTHING

    def share(self, target: ast.expr, of: ast.expr) -> None:
        """Note that names stand for views of one tensor."""
        while not isinstance(of, ast.Name):
            if isinstance(of, ast.Call) and isinstance(of.func, ast.Attribute):
                of = of.func
            elif isinstance(of, ast.Attribute) and of.attr not in words.VIEWS:
                return
            elif isinstance(of, (ast.Attribute, ast.Subscript)):
                of = of.value
            else:
                return
        for name in ast.walk(target):
            if isinstance(name, ast.Name) and name.id != of.id:
                self._sharing[name.id] = self._root(of.id)

    def _root(self, name: str) -> str:
        return self._sharing.get(name, name)

    def touched(self, target: ast.expr, names: Names, at: ast.AST) -> None:
        """Report the change in place of something that pending scores were made of."""
        while isinstance(target, (ast.Subscript, ast.Attribute, ast.Call)):
            target = target.func if isinstance(target, ast.Call) else target.value
        if not isinstance(target, ast.Name):
            return
        pending = frozenset().union(*map(flat, names.values())) if names else NOTHING
        changed = self._root(target.id)
        for product, stage in pending:
            shared = {self._root(name) for name in product.operands}
            if changed in shared and not flat(names.get(target.id, NOTHING)):
                why = phrase(
                    "{name} is changed in place before the scores are used", name=target.id
                )
                refuse(frozenset({(product, stage)}), at, why)

    def _call(self, node: ast.Call, names: Names) -> Values:
        args = Arguments(
            tuple(self.value(a, names) for a in node.args),
            {k.arg or "**": self.value(k.value, names) for k in node.keywords},
            any(isinstance(a, ast.Starred) for a in node.args)
            or any(k.arg is None for k in node.keywords),
        )
        if isinstance(node.func, ast.Call):
            self.value(node.func, names)
        name = self.module.dotted(node.func)
        if isinstance(node.func, ast.Name) and node.func.id in names:
            name = ""  # the function has a name of its own for something else
        canonical = words.canonical(name)
        if canonical == words.SDPA or canonical in words.LIBRARY:
            self.found.library[id(node)] = (node, canonical)
        if name.startswith(words.LINK):
            return NOTHING
        if operation := words.operation(name):
            return self._torch(node, name, operation, args, names)
        if isinstance(node.func, ast.Attribute):
            base = flat(self.value(node.func.value, names))
            if base or (node.func.attr in words.PRODUCTS and not name):
                return self._method(node, node.func.attr, base, args)
            if node.func.attr == "softmax" and not name and not args.all:
                return self.other(node)
            if node.func.attr.endswith("_") and not node.func.attr.endswith("__"):
                self.touched(node.func.value, names, node)
        return self._helper(node, name, args, names)

    def _torch(
        self, node: ast.Call, name: str, operation: str, args: Arguments, names: Names
    ) -> Values:
        if operation in words.PRODUCTS:
            sides = _sides(node, operation)
            if sides is None or args.starred:
                refuse_use(args.all, node, phrase("go into an unusual product"))
                return NOTHING
            a, b = ((side, flat(self.value(side, names))) for side in sides)
            return self.product(node, operation, a, b)
        if not args.all:
            return self.other(node) if name in words.SOFTMAX else NOTHING
        if operation == "where":
            masked = not flat(args.positional[:1])
            for product, stage in args.all:
                good = masked and stage == "scores"
                product.step("mask")
                if not good:
                    refuse_use(args.all, node, phrase("are selected after the softmax"))
                product.operands |= names_in(*node.args)
            return args.all
        first = flat(args.positional[0]) if args.positional else NOTHING
        if first and args.all - first:
            refuse(args.all, node, phrase("two tensors of scores are combined"))
        return self.applied(node, operation, first or args.all, node.args[1:])

    def _method(self, node: ast.Call, operation: str, base: Value, args: Arguments) -> Values:
        assert isinstance(node.func, ast.Attribute)
        if operation in words.PRODUCTS - {"einsum", "baddbmm"} and len(node.args) == 1:
            other = flat(args.positional[0])
            return self.product(node, operation, (node.func.value, base), (node.args[0], other))
        if not base:
            refuse_use(args.all, node, phrase("go into an unusual product"))
            return NOTHING
        refuse(args.all, node, phrase("two tensors of scores are combined"))
        return self.applied(node, operation, base, node.args)

    def _helper(self, node: ast.Call, name: str, args: Arguments, names: Names) -> Values:
        kinds = module_kinds(self.place, node.func)
        if kinds and kinds <= SOFTMAXES and not args.all:
            return self.other(node)
        if args.all and kinds and (kinds <= SOFTMAXES or not kinds & SOFTMAXES):
            return self.called_module(node, kinds, args.all)
        if name == "einops.rearrange" and args.all:
            return self.rearranged(node, args.all)
        for found in callees(self.place, node.func, name):
            followed = self._follow(self.place, found, args)
            if followed is not None:
                return followed
        if args.all:
            called = code_of(node.func)
            why = words.REFUSED.get(called.rpartition(".")[2])
            if why is not None:
                refuse(args.all, node, why)
            else:
                use = phrase("are passed to {function}", function=f"{called}()")
                refuse_use(args.all, node, use)
            # it is followed further, so that it is listed
            return self.normalised(node, args.all) if "softmax" in called else args.all
        return NOTHING


def _sides(node: ast.Call, operation: str) -> tuple[ast.expr, ast.expr] | None:
    """Return the two factors of a product that is called as a function."""
    first = {"einsum": 1, "baddbmm": 1}.get(operation, 0)
    sides = node.args[first:]
    if len(sides) == 1 and isinstance(sides[0], (ast.List, ast.Tuple)):
        sides = sides[0].elts
    return (sides[0], sides[1]) if len(sides) == 2 else None
