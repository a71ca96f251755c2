"""Small calls of attention that reach every one of its kernels, for a tool that watches them.

Lengths are no multiples of tiles, heads are grouped. Tensors are drawn, and answers compared with
float64, on the CPU, so that a slow tool watches our kernels and next to nothing else.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask

from gpudeck.accel.attention import Ragged, attention
from gpudeck.accel.attention.reference import reference
from gpudeck.accel.runtime.launch import Launch

RAGGED = (100, 0, 130)


@dataclass(frozen=True)
class Case:
    """Hold one call: queries [B,H,S,D], keys [B,Hkv,S,D], and what is asked for."""

    backend: str
    q: tuple[int, int, int, int]
    kv: tuple[int, int, int, int]
    rules: dict[str, Any] = field(default_factory=dict)
    """causal, window, softcap, deterministic, precision."""
    extras: str = ""
    """What else takes part: `sink`, `alibi`, `bias` (of all sequences, with its gradient), `fixed`
    (a bias without one), `mask`, `blocks` (a BlockMask), `ragged`, `lse` (its gradient), `latent`
    (values are the first elements of the keys)."""
    value_dim: int = 0
    """The head size of values where it is another one."""
    backward: bool = True


def _square(heads: int, kv_heads: int, length: int, dim: int) -> tuple[Any, Any]:
    return (1, heads, length, dim), (1, kv_heads, length, dim)


CAUSAL = {"causal": True}
TOTAL = sum(RAGGED)
CASES = {
    "hopper 128 causal": Case("hopper", *_square(2, 1, 330, 128), CAUSAL),
    "triton 128 causal": Case("triton", *_square(2, 1, 330, 128), CAUSAL),
    "hopper 64 atomic": Case("hopper", *_square(2, 2, 1100, 64), CAUSAL),
    "hopper 256 causal": Case("hopper", *_square(2, 1, 330, 256), CAUSAL),
    "triton bias 49": Case("triton", (200, 4, 49, 32), (200, 4, 49, 32), extras="bias"),
    "triton bias 200": Case("triton", (3, 2, 200, 32), (3, 1, 203, 32), extras="bias"),
    "fp8 128 causal": Case("hopper", *_square(2, 1, 330, 128), {"precision": "fp8", **CAUSAL},
                           backward=False),
    "hopper ragged": Case("hopper", *_square(2, 2, TOTAL, 128), CAUSAL, "ragged"),
    "decoding latent": Case("decoding", (2, 64, 1, 576), (2, 1, 1500, 576), extras="latent",
                            value_dim=512, backward=False),
    "decoding": Case("decoding", (1, 8, 1, 128), (1, 2, 3000, 128), backward=False),
    "hopper many heads": Case("hopper", *_square(16, 1, 700, 64), CAUSAL),
    "hopper bias": Case("hopper", (2, 2, 200, 64), (2, 2, 333, 64), extras="fixed",
                        backward=False),
    "hopper window softcap": Case("hopper", (1, 2, 70, 128), (1, 2, 133, 128),
                                  {"window": (50, 5), "softcap": 5.0}),
    "hopper sink ALiBi lse": Case("hopper", *_square(2, 2, 200, 64), CAUSAL, "sink alibi lse"),
    "triton bias 300": Case("triton", (1, 2, 300, 64), (1, 1, 333, 64), extras="bias"),
    "triton ragged": Case("triton", *_square(2, 2, TOTAL, 64), CAUSAL, "ragged"),
    "hopper 192 to 128": Case("hopper", *_square(2, 2, 330, 192), CAUSAL, value_dim=128),
    "hopper 96": Case("hopper", *_square(2, 2, 200, 96), CAUSAL),
    "hopper 80": Case("hopper", *_square(2, 2, 200, 80), CAUSAL),
    "hopper 160": Case("hopper", *_square(2, 2, 200, 160), CAUSAL),
    "fp8 64": Case("hopper", *_square(2, 2, 330, 64), {"precision": "fp8"}, backward=False),
    "fp8 256": Case("hopper", *_square(2, 2, 330, 256), {"precision": "fp8"}, backward=False),
    "fp8 ragged": Case("hopper", *_square(2, 2, TOTAL, 128), {"precision": "fp8"}, "ragged",
                       backward=False),
    "triton splits": Case("triton", (1, 4, 3, 64), (1, 2, 4000, 64), backward=False),
    "triton mask": Case("triton", *_square(2, 2, 100, 128), extras="mask"),
    "triton sink ALiBi lse": Case("triton", *_square(2, 2, 200, 64), {}, "sink alibi lse"),
    "hopper deterministic": Case("hopper", *_square(2, 1, 1100, 64), {"deterministic": True}),
    "decoding window": Case("decoding", (2, 4, 4, 64), (2, 4, 777, 64),
                            {"causal": True, "window": (300, 0)}, backward=False),
    "triton 72": Case("triton", *_square(2, 2, 150, 72), {}),
    "triton blocks": Case("triton", *_square(2, 2, 512, 64), {}, "blocks"),
}  # fmt: skip


def launches() -> Counter[str]:
    """Return a counter of the launches of each kernel from now on."""
    counted: Counter[str] = Counter()
    launch = Launch.__call__

    def call(self: Launch, *tensors: Tensor) -> None:
        counted[self.call.kernel.__name__] += 1
        launch(self, *tensors)

    setattr(Launch, "__call__", call)  # noqa: B010 - mypy forbids to assign a method
    return counted


def run(case: Case) -> float:
    """Return the largest relative error of the output and of each gradient."""
    torch.manual_seed(0)
    leaves, upstream = _drawn(case)
    exact = _gradients(_reference, case, leaves, upstream)
    on_gpu = ({n: t.cuda() for n, t in tensors.items()} for tensors in (leaves, upstream))
    got = _gradients(_attention, case, *on_gpu)
    torch.cuda.synchronize()
    return max(
        float((a.detach().cpu().double() - b).norm() / b.norm())
        for a, b in zip(got, exact, strict=True)
    )


def _drawn(case: Case) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the tensors of a call, and the gradients that go into its backward pass."""
    batch, heads, queries, _ = case.q
    out = (batch, heads, queries, case.value_dim or case.kv[3])
    shapes = {"q": case.q, "k": case.kv, "v": (*case.kv[:3], out[3])}
    if "bias" in case.extras or "fixed" in case.extras:
        shapes["bias"] = (1, heads, queries, case.kv[2])
    leaves = {name: torch.randn(shape).bfloat16() for name, shape in shapes.items()}
    if "sink" in case.extras:
        leaves["sink"] = torch.randn(heads)
    upstream = {"out": torch.randn(out).bfloat16()}
    if "lse" in case.extras:
        upstream["lse"] = torch.randn(out[:3])
    return leaves, upstream


