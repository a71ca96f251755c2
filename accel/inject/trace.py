"""Follow products of queries and keys through a function, to the product with the values.

Two programs count as equal here if they compute the same real numbers wherever the original gives
finite ones; rounding may differ. The trace follows each product through names, branches, loops,
helper functions and methods. It accepts only operations that `accel.inject.rules` delays or that do
not touch the elements. Any other use of scores or weights is a problem, and an attention with a
problem is left alone.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from typing import Literal

from accel.inject import vocabulary as words
from accel.inject.finding import Edit
from accel.inject.project import Function, Module, Project, name_of

Stage = Literal["scores", "weights", "other"]
"""`other` is a softmax over something that is no product of queries and keys."""
Item = tuple["Product", Stage]
Value = frozenset[Item]
Values = Value | tuple["Values", ...]
Names = dict[str, Values]
NOTHING: Value = frozenset()
DEEPEST = 5
"""How many helper functions are followed into each other."""


@dataclass(eq=False)
class Product:
    """Collect what happens to one product."""

    module: Module
    node: ast.expr
    written: str
    """How it is written: matmul, @, einsum and so on."""
    operands: frozenset[str] = frozenset()
    steps: list[str] = field(default_factory=list)
    softmax: int = 0
    """The line of the softmax; 0 if it has not been reached."""
    used: str = ""
    """How the weights are multiplied with the values; empty if they are not."""
    problems: list[tuple[int, str]] = field(default_factory=list)
    edits: set[Edit] = field(default_factory=set)
    lines: set[int] = field(default_factory=set)
    ends: set[int] = field(default_factory=set)
    """The lines on which the weights are multiplied with the values."""

    def step(self, name: str) -> None:
        """Note an operation for the description."""
        if name not in self.steps:
            self.steps.append(name)


def flat(value: Values) -> Value:
    """Return all items of a value or of nested tuples."""
    if isinstance(value, frozenset):
        return value
    return frozenset().union(*map(flat, value)) if value else NOTHING


def merged(a: Values, b: Values) -> Values:
    """Return what a name may stand for after either of two branches."""
    if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
        return tuple(map(merged, a, b))
    return flat(a) | flat(b)


@dataclass
class Place:
    """Say where the trace is."""

    module: Module
    owner: ast.ClassDef | None
    function: Function
    depth: int = 0
    local: dict[str, Function] = field(default_factory=dict)
    """The functions that are defined within this one."""


class Trace:
    """Follow the products of one function, and of the helpers that it calls."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.products: dict[int, Product] = {}
        self.library: dict[int, tuple[ast.Call, str]] = {}
        """Library calls by the identity of their nodes, with their canonical names."""
        self.followed: set[ast.AST] = set()
        """Helpers through which scores or weights were followed."""
        self._active: list[ast.AST] = []
        self._plain: dict[ast.AST, Values] = {}
        """What helpers return that were called without scores."""

    def run(self, module: Module, owner: ast.ClassDef | None, function: Function) -> Values:
        """Follow a function whose arguments are unknown."""
        return self._function(Place(module, owner, function), _unknown(function))

    def _function(self, place: Place, names: Names) -> Values:
        self._active.append(place.function)
        body = _Body(self, place)
        body.block(place.function.body, names)
        self._active.pop()
        return NOTHING if body.returned is None else body.returned

    def follow(
        self, place: Place, call: ast.Call, found: _Callee, args: _Arguments
    ) -> Values | None:
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
        inner = Place(found.module, found.owner, found.function, place.depth + 1)
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


@dataclass(frozen=True)
class _Callee:
    module: Module
    owner: ast.ClassDef | None
    function: Function


@dataclass(frozen=True)
class _Arguments:
    """Hold what a call passes on."""

    positional: tuple[Values, ...]
    named: dict[str, Values]
    starred: bool

    @property
    def all(self) -> Value:
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


