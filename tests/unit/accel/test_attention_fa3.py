"""What FlashAttention-3 is given; one that computes what it documents plays its operation."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from gpudeck.accel.attention import BACKENDS, Ragged, attention, describe
from gpudeck.accel.attention.inputs import arrange

SCHEMA = ", ".join(
    [
        "Tensor q, Tensor k, Tensor v, Tensor? k_new, Tensor? v_new, Tensor? q_v, Tensor(a!)? out",
        "Tensor? cu_seqlens_q, Tensor? cu_seqlens_k, Tensor? cu_new, Tensor? used_q",
        "Tensor? used_k, int? max_seqlen_q, int? max_seqlen_k",
        *(f"Tensor? other_{i}" for i in range(9)),
        "float? softmax_scale, bool is_causal, int window_size_left, int window_size_right",
        "float softcap, bool interleaved, Tensor? metadata, int num_splits, bool? pack_gqa",
        "int sm_margin, Tensor? s_aux, int cp_size, int cp_rank, Tensor? cp_used",
    ]
)


@pytest.fixture
def launches() -> Iterator[list[tuple[int, int]]]:
    """The sequences and the place in memory of q of each launch."""
    found: list[tuple[int, int]] = []

    def fwd(q: Tensor, k: Tensor, v: Tensor, *more: object) -> tuple[Tensor, Tensor]:
        out, starts_q, starts_k = more[3:6]
        scale, causal = more[20:22]
        assert isinstance(out, Tensor)
        assert isinstance(starts_q, Tensor)
        assert isinstance(starts_k, Tensor)
        found.append((len(starts_q) - 1, q.data_ptr()))
        lse = torch.zeros(q.shape[1], q.shape[0])
        for i in range(len(starts_q) - 1):
            rows = slice(int(starts_q[i]), int(starts_q[i + 1]))
            keys = slice(int(starts_k[i]), int(starts_k[i + 1]))
            score = torch.einsum("qhd,khd->hqk", q[rows], k[keys]) * scale
            if causal:
                score = score.masked_fill(torch.ones(score.shape[1:]).triu(1).bool(), -torch.inf)
            out[rows] = torch.einsum("hqk,khd->qhd", score.softmax(2), v[keys])
            lse[:, rows] = score.logsumexp(2)
        return out.clone(), lse

    library = torch.library.Library("_vllm_fa3_C", "DEF")
    library.define(f"fwd({SCHEMA}) -> (Tensor, Tensor)")
    library.impl("fwd", fwd, "CompositeExplicitAutograd")
    yield found
    library._destroy()


@pytest.mark.parametrize(
    ("size", "rows", "lengths", "due"),
    [
        ((3, 4, 20, 16), False, None, [1, 1, 1]),  # [B,H,S,D]: each sequence where it lies
        ((3, 4, 20, 16), True, None, [3]),  # [B,S,H,D]: end to end
        ((1, 4, 20, 16), False, None, [1]),
        ((12, 4, 20, 16), False, None, [12]),  # many: copied
        ((20, 4, 16), True, [7, 13], [2]),
    ],
)
def test_tokens_that_do_not_lie_end_to_end_are_launched_by_sequence_and_not_copied(
    size: tuple[int, ...],
    rows: bool,
    lengths: list[int] | None,
    due: list[int],
    launches: list[tuple[int, int]],
) -> None:
    q, k, v = (torch.randn(size) for _ in range(3))
    if rows and lengths is None:
        q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v))
    ragged = Ragged.of(lengths, device="cpu") if lengths else None
    exact, sums = attention(
        q, k, v, causal=True, seqlens=ragged, backend="reference", return_lse=True
    )
    problem = describe(q, k, v, causal=True, seqlens=ragged)
    out, lse = BACKENDS["fa3"].forward(arrange(q, k, v, None, ragged, "bhsd"), problem)
    if ragged is not None:
        out, lse = out[0].transpose(0, 1), lse[0]
    assert torch.allclose(out, exact, atol=1e-5)
    assert torch.allclose(lse, sums, atol=1e-5)
    assert [sequences for sequences, _ in launches] == due
    assert (launches[0][1] == q.data_ptr()) == (due != [12])
