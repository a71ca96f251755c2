"""Offer our kernels of linear attention to the search: retention in one pass, and RWKV-7's
recurrence token by token, as short prompts have it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gpudeck.accel.search.recurrence_tasks import HEAD, activated, log_decays
from gpudeck.accel.search.space import Config, Space
from gpudeck.accel.search.tasks import Sizes
from gpudeck.accel.search.templates import Template, here
from gpudeck.accel.search.verdict import Source

_PASS = {"columns": (16, 32, 64, 128), "warps": (2, 4, 8), "stages": (1, 2, 3, 4)}
_SCAN = {"rows": (4, 8, 16, 32, 64), "ahead": (1, 2, 3, 4, 6, 8), "warps": (1, 2, 4, 8)}


def recurrence_template(task: str, dtype: torch.dtype, sizes: Sizes) -> Template:
    """Return the template of retention or of `rwkv7` for GPUs with at least the capability 8.0.

    Raises:
        ValueError: if the kernel does not take the dtype.
    """
    able = {"retention": torch.bfloat16, "rwkv7": torch.float32}[task]
    if dtype != able:
        raise ValueError(f"{task} is searched in {str(able).removeprefix('torch.')}")
    space, usual = {"retention": _passes, "rwkv7": _scans}[task](sizes)
    known = {"sizes": dict(sizes)}
    return Template(
        f"{task} tiles", space, lambda c: Source(__name__, f"run_{task}", {"config": c}),
        lambda c: Source(__name__, f"{task}_call", {**known, "config": c}),
        (usual,) if space.holds(usual) else (),
    )  # fmt: skip


def run_retention(config: Config) -> Callable[..., Tensor]:
    """Return retention in one pass with a tile."""
    from gpudeck.accel.primitives.linear_attention.single_pass import with_tile

    decays: dict[object, Tensor] = {}

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        heads, width = q.shape[1:]
        if (heads, q.device) not in decays:
            decays[heads, q.device] = log_decays(heads, q.device).float()
        rest = (decays[heads, q.device], _rule(), width**-0.5, _tile(config))
        return with_tile(q[None], k[None], v[None], *rest)[0]

    return call


def retention_call(sizes: Sizes, config: Config) -> Any:
    """Return the launch of retention, before there are tensors."""
    from gpudeck.accel.primitives.linear_attention.single_pass import call_with_tile

    shape = (1, sizes["tokens"], sizes["heads"], sizes["width"])
    x = torch.empty(shape, dtype=torch.bfloat16, device="meta")
    decay = torch.empty(sizes["heads"], device="meta")
    return call_with_tile(x, x, x, decay, _rule(), sizes["width"] ** -0.5, _tile(config))


def run_rwkv7(config: Config) -> Callable[..., Tensor]:
    """Return RWKV-7's recurrence token by token; torch computes the activations."""
    from gpudeck.accel.runtime.launch import prepare

    launches: dict[object, Callable[..., None]] = {}

    def call(
        r: Tensor, w: Tensor, k: Tensor, v: Tensor, removal: Tensor, rate: Tensor
    ) -> Tensor:  # fmt: skip
        tokens, heads, _ = r.shape
        if (tokens, heads, r.device) not in launches:
            launch = rwkv7_call({"tokens": tokens, "heads": heads}, config)
            launches[tokens, heads, r.device] = prepare(launch, r.device)
        decay, erased, written = activated(w, removal, rate)
        vectors = torch.stack((k, v, erased, written))
        state, out = r.new_zeros(heads, HEAD, HEAD), torch.empty_like(r)
        launches[tokens, heads, r.device](r, decay, vectors, state, out)
        return out

    return call


def rwkv7_call(sizes: Sizes, config: Config) -> Any:
    """Return the launch of the recurrence, before there are tensors."""
    from gpudeck.accel.runtime.call import KernelCall, Pointer
    from gpudeck.accel.rwkv.prompt_kernels import scan

    names = ("r_ptr", "w_ptr", "vectors_ptr", "state_ptr", "y_ptr")
    channels = HEAD * sizes["heads"]
    arguments = dict.fromkeys(names, Pointer(torch.float32))
    return KernelCall(
        scan, channels // config["rows"],
        {**arguments, "length": sizes["tokens"], "channels": channels},
        {"HEAD": HEAD, "ROWS": config["rows"], "AHEAD": config["ahead"]},
        {"num_warps": config["warps"], "num_stages": 1},
    )  # fmt: skip


def _passes(sizes: Sizes) -> tuple[Space, Config]:
    from gpudeck.accel.primitives.linear_attention.plan import shape_of, single, wide

    target, width, heads = here(), sizes["width"], sizes["heads"]
    shape = shape_of(width, width, heads, 1, False, _rule(), torch.bfloat16)
    columns, options = single(shape, divmod(target.capability, 10), heads, target.processors)
    usual = {
        "columns": columns, "warps": options["num_warps"], "stages": options["num_stages"],
    }  # fmt: skip
    return Space(_PASS, lambda c: c["columns"] <= wide(width)), usual


def _scans(sizes: Sizes) -> tuple[Space, Config]:
    from gpudeck.accel.rwkv.prompt import SCAN

    # a warp has at least one row of 64 channels
    return Space(_SCAN, lambda c: c["warps"] <= c["rows"]), SCAN._asdict()


def _tile(config: Config) -> Any:
    return config["columns"], {"num_warps": config["warps"], "num_stages": config["stages"]}


def _rule() -> Any:
    from gpudeck.accel.primitives.linear_attention.kinds import KINDS

    return KINDS["retention"].rule
