"""Guess arguments for people's modules and statements from the names that they have.

A wrong guess makes the code raise an error, and the next one is tried. What is guessed decides only
whether something can be proved, never what counts as equal.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

MOST_TRIES = 400
_NUMBERS = (
    (r"(.*_)?(b|bs|bsz|bs_|batch|batch_size|b_)", "batch"),
    (r"(.*_)?(n_?heads?|num_?heads?|heads?|nh|h|num_attention_heads|n_local_heads)", "heads"),
    (r"(.*_)?(dim_?heads?|head_?dim|head_?size|hs|d_?k|dk|dh|d_?v|d_?head|c_hidden)", "size"),
    (r"(.*_)?(t|s|l|n|seq|seq_?len|seq_?length|length|tgt_len|src_len|block_size|context_length"
     r"|max_?len|n_ctx|num_tokens|n_positions)", "seq"),
    (r"(.*_)?(c|d|ch|dim|dims|dim_in|d_in|d_out|dim_out|channels|in_channels|embed_?dim|d_?model"
     r"|n_embd|n_state|hidden_size|query_dim|inner_dim|context_dim|emb_dim)", "width"),
    (r"(.*_)?(depth|layers|n_layers?|num_layers)", "one"),
    (r"(.*_)?(vocab_?size|num_classes)", "vocabulary"),
)  # fmt: skip


@dataclass(frozen=True)
class Sizes:
    """Choose the sizes of one trial."""

    batch: int = 2
    heads: int = 4
    seq: int = 16
    size: int = 8

    def number(self, name: str) -> int | None:
        """Return the number that a name stands for, or None."""
        values = {
            "batch": self.batch, "heads": self.heads, "seq": self.seq, "size": self.size,
            "width": self.heads * self.size, "one": 1, "vocabulary": 64,
        }  # fmt: skip
        for pattern, what in _NUMBERS:
            if re.fullmatch(pattern, name.lower()):
                return values[what]
        return None


class Config:
    """Answer every question of a configuration by the name of the attribute."""

    def __init__(self, sizes: Sizes) -> None:
        self._sizes = sizes

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = _plain(name, self._sizes)
        return False if value is None else value

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)


def _plain(name: str, sizes: Sizes) -> Any:
    """Return a guess for an argument that is no tensor, or None."""
    low = name.lower()
    if "drop" in low or low.endswith("pdrop"):
        return 0.0
    if re.search(r"(^|_)(scale|temperature|scaling)$", low):
        return 0.35
    if "window" in low or "resolution" in low or low == "input_size":
        return (4, 4)
    if low in ("config", "cfg", "args", "hparams"):
        return Config(sizes)
    if low.endswith("bias") or low.startswith("use_"):
        return True
    return sizes.number(name)


def instances(cls: type, sizes: Sizes) -> Iterator[tuple[nn.Module, str]]:
    """Yield instances of a module's class, with how they were made in words."""
    required = [
        p for p in inspect.signature(cls).parameters.values()
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]  # fmt: skip
    options = {
        p.name: p for p in inspect.signature(cls).parameters.values() if p.default is not p.empty
    }
    base = {p.name: _plain(p.name, sizes) for p in required}
    extra = {n: sizes.heads for n in options if sizes.number(n) == sizes.heads and "head" in n}
    extra |= {n: sizes.size for n in options if re.fullmatch(r"(dim_?head|d_?head|head_?dim)", n)}
    for given in ({**base, **extra}, base):
        square = {n: v[0] if isinstance(v, tuple) else v for n, v in given.items()}
        for arguments in (given, square):
            try:
                made = cls(**arguments)
            except Exception:  # noqa: BLE001, S112 - people's code may raise anything
                continue
            words = ", ".join(f"{n}={v}" for n, v in arguments.items() if not isinstance(v, Config))
            yield made, f"{cls.__name__}({words})"


def shapes(sizes: Sizes) -> list[tuple[int, ...]]:
    """Return the shapes in which modules take their input."""
    b, s, width = sizes.batch, sizes.seq, sizes.heads * sizes.size
    side = round(s**0.5)
    return [(b, s, width), (b, width, side, side), (b, side, side, width), (b, width, s),
            (b, 3 * width, s), (b, s, s, width)]  # fmt: skip


