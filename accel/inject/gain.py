"""Predict what linking saves from the sizes that a file itself names."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from gpudeck.accel.attention import table
from gpudeck.accel.inject.finding import Shape
from gpudeck.accel.inject.project import Function, Module
from gpudeck.language.text import Number, Text, phrase

_NAMES = {
    "tokens": r"block_size|n_ctx|ctx_len|seq_?len(gth)?|max_?len(gth)?|max_seq_?len(gth)?"
    r"|context_length|n_positions|max_position_embeddings",
    "heads": r"n_?heads?|num_?heads?|heads|num_attention_heads",
    "head_size": r"head_?dim|dim_?head|head_?size|d_?head|d_k",
    "width": r"n_embd|d_?model|embed_?dim|emb_dim|hidden_size|n_state",
    "batch": r"batch_?size|bsz",
}
_PATTERNS = {what: re.compile(f"(.*_)?({names})") for what, names in _NAMES.items()}
_CAUSAL = re.compile(r"\btri[lu]\b|\btri[lu]_indices\b|causal")
NO_SIZE = 2**31
"""The least number that is no size of a tensor's axis, whatever it is called."""
LARGEST_HEAD, TILE = 256, 128
"""The most features of a head, and the queries that a kernel computes together."""


@dataclass(frozen=True)
class Sizes:
    """Hold the sizes that a file names; 0 for those that it does not."""

    tokens: int = 0
    heads: int = 0
    head_size: int = 0
    width: int = 0
    batch: int = 0

    def shape(self, causal: bool) -> Shape | None:
        """Return the shape of the attention, or None if a size is missing.

        A batch size that is not named is the least power of two that fills a GPU.
        """
        size = self.head_size
        if not size and self.heads and self.width % self.heads == 0:
            size = self.width // self.heads
        if not (self.tokens and self.heads and 0 < size <= LARGEST_HEAD):
            return None
        tiles = self.heads * -(-self.tokens // TILE)
        filling: int = 2 ** max(0, math.ceil(math.log2(table.ENOUGH_TILES / tiles)))
        return Shape(self.batch or filling, self.heads, self.tokens, self.tokens, size, causal)


def sizes(module: Module) -> Sizes:
    """Return the defaults and constants that a file gives; of several the largest counts."""
    if "sizes" not in module.derived:
        found = dict.fromkeys(_PATTERNS, 0)
        for name, value in _numbers(module.tree):
            for what, pattern in _PATTERNS.items():
                if pattern.fullmatch(name.lower()):
                    found[what] = max(found[what], value)
        module.derived["sizes"] = Sizes(**found)
    known: Sizes = module.derived["sizes"]
    return known


def saved(module: Module) -> Number | None:
    """Return the memory that the scores of one sequence take; None if it is not known."""
    known = sizes(module)
    if not known.tokens:
        return None
    mib = max(known.heads, 1) * known.tokens**2 * 2 / 2**20
    return Number(mib / 1024, ".3g", "GiB") if mib >= 1024 else Number(mib, ".3g", "MiB")


def gain(module: Module) -> Text:
    """Return what linking saves, and for which sequence."""
    known, size = sizes(module), saved(module)
    if size is None:
        return phrase("the scores, queries x keys for each head, are no longer kept in memory")
    tokens = Number(known.tokens, ",")
    if known.heads:
        return phrase(
            "the scores, queries x keys for each head, are no longer kept in memory: {size} for a"
            " sequence of {tokens} tokens and {heads} heads in 16 bits",
            size=size,
            tokens=tokens,
            heads=known.heads,
        )
    return phrase(
        "the scores, queries x keys for each head, are no longer kept in memory: {size} for a"
        " sequence of {tokens} tokens and each head in 16 bits",
        size=size,
        tokens=tokens,
    )


def is_causal(module: Module, owner: ast.ClassDef | None, function: Function) -> bool:
    """Return True if a function or its class makes or names a causal mask."""
    node = owner or function
    first, last = node.lineno - 1, node.end_lineno or len(module.starts)
    end = module.starts[last] if last < len(module.starts) else len(module.source.text)
    return _CAUSAL.search(module.source.text, module.starts[first], end) is not None


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
            if (
                isinstance(value, ast.Constant)
                and type(value.value) is int
                and 0 < value.value < NO_SIZE
            ):
                yield name, value.value
