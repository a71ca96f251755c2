"""Read the functions that FlexAttention takes: what they do to a score, by their traced graphs.

A function is recognised only if every step of its graph is known here and the form of the whole
follows from it. One that is not recognised may still be any of these: nothing is guessed from
values.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor
from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx

MASK_NAMES = ("b", "h", "q", "k")
SCORE_NAMES = ("score", *MASK_NAMES)
_EXACT = (torch.int32, torch.int64, torch.float32, torch.float64)
"""Types that hold every position, so that converting one changes nothing."""
_ATEN = torch.ops.aten
_SAME = {_ATEN.alias.default, _ATEN.detach.default, _ATEN.clone.default}
_CONVERSIONS = {_ATEN._to_copy.default, torch.ops.prims.convert_element_type.default}
_SUMS, _PRODUCTS = {_ATEN.add.Tensor, _ATEN.sub.Tensor}, {_ATEN.mul.Tensor, _ATEN.div.Tensor}


@dataclass(frozen=True)
class Form:
    """Describe what is known of a value in a graph.

    `free` depends on batch and head only. `index` is affine in the positions of query and key, with
    free coefficients. `score` is outer x score x inner, or outer x tanh(score x inner) if `capped`,
    plus an index if `added`.
    """

    kind: Literal["free", "index", "score"]
    inner: float = 1.0
    outer: float = 1.0
    capped: bool = False
    added: bool = False


_FREE, _INDEX = Form("free"), Form("index")


@dataclass(frozen=True)
class ScoreRule:
    """Describe a recognised score function: softcap tanh(factor x score / softcap) + ALiBi."""

    factor: float = 1.0
    softcap: float = 0.0
    slopes: Tensor | None = None
    """float32 [H] or [B,H]."""


def reads(mod: Callable[..., Tensor], device: torch.device) -> set[str]:
    """Return which of b, h, q and k a mask's function reads; all of them if it cannot be traced."""
    graph = _trace(mod, MASK_NAMES, device)
    if graph is None:
        return set(MASK_NAMES)
    places = (node for node in graph.graph.nodes if node.op == "placeholder")
    return {name for name, node in zip(MASK_NAMES, places, strict=True) if node.users}


def recognise_scores(
    mod: Callable[..., Tensor], sizes: tuple[int, int, int, int], device: torch.device
) -> ScoreRule | None:
    """Return what a score function does for (batch, heads, queries, keys), or None if that is not
    known here.

    Tensors that it reads are read now; none of them may need a gradient.
    """
    graph = _trace(mod, SCORE_NAMES, device)
    form = None if graph is None else _form(graph)
    if form is None or form.kind != "score":
        return None
    slopes = None
    if form.added:
        slopes = _slopes(mod, sizes, device)
        if slopes is None:
            return None
        slopes = slopes if bool(slopes.any()) else None
    if not form.capped:
        factor = form.inner * form.outer
        return ScoreRule(factor, 0.0, slopes) if 0 < factor < math.inf else None
    if not 0 < form.outer < math.inf or not 0 < form.inner < math.inf:
        return None
    # c tanh(f score / c): nearly always f = 1, as far as 1/c can be told from its rounding.
    factor = form.inner * form.outer
    factor = 1.0 if abs(factor - 1.0) < 1e-6 else factor
    return ScoreRule(factor, form.outer, slopes)


def _trace(
    mod: Callable[..., Tensor], names: tuple[str, ...], device: torch.device
) -> GraphModule | None:
    """Return the graph of a function of scalars, or None if it cannot be traced."""
    given = [
        torch.zeros((), dtype=torch.float32 if name == "score" else torch.int32, device=device)
        for name in names
    ]
    try:
        with TransformGetItemToIndex():
            graph = make_fx(mod)(*given)
    except Exception:  # noqa: BLE001 - a stranger's function, under a tracer, may raise anything
        return None
    graph.graph.eliminate_dead_code()
    return graph


