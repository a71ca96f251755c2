"""The kernels for compute capability 7.5 on a GPU: that one, or a newer one by their PTX.

python -m pytest tests/gpu/test_turing_gpu.py
"""

import pytest
import torch

from gpudeck import accel
from gpudeck.accel.attention import explain
from gpudeck.accel.attention.kernels.turing import builds
from tests.gpu.turing_cases import CASES, Case, draw, judge, solve

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA GPU", allow_module_level=True)

CUDA = torch.device("cuda", 0)


@pytest.mark.parametrize("name", CASES)
def test_results_are_as_exact_as_float16_allows_and_the_same_every_time(name):
    drawn = draw(CASES[name], CUDA)
    found = solve(drawn)
    for judged in judge(drawn, found):
        assert judged.is_right, judged
    for once, again in zip(found, solve(drawn), strict=True):
        assert once is None or torch.equal(once, again)


def test_a_nan_stays_in_its_row_and_lengths_are_not_overrun():
    case = Case(queries=100, causal=True)
    drawn = draw(case, CUDA)
    drawn.x.q[0, 1, 50, 3] = torch.nan
    out, lse, *_ = solve(drawn)
    spoilt = out.isnan().any(-1)
    assert spoilt.sum() == 1 and spoilt[0, 1, 50] and lse.isnan().sum() == 1
    wide = torch.full((1, 2, 300, 64), torch.nan, dtype=torch.float16, device=CUDA)
    whole = draw(case, CUDA)
    for name in ("q", "k", "v"):
        room = wide.clone()
        room[:, :, 100:200] = getattr(whole.x, name)
        whole.x = whole.x._replace(**{name: room[:, :, 100:200]})
    assert all(t is None or t.isfinite().all() for t in solve(whole))


def test_attention_on_such_a_card_runs_them_with_gradients_graphs_and_compilers(monkeypatch):
    """A newer GPU is called an RTX 2080 Ti, and runs the PTX."""
    if torch.cuda.get_device_capability() != (7, 5):
        monkeypatch.setattr(builds, "CAPABILITY", (0, 0))
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (7, 5))
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda *_: "NVIDIA GeForce RTX 2080 Ti")
    accel.learning("off")
    size = (2, 4, 300, 80)
    q, k, v = (torch.randn(size, device=CUDA).half().requires_grad_() for _ in range(3))
    out, choice = accel.attention(q, k, v, causal=True, return_choice=True)
    assert choice.backend == "turing" and explain(q, k, v)[1].backend == "turing"
    wide = [t.double() for t in (q, k, v)]
    due = torch.nn.functional.scaled_dot_product_attention(*wide, is_causal=True)
    found, exact = (torch.autograd.grad(x.sum(), (q, k, v)) for x in (out, due))
    for ours, right in zip((out, *found), (due, *exact), strict=True):
        assert (ours.double() - right.double()).norm() < 1e-3 * right.double().norm()
    with torch.no_grad():
        with torch.autocast("cuda", torch.float16):
            cast = accel.attention(*(t.float() for t in (q, k, v)), causal=True)
        assert torch.equal(cast, out)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            replayed = accel.attention(q, k, v, causal=True)
        graph.replay()
        assert torch.equal(replayed, out)
    compiled = torch.compile(
        lambda *x: accel.attention(*x, causal=True), backend="aot_eager", fullgraph=True
    )
    assert torch.equal(compiled(q, k, v), out)