def _gradients(
    attend: Any, case: Case, leaves: dict[str, Tensor], upstream: dict[str, Tensor]
) -> list[Tensor]:
    """Return the output, and the gradients of all leaves if there is a backward pass."""
    if not case.backward:
        with torch.no_grad():
            return [attend(case, leaves)[0]]
    wanted = {name: t.requires_grad_() for name, t in leaves.items()}
    answers = attend(case, wanted)[: len(upstream)]
    given = [g.to(a.dtype) for a, g in zip(answers, upstream.values(), strict=True)]
    return [answers[0], *torch.autograd.grad(answers, list(wanted.values()), given)]


def _vectors(case: Case, x: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Take queries, keys and values out of the tensors of a call."""
    q, k, v = (x.pop(n) for n in "qkv")
    return q, k, k[..., : case.value_dim] if "latent" in case.extras else v


def _reference(case: Case, leaves: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    x = {name: t.double() for name, t in leaves.items()}
    q, k, v = _vectors(case, x)
    asked = {n: v for n, v in case.rules.items() if n in ("causal", "window", "softcap")}
    more = _more(case, "cpu")
    ragged = {"ragged": more.pop("seqlens")} if "seqlens" in more else {}
    if "block_mask" in more:
        asked, more = {**asked, "causal": True}, {}
    return reference(q, k, v, **x, **asked, **more, **ragged, return_lse=True)


def _attention(case: Case, leaves: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    x, more = dict(leaves), _more(case, "cuda")
    q, k, v = _vectors(case, x)
    backend = "auto" if "block_mask" in more else case.backend
    if "ragged" not in case.extras:
        return attention(q, k, v, **x, **case.rules, **more, backend=backend, return_lse=True)
    q, k, v = (t[0].transpose(0, 1) for t in (q, k, v))
    out, lse = attention(q, k, v, **x, **case.rules, **more, backend=backend, return_lse=True)
    return out.transpose(0, 1).unsqueeze(0), lse.unsqueeze(0)


def _more(case: Case, device: str) -> dict[str, Any]:
    """Return the arguments that get no gradient."""
    more: dict[str, Any] = {}
    heads, queries, keys = case.q[1], case.q[2], case.kv[2]
    if "alibi" in case.extras:
        more["alibi"] = (torch.arange(1, heads + 1) / 16).to(device)
    if "mask" in case.extras:
        more["bias"] = (torch.arange(queries * keys).view(queries, keys) % 3 > 0).to(device)
    if "ragged" in case.extras:
        more["seqlens"] = Ragged.of(RAGGED, device=device)
    if "blocks" in case.extras:
        more["block_mask"] = create_block_mask(
            lambda b, h, q, k: q >= k, None, None, queries, keys, device=device
        )
    return more
