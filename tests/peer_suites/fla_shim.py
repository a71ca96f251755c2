"""Put our linear attention in the place of fla-core's chunked kernels: a plugin of pytest.

What ours does not offer as an argument is computed around it in torch, as fla-core's own references
do: gates, sigmoids, lengths of vectors, states with values first. Sizes of chunks and whether parts
are computed twice change no result and are ignored. A test that asks for anything else is skipped,
with the argument's name.
"""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from torch import Tensor
from torch.nn.functional import normalize

from gpudeck.accel.primitives.linear_attention.api import linear_attention

_PLACES = {
    "gated_delta_rule": ("gdn", "chunk_gated_delta_rule"),
    "kda": ("kda", "chunk_kda"),
    "gla": ("gla", "chunk_gla"),
    "retention": ("retention", "chunk_retention"),
    "simple_gla": ("ssd", "chunk_simple_gla"),
}
"""By the package in fla.ops: our kind, and the function that it stands for."""
_WITHOUT_EFFECT = {
    "chunk_size", "disable_recompute", "cu_seqlens_cpu", "chunk_indices", "safe_gate", "use_graph",
    "max_num_seqs",
}  # fmt: skip


def pytest_configure() -> None:
    """Replace the functions before a test imports them."""
    for package, (kind, name) in _PLACES.items():
        for module in (f"fla.ops.{package}", f"fla.ops.{package}.chunk"):
            setattr(importlib.import_module(module), name, _Shim(kind))


class _Shim:
    """Take fla-core's arguments, and run ours."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        g: Tensor | None = None,
        beta: Tensor | None = None,
        scale: float | None = None,
        initial_state: Tensor | None = None,
        output_final_state: bool = False,
        cu_seqlens: Tensor | None = None,
        **asked: Any,
    ) -> tuple[Tensor, Tensor | None]:
        g, beta = self._gated(g, asked), _corrections(beta, asked)
        if asked.pop("use_qk_l2norm_in_kernel", False):
            q, k = (normalize(x.float(), dim=-1).to(x.dtype) for x in (q, k))
        values_first = asked.pop("state_v_first", False)
        for name, value in asked.items():
            if name not in _WITHOUT_EFFECT and value is not None and value is not False:
                pytest.skip(f"ours has no {name}")
        if self._kind != "retention" and g is None:
            pytest.skip("ours has no other decays than those of tokens")
        if initial_state is not None and values_first:
            initial_state = initial_state.transpose(-1, -2)
        found = linear_attention(
            q,
            k,
            v,
            kind=self._kind,
            decay=None if g is None else g.float(),
            beta=beta,
            scale=q.shape[-1] ** -0.5 if scale is None else scale,
            state=None if initial_state is None else initial_state.float(),
            starts=cu_seqlens,
        )
        print("ran by", found.backend)
        state = found.state.transpose(-1, -2) if values_first else found.state
        return found.out, state if output_final_state else None

    def _gated(self, g: Tensor | None, asked: dict[str, Any]) -> Tensor | None:
        """Return the decays that a gate makes of `g`, by fla-core's own reference."""
        log, bias, bound = (asked.pop(name, None) for name in ("A_log", "dt_bias", "lower_bound"))
        if not asked.pop("use_gate_in_kernel", False):
            return g
        gates = importlib.import_module(
            f"fla.ops.{'kda' if self._kind == 'kda' else 'gated_delta_rule'}.gate"
        )
        if self._kind == "gdn":
            return gates.naive_gdn_gate(g, log, bias)
        if bound is not None:
            return gates.naive_kda_lowerbound_gate(g, log, bias, bound)
        return gates.naive_kda_gate(g, log, bias)


def _corrections(beta: Tensor | None, asked: dict[str, Any]) -> Tensor | None:
    """Return the strengths of corrections, which may be given before their sigmoid."""
    doubled = asked.pop("allow_neg_eigval", False)
    if asked.pop("use_beta_sigmoid_in_kernel", False) and beta is not None:
        beta = beta.float().sigmoid()
    return 2 * beta if doubled and beta is not None else beta