class _Body:
    """Follow the statements of one function."""

    def __init__(self, trace: Trace, place: Place) -> None:
        self.trace, self.place, self.module = trace, place, place.module
        self.returned: Values | None = None
        self.loops = 0

    # statements

    def block(self, body: list[ast.stmt], names: Names) -> bool:
        """Follow statements, changing `names`; False if what comes after is never reached."""
        for statement in body:
            handler = getattr(self, f"_{type(statement).__name__.lower()}", self._anything)
            if handler(statement, names) is False:
                return False
        return True

    def _expr(self, s: ast.Expr, names: Names) -> None:
        value = flat(self.value(s.value, names))
        if self.place.owner is None and isinstance(s.value, ast.Name):
            self.problem(value, s, "they are shown")

    def _assign(self, s: ast.Assign, names: Names) -> None:
        value = self.value(s.value, names)
        for target in s.targets:
            self.assign(target, value, names, s)

    def _annassign(self, s: ast.AnnAssign, names: Names) -> None:
        if s.value is not None:
            self.assign(s.target, self.value(s.value, names), names, s)

    def assign(self, target: ast.expr, value: Values, names: Names, at: ast.AST) -> None:
        """Bind a value to a target."""
        if isinstance(target, ast.Name):
            names[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            starred = any(isinstance(t, ast.Starred) for t in target.elts)
            if isinstance(value, tuple) and len(value) == len(target.elts) and not starred:
                for t, v in zip(target.elts, value, strict=True):
                    self.assign(t, v, names, at)
                return
            self.problem(flat(value), at, "they are unpacked")
            for t in target.elts:
                self.assign(t.value if isinstance(t, ast.Starred) else t, NOTHING, names, at)
        elif isinstance(target, ast.Subscript):
            self._store(target, value, names, at)
        elif isinstance(target, ast.Attribute):
            self.problem(flat(value), at, f"they are kept in {ast.unparse(target)}")

    def _store(self, target: ast.Subscript, value: Values, names: Names, at: ast.AST) -> None:
        self.problem(flat(value), at, "they are stored in a container")
        base = flat(self.value(target.value, names))
        self.touched(target.value, names, at)
        mask = isinstance(target.slice, (ast.Name, ast.Compare, ast.Attribute)) or (
            isinstance(target.slice, ast.UnaryOp) and isinstance(target.slice.op, ast.Invert)
        )
        for product, stage in base:
            if mask and stage == "scores":
                product.step("mask")
            else:
                self.problem(frozenset({(product, stage)}), at, "a part of them is overwritten")

    def _augassign(self, s: ast.AugAssign, names: Names) -> None:
        other = flat(self.value(s.value, names))
        self.problem(other, s, "they are added into another tensor")
        base = flat(self.value(s.target, names))
        if not base:
            self.touched(s.target, names, s)
        elif isinstance(s.target, ast.Name):
            self.arithmetic(base, NOTHING, s.op, s)
        else:
            self.problem(base, s, "they are changed in a container")

    def _return(self, s: ast.Return, names: Names) -> bool:
        if s.value is not None:
            value = self.value(s.value, names, collect=True)
            if self.place.depth == 0:
                self.problem(flat(value), s, "they are returned")
            self.returned = value if self.returned is None else merged(self.returned, value)
        return False

    def _assert(self, s: ast.Assert, names: Names) -> None:
        self.value(s.test, names)

    def _raise(self, s: ast.Raise, names: Names) -> bool:
        self._anything(s, names)
        return False

    def _continue(self, s: ast.stmt, names: Names) -> bool:
        return True  # what follows may still run in another turn of the loop

    def _if(self, s: ast.If, names: Names) -> bool:
        self.value(s.test, names)
        other = dict(names)
        here, there = self.block(s.body, names), self.block(s.orelse, other)
        if not here:
            names.clear()
            names.update(other)
        elif there:
            for name in {*names, *other}:
                names[name] = merged(names.get(name, NOTHING), other.get(name, NOTHING))
        return here or there

    def _for(self, s: ast.For | ast.AsyncFor | ast.While, names: Names) -> None:
        if isinstance(s, ast.While):
            self.value(s.test, names)
        else:
            self.problem(flat(self.value(s.iter, names)), s, "they are iterated over")
            self.assign(s.target, NOTHING, names, s)
        self.loops += 1
        for _ in range(2 if self.loops < 3 else 1):
            inner = dict(names)
            self.block(s.body, inner)
            for name, value in inner.items():
                names[name] = merged(names.get(name, NOTHING), value)
        self.loops -= 1
        self.block(s.orelse, names)

    _asyncfor = _while = _for

    def _with(self, s: ast.With | ast.AsyncWith, names: Names) -> bool:
        for item in s.items:
            self.problem(flat(self.value(item.context_expr, names)), s, "they are a context")
        return self.block(s.body, names)

    _asyncwith = _with

    def _try(self, s: ast.Try, names: Names) -> None:
        before = dict(names)
        self.block(s.body, names)
        for handler in s.handlers:
            other = {n: merged(before.get(n, NOTHING), v) for n, v in names.items()}
            self.block(handler.body, other)
            for name, value in other.items():
                names[name] = merged(names.get(name, NOTHING), value)
        self.block(s.orelse, names)
        self.block(s.finalbody, names)

    _trystar = _try

    def _functiondef(self, s: Function, names: Names) -> None:
        self.captured(s, names)
        self.place.local[s.name] = s
        names[s.name] = NOTHING

    _asyncfunctiondef = _functiondef

    def _delete(self, s: ast.Delete, names: Names) -> None:
        for target in s.targets:
            if isinstance(target, ast.Name):
                names.pop(target.id, None)

    def _anything(self, s: ast.AST, names: Names) -> None:
        self.captured(s, names)

    def captured(self, node: ast.AST, names: Names) -> Value:
        """Report scores that are named in a place that is not followed."""
        found = [flat(names.get(n.id, NOTHING)) for n in ast.walk(node) if isinstance(n, ast.Name)]
        what = type(node).__name__.lower()
        self.problem(
            frozenset().union(*found), node, f"they are used in a form ({what}) not followed"
        )
        return NOTHING

    def problem(self, value: Value, node: ast.AST, why: str) -> None:
        """Note why the attentions that `value` belongs to are left alone."""
        line = getattr(node, "lineno", 0)
        for product, stage in value:
            noun = "scores" if stage == "scores" else "weights"
            text = re.sub(r"^they\b", f"the attention {noun}", why)
            if (line, text) not in product.problems:
                product.problems.append((line, text))

    def touched(self, target: ast.expr, names: Names, at: ast.AST) -> None:
        """Report the change in place of something that pending scores were made of."""
        while isinstance(target, (ast.Subscript, ast.Attribute)):
            target = target.value
        if not isinstance(target, ast.Name):
            return
        pending = frozenset().union(*map(flat, names.values())) if names else NOTHING
        for product, stage in pending:
            if target.id in product.operands and not flat(names.get(target.id, NOTHING)):
                why = f"{target.id} is changed in place before the scores are used"
                self.problem(frozenset({(product, stage)}), at, why)

    # expressions

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
                    self.problem(found, node, "they are collected")
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
            self.problem(base, node, f".{node.attr} is taken of them")
        return NOTHING

    def _subscript(self, node: ast.Subscript, names: Names) -> Values:
        base = self.value(node.value, names)
        index = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if isinstance(base, tuple) and isinstance(index, int) and -len(base) <= index < len(base):
            return base[index]
        self.problem(flat(base), node, "a part of them is taken")
        self.problem(flat(self.value(node.slice, names)), node, "they are an index")
        return NOTHING

    def _slice(self, node: ast.Slice, names: Names) -> Values:
        return self.captured(node, names)

    def _unaryop(self, node: ast.UnaryOp, names: Names) -> Values:
        self.problem(flat(self.value(node.operand, names)), node, "they are negated")
        return NOTHING

    def _compare(self, node: ast.Compare, names: Names) -> Values:
        identity = all(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops)
        for side in (node.left, *node.comparators):
            if not identity:
                self.problem(flat(self.value(side, names)), node, "they are compared")
        return NOTHING

    def _boolop(self, node: ast.BoolOp, names: Names) -> Values:
        for side in node.values:
            self.problem(flat(self.value(side, names)), node, "they are tested")
        return NOTHING

    def _binop(self, node: ast.BinOp, names: Names) -> Values:
        left, right = (flat(self.value(side, names)) for side in (node.left, node.right))
        if isinstance(node.op, ast.MatMult):
            return self.product(node, "@", (node.left, left), (node.right, right))
        return self.arithmetic(left, right, node.op, node, node.left, node.right)

    def arithmetic(
        self, left: Value, right: Value, op: ast.operator, at: ast.AST, *sides: ast.expr
    ) -> Value:
        """Scale scores or add a bias."""
        if not left and not right:
            return NOTHING
        turned = bool(right) and not isinstance(op, (ast.Mult, ast.Add))
        if turned or not isinstance(op, (ast.Mult, ast.Add, ast.Div, ast.Sub)):
            self.problem(left | right, at, f"{ast.unparse(at)[:60]} is no scale or bias")
            return NOTHING
        if left and right:
            adds = isinstance(op, (ast.Add, ast.Sub))
            why = (
                "they are a bias of other scores" if adds else "two tensors of scores are combined"
            )
            self.problem(right if adds else left | right, at, why)
        value = left or right
        name = "scale" if isinstance(op, (ast.Mult, ast.Div)) else "bias"
        for item in value:
            if item[1] == "scores":
                item[0].step(name)
                item[0].operands |= _names(*sides)
            else:
                self.problem(frozenset({item}), at, "they are changed after the softmax")
        return value

    def product(
        self, node: ast.expr, written: str, a: tuple[ast.expr, Value], b: tuple[ast.expr, Value]
    ) -> Value:
        """Make a product, or use weights in one."""
        both = a[1] | b[1]
        ready = frozenset(item for item in both if item[1] != "scores")
        self.problem(both - ready, node, "they go into another product before a softmax")
        if ready and _mixes_heads(node, weights_first=bool(a[1])):
            self.problem(ready, node, "they are mixed between heads")
        if a[1] and b[1]:
            self.problem(ready, node, "they are multiplied with scores")
        for product, _ in ready:
            product.used = written
            product.lines.add(node.lineno)
            product.ends |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
            if written == "@":
                if product.module is self.module:
                    product.edits |= self._operator(node, "attend")
                else:
                    where = self.module.source.path.name
                    self.problem(ready, node, f"they are used by @ in {where}, outside this file")
        if ready:
            return NOTHING
        made = self.trace.products.get(id(node))
        if made is None:
            made = Product(self.module, node, written, _names(a[0], b[0]))
            made.edits |= self._operator(node, "matmul") if written == "@" else self._renamed(node)
            if not made.edits:
                self.problem(frozenset({(made, "scores")}), node, "it is called in an unusual way")
            self.trace.products[id(node)] = made
        if both:
            nested = frozenset({(made, "scores")})
            self.problem(nested, node, "they are made of other scores")  # type: ignore[arg-type]
        made.lines.add(node.lineno)
        return frozenset({(made, "scores")})

    def _operator(self, node: ast.expr, name: str) -> set[Edit]:
        """Return the changes that turn a @ b into a call."""
        assert isinstance(node, ast.BinOp)
        start, end = self.module.span(node)
        left, right = self.module.span(node.left)[1], self.module.span(node.right)[0]
        between = re.sub(r"#[^\n]*", lambda m: "#" * len(m[0]), self.module.source.text[left:right])
        at = left + between.index("@")
        before = len(between[: between.index("@")]) - len(between[: between.index("@")].rstrip(" "))
        return {
            Edit(start, start, f"{{link}}.{name}("),
            Edit(at - before, at + 1, ","),
            Edit(end, end, ")"),
        }

    def _renamed(self, node: ast.expr) -> set[Edit]:
        """Return the changes that let a call of a product call ours."""
        assert isinstance(node, ast.Call)
        start, end = self.module.span(node.func)
        if operation := words.operation(self.module.dotted(node.func)):
            allowed = {"beta", "alpha"} if operation == "baddbmm" else set()
            plain = {k.arg for k in node.keywords} <= allowed
            return {Edit(start, end, f"{{link}}.{operation}")} if plain else set()
        if not isinstance(node.func, ast.Attribute) or node.keywords or len(node.args) != 1:
            return set()
        base = self.module.span(node.func.value)[1]
        first = self.module.span(node.args[0])[0]
        between = self.module.source.text[base:first]
        found = re.search(r"\s*\.\s*" + node.func.attr + r"\s*\(\s*", between)
        if found is None:
            return set()
        return {
            Edit(start, start, f"{{link}}.{node.func.attr}("),
            Edit(base + found.start(), base + found.end(), ", "),
        }

    # calls

    def _call(self, node: ast.Call, names: Names) -> Values:
        args = _Arguments(
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
            self.trace.library[id(node)] = (node, canonical)
        if name.startswith(words.LINK):
            return NOTHING
        if operation := words.operation(name):
            return self._torch(node, name, operation, args, names)
        if isinstance(node.func, ast.Attribute):
            base = flat(self.value(node.func.value, names))
            if base or (node.func.attr in words.PRODUCTS and not name):
                return self._method(node, node.func.attr, base, args, names)
            if node.func.attr == "softmax" and not name and not args.all:
                return self.other(node)
            if node.func.attr.endswith("_") and not node.func.attr.endswith("__"):
                self.touched(node.func.value, names, node)
        return self._helper(node, name, args, names)

    def _torch(
        self, node: ast.Call, name: str, operation: str, args: _Arguments, names: Names
    ) -> Values:
        if operation in words.PRODUCTS:
            sides = _sides(node, operation)
            if sides is None or args.starred:
                self.problem(args.all, node, "they go into an unusual product")
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
                    self.problem(args.all, node, "they are selected after the softmax")
                product.operands |= _names(*node.args)
            return args.all
        first = flat(args.positional[0]) if args.positional else NOTHING
        if first and args.all - first:
            self.problem(args.all, node, "two tensors of scores are combined")
        return self.applied(node, operation, first or args.all, names, node.args[1:])

    def _method(
        self, node: ast.Call, operation: str, base: Value, args: _Arguments, names: Names
    ) -> Values:
        assert isinstance(node.func, ast.Attribute)
        if operation in words.PRODUCTS - {"einsum", "baddbmm"} and len(node.args) == 1:
            other = flat(args.positional[0])
            return self.product(node, operation, (node.func.value, base), (node.args[0], other))
        if not base:
            self.problem(args.all, node, "they go into an unusual product")
            return NOTHING
        self.problem(args.all, node, "two tensors of scores are combined")
        return self.applied(node, operation, base, names, node.args)

    def applied(
        self, node: ast.Call, operation: str, value: Value, names: Names, rest: list[ast.expr]
    ) -> Value:
        """Apply an operation to scores or weights."""
        plain = operation.removesuffix("_")
        if plain != operation and plain not in (*words.SCALES, *words.MASKS):
            plain = operation
        if plain in words.FACTS:
            return NOTHING
        if plain == "softmax":
            return self.normalised(node, value)
        if plain == "dropout":
            return self.dropped(node, value)
        for item in value:
            item[0].lines.add(node.lineno)
            before = item[1] == "scores"
            if plain in words.SCALES and before:
                item[0].step(words.SCALES[plain])
            elif plain in words.MASKS and before:
                item[0].step("mask")
            elif plain == "tanh" and before:
                item[0].step("cap by tanh")
            elif plain in words.LAYOUT:
                item[0].step("change of layout")
            elif plain in words.CASTS:
                item[0].step("change of precision")
            elif not (plain == "nan_to_num" and not before):
                why = words.REFUSED.get(plain, f"{plain} is applied to them")
                self.problem(frozenset({item}), node, why)
            item[0].operands |= _names(*rest)
        return self.normalised(node, value) if "softmax" in plain else value

    def normalised(self, node: ast.Call, value: Value) -> Value:
        """Apply a softmax."""
        for product, stage in value:
            product.lines.add(node.lineno)
            if stage != "scores":
                self.problem(frozenset({(product, stage)}), node, "they are normalised twice")
            product.softmax = product.softmax or node.lineno
        return frozenset((product, "weights") for product, _ in value)

    def other(self, node: ast.Call) -> Value:
        """Note a softmax over something that is no product."""
        made = self.trace.products.get(id(node))
        if made is None:
            made = self.trace.products[id(node)] = Product(self.module, node, "softmax")
            made.softmax = node.lineno
        return frozenset({(made, "other")})

    def dropped(self, node: ast.Call, value: Value) -> Value:
        """Apply the function dropout."""
        given = {k.arg: k.value for k in node.keywords}
        rest = dict(zip(("p", "training"), node.args[1:], strict=False)) | given
        p, training = rest.get("p"), rest.get("training", ast.Constant(True))
        never = isinstance(p, ast.Constant) and p.value == 0
        if not never and isinstance(training, ast.Constant) and training.value:
            self.problem(value, node, "dropout is always active")
        for product, _ in value:
            product.step("dropout")
        return value

    def _helper(self, node: ast.Call, name: str, args: _Arguments, names: Names) -> Values:
        kinds = self._module_kinds(node.func)
        if kinds == {"softmax"} and not args.all:
            return self.other(node)
        if args.all and kinds and (kinds == {"softmax"} or "softmax" not in kinds):
            return self._called_module(node, kinds, args.all)
        if name == "einops.rearrange" and args.all:
            return self._rearranged(node, args.all)
        for found in self._callees(node.func, name):
            followed = self.trace.follow(self.place, node, found, args)
            if followed is not None:
                return followed
        if args.all:
            called = ast.unparse(node.func)[:40]
            why = words.REFUSED.get(called.rpartition(".")[2], f"they are passed to {called}()")
            self.problem(args.all, node, why)
            # it is followed further, so that it is listed
            return self.normalised(node, args.all) if "softmax" in called else args.all
        return NOTHING

    def _called_module(self, node: ast.Call, kinds: set[str], value: Value) -> Value:
        if kinds == {"softmax"}:
            return self.normalised(node, value)
        if isinstance(node.func, ast.Call) and "dropout" in kinds:
            self.problem(value, node, "a new Dropout is always active")
        for product, _ in value:
            product.step("dropout")
        return value

    def _rearranged(self, node: ast.Call, value: Value) -> Value:
        for product, _ in value:
            product.step("change of layout")
            if product.module is self.module:
                product.edits.add(Edit(*self.module.span(node.func), "{link}.rearrange"))
            else:
                self.problem(value, node, "they are rearranged outside this file")
        return value

    def _callees(self, func: ast.expr, name: str) -> list[_Callee]:
        if isinstance(func, ast.Name):
            if func.id in self.place.local:
                return [_Callee(self.module, None, self.place.local[func.id])]
            if func.id in self.module.functions:
                return [_Callee(self.module, None, self.module.functions[func.id])]
        owner = self.place.owner
        if isinstance(func, ast.Attribute) and owner and name_of(func.value) in ("self", "cls"):
            return self._member(self.module, owner, func.attr)
        if name and not name.startswith("torch"):
            found = self.trace.project.home(self.module, name)
            if found and (function := found[0].functions.get(found[1])):
                return [_Callee(found[0], None, function)]
        return []

    def _member(self, module: Module, owner: ast.ClassDef, name: str) -> list[_Callee]:
        """Return a method, or the forward method of a module that an attribute holds."""
        for m, c in self._bases(module, owner):
            for statement in c.body:
                if isinstance(statement, Function) and statement.name == name:
                    return [_Callee(m, c, statement)]
        for m, value in self._attributes(name):
            if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
                made = m.classes.get(value.func.id)
                if made is not None:
                    return self._member(m, made, "forward")
        return []

    def _bases(
        self, module: Module, owner: ast.ClassDef, depth: int = 0
    ) -> list[tuple[Module, ast.ClassDef]]:
        found = [(module, owner)]
        for base in owner.bases if depth < DEEPEST else ():
            if isinstance(base, ast.Name) and base.id in module.classes:
                found += self._bases(module, module.classes[base.id], depth + 1)
                continue
            home = self.trace.project.home(module, module.dotted(base))
            inner = home[0].classes.get(home[1]) if home else None
            if home and inner:
                found += self._bases(home[0], inner, depth + 1)
        return found

    def _attributes(self, name: str) -> list[tuple[Module, ast.expr]]:
        """Return everything that the class assigns to self.NAME."""
        if self.place.owner is None:
            return []
        return [
            (module, value)
            for module, owner in self._bases(self.module, self.place.owner)
            for value in module.attributes(owner).get(name, ())
        ]

    def _module_kinds(self, func: ast.expr) -> set[str]:
        """Return what a called module may be: softmax, dropout, identity; empty if unknown."""
        if isinstance(func, ast.Call):
            return _kinds(self.module, func)
        if not (
            isinstance(func, ast.Attribute)
            and isinstance(func.value, ast.Name)
            and func.value.id == "self"
        ):
            return set()
        kinds: set[str] = set()
        for module, value in self._attributes(func.attr):
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
            return {"softmax"} if partial in words.SOFTMAX else set()
        kind = words.MODULES.get(name)
        return {kind} if kind else set()
    return {"softmax"} if module.dotted(value) in words.SOFTMAX else set()


def _sides(node: ast.Call, operation: str) -> tuple[ast.expr, ast.expr] | None:
    """Return the two factors of a product that is called as a function."""
    first = {"einsum": 1, "baddbmm": 1}.get(operation, 0)
    sides = node.args[first:]
    if len(sides) == 1 and isinstance(sides[0], (ast.List, ast.Tuple)):
        sides = sides[0].elts
    return (sides[0], sides[1]) if len(sides) == 2 else None


def _mixes_heads(node: ast.expr, *, weights_first: bool) -> bool:
    """Return True for an einsum of weights with a matrix over another axis than the last one."""
    text = node.args[0] if isinstance(node, ast.Call) and node.args else None
    if not isinstance(text, ast.Constant) or not isinstance(text.value, str):
        return False
    inputs, _, out = text.value.replace(" ", "").partition("->")
    a, _, b = inputs.partition(",")
    weights, matrix = (a, b) if weights_first else (b, a)
    summed = set(weights) & set(matrix) - set(out)
    return len(weights) > 2 and len(matrix) == 2 and weights[-1] not in summed


def _names(*nodes: ast.AST) -> frozenset[str]:
    return frozenset(n.id for node in nodes for n in ast.walk(node) if isinstance(n, ast.Name))