def masks(sizes: Sizes, tensor: Tensor) -> list[Any]:
    """Return masks and biases of all kinds."""
    b, s = sizes.batch, sizes.seq
    causal = torch.ones(s, s, dtype=torch.bool).tril()
    padding = torch.ones(b, s, dtype=torch.bool)
    padding[-1, s // 2 :] = False
    blind = causal.clone()
    blind[3] = False
    added = torch.zeros(s, s, dtype=tensor.dtype).masked_fill(~causal, float("-inf"))
    return [
        causal, padding[:, None, None], blind, causal[None, None], padding, causal.to(tensor.dtype),
        causal[None].expand(b * sizes.heads, s, s), added, torch.randn(s, s, dtype=tensor.dtype),
        torch.randn(sizes.heads, s, s, dtype=tensor.dtype), padding[:, None],
        causal[:, :, None, None], [torch.randn(s, s, dtype=tensor.dtype)],
    ]  # fmt: skip


Inputs = dict[str, Any]
MOST_VALUES = 2**27
"""The values of the largest input that is tried; pairs of all tokens of a long row are more."""


def calls(forward: Any, sizes: Sizes) -> Iterator[Inputs]:
    """Yield arguments for a module's forward method: without masks, then with each kind."""
    parameters = [
        p for p in inspect.signature(forward).parameters.values()
        if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]  # fmt: skip
    needed = [p.name for p in parameters if p.default is p.empty]
    optional = [p.name for p in parameters if p.default is not p.empty and _is_mask(p.name)]
    for shape in shapes(sizes):
        if math.prod(shape) > MOST_VALUES:
            continue
        x = torch.randn(shape)
        made: Inputs = {
            n: sizes.number(n) if sizes.number(n) and n.lower() != "x" and len(n) > 2 else x.clone()
            for n in needed
            if not _is_mask(n)
        }
        masked = [n for n in needed if _is_mask(n)] or optional[:1]
        if not masked or masked[0] not in needed:
            yield made
        for mask in masks(sizes, x) if masked else ():
            yield made | dict.fromkeys(masked, mask)


def _is_mask(name: str) -> bool:
    return re.search(r"mask|bias", name.lower()) is not None


def free_names(body: list[ast.stmt]) -> list[str]:
    """Return the names that statements read before they write them."""
    stored: set[str] = set()
    free: dict[str, None] = {}
    for statement in body:
        _visit(statement, stored, free)
    return list(free)


def _visit(node: ast.AST, stored: set[str], free: dict[str, None]) -> None:
    """Collect names in the order in which they are read and written."""
    if isinstance(node, ast.Name):
        if isinstance(node.ctx, ast.Load) and node.id not in stored:
            free[node.id] = None
        elif isinstance(node.ctx, ast.Store):
            stored.add(node.id)
        return
    own = [a.arg for a in node.args.args] if isinstance(node, ast.Lambda) else []
    last = (
        ("targets", "target") if not isinstance(node, (ast.For, ast.comprehension)) else ("body",)
    )
    fields = sorted(ast.iter_fields(node), key=lambda f: f[0] in last)
    if isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
        fields = sorted(fields, key=lambda f: f[0] != "generators")
    if isinstance(node, ast.AugAssign):
        _visit(ast.Name(node.target.id, ast.Load()), stored, free) if isinstance(
            node.target, ast.Name
        ) else None
    inner = stored | {*own} if own else stored
    for _, value in fields:
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                _visit(child, inner, free)


def tensors(sizes: Sizes, q: str, k: str, v: str) -> Iterator[Inputs]:
    """Yield queries, keys and values in all the layouts that programs use."""
    b, h, s, d = sizes.batch, sizes.heads, sizes.seq, sizes.size
    kinds = [
        ((b, h, s, d), (b, h, s, d), (b, h, s, d)), ((b, h, s, d), (b, h, d, s), (b, h, s, d)),
        ((b * h, s, d),) * 3, ((b * h, s, d), (b * h, d, s), (b * h, s, d)),
        ((b, s, d), (b, d, s), (b, d, s)), ((b * h, d, s), (b * h, d, s), (b * h, d, s)),
        ((b, s, h, d), (b, s, h, d), (b, s, h, d)), ((s, b, h, d), (s, b, h, d), (s, b, h, d)),
        ((b, h, s, d), (b, s, d), (b, s, d)), ((b, 3, h, s, d),) * 3,
        ((s, b * h, d),) * 3, ((b, h, d, s),) * 3, ((b, s, d),) * 3, ((s, d),) * 3,
    ]  # fmt: skip
    for of_q, of_k, of_v in kinds:
        yield {v: torch.randn(of_v), k: torch.randn(of_k), q: torch.randn(of_q)}


class Self:
    """Stand for the object that a method's statements read attributes of."""

    def __init__(self, sizes: Sizes, made: Mapping[str, Any]) -> None:
        self._sizes = sizes
        self.training = False
        self.__dict__.update(made)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if re.search(r"mask|bias|tril", name.lower()):
            return torch.ones(1, 1, 64, 64).tril()
        value = _plain(name, self._sizes)
        if value is None:
            raise AttributeError(f"nothing is known about self.{name}")
        return value


def statements(
    free: list[str], roles: tuple[str, str, str], sizes: Sizes, made: Mapping[str, Any]
) -> Iterator[Inputs]:
    """Yield values for the free names of statements."""
    q, k, v = roles
    rest = [n for n in free if n not in (q, k, v, "self")]
    tries = 0
    for base in tensors(sizes, q, k, v):
        options: list[list[Any]] = []
        for name in rest:
            number = _plain(name, sizes)
            masked = [None, *masks(sizes, base[q])] if _is_mask(name) or number is None else []
            options.append(masked or [number])
        for chosen in itertools.islice(itertools.product(*options), MOST_TRIES // 4):
            tries += 1
            inputs = base | dict(zip(rest, chosen, strict=True))
            if "self" in free:
                inputs["self"] = Self(sizes, made)
            yield inputs
