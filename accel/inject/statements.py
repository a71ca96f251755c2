"""Follow the statements of one function."""

from __future__ import annotations

import ast

from gpudeck.accel.inject.callee import Place
from gpudeck.accel.inject.expressions import Expressions, Follow
from gpudeck.accel.inject.product import (
    NOTHING,
    Found,
    Names,
    Values,
    flat,
    merged,
    refuse,
    refuse_use,
)
from gpudeck.accel.inject.project import Function, code_of
from gpudeck.language.text import phrase


class Statements(Expressions):
    """Follow the values of names through the statements of one function."""

    def __init__(self, place: Place, found: Found, follow: Follow) -> None:
        super().__init__(place, found, follow)
        self.returned: Values | None = None
        self._loops = 0

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
            refuse_use(value, s, phrase("are shown"))

    def _assign(self, s: ast.Assign, names: Names) -> None:
        value = self.value(s.value, names)
        for target in s.targets:
            self.assign(target, value, names, s)
            self.share(target, s.value)

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
            refuse_use(flat(value), at, phrase("are unpacked"))
            for t in target.elts:
                self.assign(t.value if isinstance(t, ast.Starred) else t, NOTHING, names, at)
        elif isinstance(target, ast.Subscript):
            self._store(target, value, names, at)
        elif isinstance(target, ast.Attribute):
            use = phrase("are kept in {place}", place=code_of(target))
            refuse_use(flat(value), at, use)

    def _store(self, target: ast.Subscript, value: Values, names: Names, at: ast.AST) -> None:
        refuse_use(flat(value), at, phrase("are stored in a container"))
        base = flat(self.value(target.value, names))
        self.touched(target.value, names, at)
        mask = isinstance(target.slice, (ast.Name, ast.Compare, ast.Attribute)) or (
            isinstance(target.slice, ast.UnaryOp) and isinstance(target.slice.op, ast.Invert)
        )
        for product, stage in base:
            if mask and stage == "scores":
                product.step("mask")
            else:
                refuse(frozenset({(product, stage)}), at, phrase("a part of them is overwritten"))

    def _augassign(self, s: ast.AugAssign, names: Names) -> None:
        other = flat(self.value(s.value, names))
        refuse_use(other, s, phrase("are added into another tensor"))
        base = flat(self.value(s.target, names))
        if not base:
            self.touched(s.target, names, s)
        elif isinstance(s.target, ast.Name):
            self.arithmetic(base, NOTHING, s.op, s)
        else:
            refuse_use(base, s, phrase("are changed in a container"))

    def _return(self, s: ast.Return, names: Names) -> bool:
        if s.value is not None:
            value = self.value(s.value, names, collect=True)
            if self.place.depth == 0:
                refuse_use(flat(value), s, phrase("are returned"))
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
        if isinstance(s.test, ast.Constant):  # one of the branches never runs
            return self.block(s.body if s.test.value else s.orelse, names)
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
            refuse_use(flat(self.value(s.iter, names)), s, phrase("are iterated over"))
            self.assign(s.target, NOTHING, names, s)
        self._loops += 1
        for _ in range(2 if self._loops < 3 else 1):
            inner = dict(names)
            self.block(s.body, inner)
            for name, value in inner.items():
                names[name] = merged(names.get(name, NOTHING), value)
        self._loops -= 1
        self.block(s.orelse, names)

    _asyncfor = _while = _for

    def _with(self, s: ast.With | ast.AsyncWith, names: Names) -> bool:
        for item in s.items:
            refuse_use(flat(self.value(item.context_expr, names)), s, phrase("are a context"))
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
