"""Apply the operations of attention to products, scores and weights."""

from __future__ import annotations

import ast

from gpudeck.accel.inject import vocabulary as words
from gpudeck.accel.inject.callee import OTHER_SOFTMAX, SOFTMAXES, Place, axis_of, is_other_axis
from gpudeck.accel.inject.edits import call_edits, operator_edits
from gpudeck.accel.inject.finding import Edit
from gpudeck.accel.inject.product import (
    NOTHING,
    Found,
    Product,
    Value,
    names_in,
    refuse,
    refuse_use,
)
from gpudeck.accel.inject.project import code_of
from gpudeck.language.text import phrase


class Operations:
    """Note in each product what is done to it, and refuse what is no part of attention."""

    def __init__(self, place: Place, found: Found) -> None:
        self.place, self.module, self.found = place, place.module, found

    def arithmetic(
        self, left: Value, right: Value, op: ast.operator, at: ast.AST, *sides: ast.expr
    ) -> Value:
        """Scale scores or add a bias."""
        if not left and not right:
            return NOTHING
        turned = bool(right) and not isinstance(op, (ast.Mult, ast.Add))
        if turned or not isinstance(op, (ast.Mult, ast.Add, ast.Div, ast.Sub)):
            refuse(left | right, at, phrase("{code} is no scale or bias", code=code_of(at)))
            return NOTHING
        if left and right:
            adds = isinstance(op, (ast.Add, ast.Sub))
            if adds:
                refuse_use(right, at, phrase("are a bias of other scores"))
            else:
                refuse(left | right, at, phrase("two tensors of scores are combined"))
        value = left or right
        name = "scale" if isinstance(op, (ast.Mult, ast.Div)) else "bias"
        for item in value:
            if item[1] == "scores":
                item[0].step(name)
                item[0].operands |= names_in(*sides)
            else:
                refuse_use(frozenset({item}), at, phrase("are changed after the softmax"))
        return value

    def product(
        self, node: ast.expr, written: str, a: tuple[ast.expr, Value], b: tuple[ast.expr, Value]
    ) -> Value:
        """Make a product, or use weights in one."""
        both = a[1] | b[1]
        ready = frozenset(item for item in both if item[1] != "scores")
        refuse_use(both - ready, node, phrase("go into another product before a softmax"))
        if ready and _mixes_heads(node, weights_first=bool(a[1])):
            refuse_use(ready, node, phrase("are mixed between heads"))
        if a[1] and b[1]:
            refuse_use(ready, node, phrase("are multiplied with scores"))
        for product, _ in ready:
            product.used = written
            product.lines.add(node.lineno)
            product.ends |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
            if written == "@":
                if product.module is self.module:
                    product.edits |= operator_edits(self.module, node, "attend")
                else:
                    where = self.module.source.path.name
                    use = phrase("are used by @ in {file}, outside this file", file=where)
                    refuse_use(ready, node, use)
        if ready:
            return NOTHING
        made = self.found.products.get(id(node))
        if made is None:
            made = Product(self.module, node, written, names_in(a[0], b[0]))
            made.edits |= (
                operator_edits(self.module, node, "scores")
                if written == "@"
                else call_edits(self.module, node)
            )
            if not made.edits:
                refuse(
                    frozenset({(made, "scores")}), node, phrase("it is called in an unusual way")
                )
            self.found.products[id(node)] = made
        if both:
            nested = frozenset({(made, "scores")})
            refuse_use(nested, node, phrase("are made of other scores"))  # type: ignore[arg-type]
        made.lines.add(node.lineno)
        return frozenset({(made, "scores")})

    def applied(self, node: ast.Call, operation: str, value: Value, rest: list[ast.expr]) -> Value:
        """Apply an operation to scores or weights."""
        plain = operation.removesuffix("_")
        if plain != operation and plain not in (*words.SCALES, *words.MASKS):
            plain = operation
        if plain in words.FACTS:
            return NOTHING
        if plain == "softmax":
            return self.normalised(node, value, other_axis=is_other_axis(axis_of(node, rest)))
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
                applied = phrase("{operation} is applied to them", operation=plain)
                why = words.REFUSED.get(plain, applied)
                refuse(frozenset({item}), node, why)
            item[0].operands |= names_in(*rest)
        return self.normalised(node, value) if "softmax" in plain else value

    def normalised(self, node: ast.Call, value: Value, *, other_axis: bool = False) -> Value:
        """Apply a softmax.

        Args:
            other_axis: it is not over the last axis, as far as can be told.
        """
        for product, stage in value:
            # a layout or an equation may have put the keys on another axis
            if (
                other_axis
                and product.written != "einsum"
                and "change of layout" not in product.steps
            ):
                refuse_use(
                    frozenset({(product, stage)}), node, phrase("are normalised over another axis")
                )
            product.lines.add(node.lineno)
            if stage != "scores":
                refuse_use(frozenset({(product, stage)}), node, phrase("are normalised twice"))
            product.softmax = product.softmax or node.lineno
        return frozenset((product, "weights") for product, _ in value)

    def other(self, node: ast.Call) -> Value:
        """Note a softmax over something that is no product."""
        made = self.found.products.get(id(node))
        if made is None:
            made = self.found.products[id(node)] = Product(self.module, node, "softmax")
            made.softmax = node.lineno
        return frozenset({(made, "other")})

    def dropped(self, node: ast.Call, value: Value) -> Value:
        """Apply the function dropout."""
        given = {k.arg: k.value for k in node.keywords}
        rest = dict(zip(("p", "training"), node.args[1:], strict=False)) | given
        p, training = rest.get("p"), rest.get("training", ast.Constant(True))
        never = isinstance(p, ast.Constant) and p.value == 0
        if not never and isinstance(training, ast.Constant) and training.value:
            refuse(value, node, phrase("dropout is always active"))
        for product, _ in value:
            product.step("dropout")
        return value

    def called_module(self, node: ast.Call, kinds: set[str], value: Value) -> Value:
        """Apply a module that may be softmax, dropout or identity."""
        if kinds <= SOFTMAXES:
            return self.normalised(node, value, other_axis=OTHER_SOFTMAX in kinds)
        if isinstance(node.func, ast.Call) and "dropout" in kinds:
            refuse(value, node, phrase("a new Dropout is always active"))
        for product, _ in value:
            product.step("dropout")
        return value

    def rearranged(self, node: ast.Call, value: Value) -> Value:
        """Apply einops.rearrange."""
        for product, _ in value:
            product.step("change of layout")
            if product.module is self.module:
                product.edits.add(Edit(*self.module.span(node.func), "{link}.rearrange"))
            else:
                refuse_use(value, node, phrase("are rearranged outside this file"))
        return value


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
