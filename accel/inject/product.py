"""Hold a product of queries and keys, and what a value in people's code may contain of it."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Literal

from gpudeck.accel.inject.finding import Edit
from gpudeck.accel.inject.project import Module
from gpudeck.language.text import Text, mark_phrase, phrase

Stage = Literal["scores", "weights", "other"]
"""`other` is a softmax over something that is no product of queries and keys."""
Item = tuple["Product", Stage]
Value = frozenset[Item]
Values = Value | tuple["Values", ...]
Names = dict[str, Values]
NOTHING: Value = frozenset()


STEPS = (
    mark_phrase("scale"), mark_phrase("bias"), mark_phrase("mask"), mark_phrase("dropout"),
    mark_phrase("cap by tanh"), mark_phrase("change of layout"),
    mark_phrase("change of precision"),
)  # fmt: skip
"""The operations between the two products."""


@dataclass(eq=False)
class Product:
    """Collect what happens to one product."""

    module: Module
    node: ast.expr
    written: str
    """How it is written: matmul, @, einsum and so on."""
    operands: frozenset[str] = frozenset()
    steps: list[str] = field(default_factory=list)
    """What happens to the scores and weights, each one of STEPS."""
    softmax: int = 0
    """The line of the softmax; 0 if it has not been reached."""
    used: str = ""
    """How the weights are multiplied with the values; empty if they are not."""
    problems: list[tuple[int, Text]] = field(default_factory=list)
    edits: set[Edit] = field(default_factory=set)
    lines: set[int] = field(default_factory=set)
    ends: set[int] = field(default_factory=set)
    """The lines on which the weights are multiplied with the values."""

    def step(self, name: str) -> None:
        """Note an operation for the description."""
        if name not in self.steps:
            self.steps.append(name)


@dataclass
class Found:
    """Collect what a trace comes across, by the identity of the nodes."""

    products: dict[int, Product] = field(default_factory=dict)
    library: dict[int, tuple[ast.Call, str]] = field(default_factory=dict)
    """Library calls with their canonical names."""


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


def refuse(value: Value, node: ast.AST, why: Text) -> None:
    """Note why the attentions that `value` belongs to are left alone."""
    problem = getattr(node, "lineno", 0), why
    for product, _ in value:
        if problem not in product.problems:
            product.problems.append(problem)


def refuse_use(value: Value, node: ast.AST, use: Text) -> None:
    """Note which use of its scores or weights, such as "are returned", leaves attention alone."""
    for item in value:
        scores = phrase("the attention scores {what}", what=use)
        weights = phrase("the attention weights {what}", what=use)
        refuse(frozenset({item}), node, scores if item[1] == "scores" else weights)


def names_in(*nodes: ast.AST) -> frozenset[str]:
    """Return the names that occur in expressions."""
    return frozenset(n.id for node in nodes for n in ast.walk(node) if isinstance(n, ast.Name))