def _form(graph: GraphModule) -> Form | None:
    """Return the form of a traced score function's result, or None if it is not known."""
    forms: dict[Node, Form | None] = {}
    places = iter(SCORE_NAMES)
    for node in graph.graph.nodes:
        if node.op == "placeholder":
            name = next(places)
            forms[node] = {"score": Form("score"), "q": _INDEX, "k": _INDEX}.get(name, _FREE)
        elif node.op == "get_attr":
            value = getattr(graph, str(node.target))
            forms[node] = _FREE if isinstance(value, Tensor) and not value.requires_grad else None
        elif node.op == "output":
            (result,) = node.args
            return forms.get(result) if isinstance(result, Node) else None
        else:
            forms[node] = _step(node, forms)
    return None


def _step(node: Node, forms: dict[Node, Form | None]) -> Form | None:
    """Return the form of one operation's result."""
    given = [forms[n] for n in node.all_input_nodes]
    tags = getattr(node.target, "tags", ())
    if None in given or torch.Tag.nondeterministic_seeded in tags:
        return None
    if all(form == _FREE for form in given):
        return _FREE
    if node.target in _SAME:
        return given[0]
    if node.target in _CONVERSIONS:
        kind = node.kwargs.get("dtype", node.args[1] if len(node.args) > 1 else None)
        widened = kind in (_EXACT if given[0] == _INDEX else (torch.float32, torch.float64))
        return given[0] if widened else None
    if node.target == _ATEN.neg.default:
        return _INDEX if given[0] == _INDEX else None
    if node.target == _ATEN.tanh.default:
        form = given[0] or _FREE
        plain = form.kind == "score" and not (form.capped or form.added)
        capped = replace(form, inner=form.inner * form.outer, outer=1.0, capped=True)
        return capped if plain else None
    if node.kwargs or len(node.args) != 2:
        return None
    one, other = (forms[x] if isinstance(x, Node) else x for x in node.args)
    if node.target in _SUMS:
        return _sum(one, other, node.target == _ATEN.sub.Tensor)
    return _product(one, other, node.target) if node.target in _PRODUCTS else None


def _sum(one: Any, other: Any, minus: bool) -> Form | None:
    one, other = (x if isinstance(x, Form) else _FREE for x in (one, other))
    if "score" not in (one.kind, other.kind):
        return _INDEX
    if other.kind == "score" and not minus:
        one, other = other, one
    return replace(one, added=True) if other.kind != "score" else None


def _product(one: Any, other: Any, target: Any) -> Form | None:
    if target == _ATEN.mul.Tensor and (not isinstance(one, Form) or one == _FREE):
        one, other = other, one
    if not isinstance(one, Form) or one == _FREE:
        return None
    if one == _INDEX:
        return _INDEX if not isinstance(other, Form) or other == _FREE else None
    if isinstance(other, Form) or one.added:
        return None
    factor = float(other) if target == _ATEN.mul.Tensor else 1.0 / other if other else math.nan
    return replace(one, outer=one.outer * factor)


def _slopes(
    mod: Callable[..., Tensor], sizes: tuple[int, int, int, int], device: torch.device
) -> Tensor | None:
    """Return the slopes of what an affine score function adds, or None if it is not ALiBi.

    ALiBi is slope x (key - query). That the function is affine is known from its graph; here its
    coefficients are read off, and the furthest places are compared.
    """
    batch, heads, queries, keys = sizes
    b, h = (torch.arange(n, dtype=torch.int32, device=device) for n in (batch, heads))
    score = torch.zeros((), device=device)

    def at(q: int, k: int) -> Tensor:
        run: Any = torch.vmap(mod, in_dims=(None, None, 0, None, None))
        run = torch.vmap(run, in_dims=(None, 0, None, None, None))
        places = (torch.tensor(n, dtype=torch.int32, device=device) for n in (q, k))
        with TransformGetItemToIndex():
            found: Tensor = run(score, b, h, *places)
        return found.expand(batch, heads).double()

    slopes = at(0, 1)
    corners = [(0, 0), (1, 0), (queries - 1, 0), (0, keys - 1), (queries - 1, keys - 1)]
    for q, k in corners:
        due = slopes * (k - q)
        if not torch.allclose(at(q, k), due, rtol=1e-5, atol=0.0):
            return None
    slopes = slopes.float()
    return slopes[0].contiguous() if bool((slopes == slopes[0]).all()) else slopes.contiguous()
