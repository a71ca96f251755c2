"""Predict what linking saves from the sizes that a file itself names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from accel.inject.project import Module

GAIN = "the scores, queries x keys for each head, are no longer kept in memory"
_TOKENS = re.compile(
    r"(.*_)?(block_size|n_ctx|ctx_len|seq_?len(gth)?|max_?len(gth)?|max_seq_?len(gth)?"
    r"|context_length|n_positions|max_position_embeddings|window_size)"
)
_HEADS = re.compile(r"(.*_)?(n_?heads?|num_?heads?|heads|num_attention_heads)")


def gain(module: Module) -> str:
    """Return in words the memory that scores of one sequence take, or why it is not known.

    The numbers are defaults that the file itself gives; of several the largest counts.
    """
    if "gain" not in module.derived:
        module.derived["gain"] = _gain(module)
    return module.derived["gain"]


def _gain(module: Module) -> str:
    named: dict[str, list[int]] = {"tokens": [], "heads": []}
    for name, value in _numbers(module.tree):
        for what, pattern in (("tokens", _TOKENS), ("heads", _HEADS)):
            if pattern.fullmatch(name.lower()):
                named[what].append(value)
    if not named["tokens"]:
        return GAIN
    tokens, heads = max(named["tokens"]), max(named["heads"], default=1)
    mib = heads * tokens * tokens * 2 / 2**20
    size = f"{mib / 1024:.3g} GiB" if mib >= 1024 else f"{mib:.3g} MiB"
    of = f" and {heads} heads" if named["heads"] else " and each head"
    return f"{GAIN}: {size} for a sequence of {tokens:,} tokens{of} in 16 bits"


def _numbers(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield names with the whole numbers that they are set to, as constants or defaults."""
    for node in ast.walk(tree):
        pairs: list[tuple[str, ast.expr | None]] = []
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            pairs = [(node.targets[0].id, node.value)]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            pairs = [(node.target.id, node.value)]
        elif isinstance(node, ast.keyword) and node.arg:
            pairs = [(node.arg, node.value)]
        elif isinstance(node, ast.arguments):
            given = [*node.posonlyargs, *node.args]
            last = given[len(given) - len(node.defaults) :]
            pairs = [(a.arg, d) for a, d in zip(last, node.defaults, strict=True)]
            pairs += [(a.arg, d) for a, d in zip(node.kwonlyargs, node.kw_defaults, strict=True)]
        for name, value in pairs:
            if isinstance(value, ast.Constant) and type(value.value) is int and value.value > 0:
                yield name, value.value
