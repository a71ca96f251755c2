"""Attention in FP8 on a Hopper GPU: the pre-pass, the kernel and what `error_of` says, against the
same roundings in float64.

python -m pytest tests/gpu/test_attention_fp8_gpu.py -n 0
"""

import math

import pytest
import torch
from torch.nn.functional import pad

from gpudeck import accel
from gpudeck.accel.attention import Ragged, emulation
from gpudeck.accel.attention.inputs import Inputs, problem_of, rules_of
from gpudeck.accel.attention.kernels.portable.quantise import quantise
from gpudeck.accel.attention.kernels.quantised import KEYS, pad_head
from gpudeck.accel.attention.reference import reference

if not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0):
    pytest.skip("needs a Hopper GPU", allow_module_level=True)

RULES = {
    "full": {},
    "causal": {"causal": True},
    "window": {"window": (100, 50)},
    "causal window": {"causal": True, "window": (70, 0)},
    "softcap": {"causal": True, "softcap": 20.0},
}
SHAPES = {
    "grouped": (2, 4, 2, 1000, 1000),
    "more keys": (1, 4, 1, 333, 2222),
    "more queries": (1, 2, 2, 200, 64),
    "one": (1, 1, 1, 1, 1),
}


def tensors(batch, heads, kv_heads, seq_q, seq_k, dim, seed=0, dtype=torch.bfloat16):
    """In memory as [B,S,H,D]."""
    torch.manual_seed(seed)
    sizes = ((heads, seq_q), (kv_heads, seq_k), (kv_heads, seq_k))
    return [torch.randn(batch, s, h, dim, device="cuda", dtype=dtype).transpose(1, 2)
            for h, s in sizes]  # fmt: skip


def fp8(q, k, v, **rules):
    return accel.attention(q, k, v, precision="fp8", backend="hopper", **rules)


def problem(x, **rules):
    return problem_of(x, rules_of(x.q, **rules))


def apart(a, b):
    return float((a.double() - b.double()).norm() / b.double().norm())


def assert_emulated(out, lse, x, **rules):
    """A number between two of E4M3 may be rounded to the other one."""
    missing = pad_head(out.shape[3]) - out.shape[3]
    made, _ = quantise(*(pad(t, (0, missing)) for t in x[:3]))
    exact, exact_lse = emulation.attend(made, problem(x, **rules), torch.float64)
    exact = exact[..., : out.shape[3]]
    blind = exact_lse == -math.inf
    assert torch.equal(lse == -math.inf, blind)
    assert not out[blind].any()
    assert apart(out, exact) < 8e-3
    assert float((lse - exact_lse)[~blind].abs().max()) < 5e-3


@pytest.mark.parametrize("dim", [64, 80, 128, 256])
@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_it_rounds_as_its_emulation(shape, rules, dim):
    x = Inputs(*tensors(*shape, dim))
    out, lse = fp8(*x[:3], return_lse=True, **rules)
    assert_emulated(out, lse, x, **rules)


def test_many_tiles_a_processor():
    """Tiles are claimed from a counter, and values are quantised several blocks at a time."""
    x = Inputs(*tensors(3, 16, 8, 4096, 4096, 128))
    out, lse = fp8(*x[:3], causal=True, return_lse=True)
    assert_emulated(out, lse, x, causal=True)


@pytest.mark.parametrize("dim", [40, 80, 200])
def test_other_head_sizes_are_padded(dim):
    q, k, v = tensors(2, 4, 2, 200, 300, dim)
    out, lse = fp8(q, k, v, causal=True, return_lse=True)
    truth, exact_lse = reference(q, k, v, causal=True, return_lse=True)
    assert out.shape == q.shape
    assert apart(out, truth) < 0.07
    assert float((lse - exact_lse).abs().max()) < 0.1


def test_rows_at_odd_places_are_copied():
    wide = tensors(2, 4, 2, 200, 300, 72)
    cut = [t[..., 8:] for t in wide]
    assert torch.equal(fp8(*cut, causal=True), fp8(*(t.contiguous() for t in cut), causal=True))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dim", [64, 128, 256])
@pytest.mark.parametrize("sizes", [(2, 4, 2, 200, 300), (2, 8, 8, 64, 16384)])
def test_the_pre_pass_rounds_as_its_emulation(sizes, dim, dtype):
    q, k, v = tensors(*sizes, dim, dtype=dtype)
    v[0] += 3
    v[:, :, 140:160] *= 1e3  # beyond the keys of the centre, which is 0 where it is uncertain
    q[0, 0, 3, 3] = math.nan
    made, claims = quantise(q, k, v)
    assert not claims.item()
    for name, got, want in zip(made._fields, made, emulation.quantise(q, k, v), strict=True):
        if got.itemsize == 1:
            same = (got.view(torch.uint8) == want.view(torch.uint8)).float().mean()
            assert same > 0.995, (name, float(same))
        else:
            torch.testing.assert_close(got, want, msg=lambda m, name=name: f"{name}: {m}")


@pytest.mark.parametrize("dim", [64, 128, 256])
@pytest.mark.parametrize("rules", [{}, {"causal": True}, {"window": (60, 20)}], ids=str)
@pytest.mark.parametrize("lengths", [[700, 1, 0, 300, 129], [128, 256, 64]], ids=str)
def test_ragged_batches_are_each_sequence_alone(lengths, rules, dim):
    """Also of values whose means differ between sequences."""
    ragged = Ragged.of(lengths, lengths, device="cuda")
    q, k, v = tensors(1, 4, 2, sum(lengths), sum(lengths), dim)
    owner = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths)).cuda()
    v = (v + 10 * (owner - 2)[None, None, :, None]).to(v.dtype)
    given = [t[0].transpose(0, 1) for t in (q, k, v)]
    out, lse = fp8(*given, seqlens=ragged, return_lse=True, **rules)
    x = Inputs(q, k, v, ragged=ragged)
    exact, exact_lse = emulation.forward(x, problem(x, **rules), torch.float64)
    assert float((lse - exact_lse[0]).abs().max()) < 5e-3
    at = 0
    for length in filter(None, lengths):
        cut = slice(at, at + length)
        alone = fp8(*(t[:, :, cut] for t in (q, k, v)), **rules)[0].transpose(0, 1)
        assert apart(out[cut], alone) < 1e-3
        assert apart(out[cut], exact[0].transpose(0, 1)[cut]) < 8e-3
        truth = reference(*(t[:, :, cut] for t in (q, k, v)), **rules)[0].transpose(0, 1)
        assert apart(out[cut], truth) < 0.07
        at += length
    centres = quantise(q, k, v, ragged)[0].v_centre
    for i, length in enumerate(lengths):
        if length >= KEYS:
            assert float((centres[i] - 10 * (i - 2)).abs().max()) < 1


@pytest.mark.parametrize("dim", [64, 128, 256])
@pytest.mark.parametrize("length", [8192, 131072])
def test_a_key_that_draws_most_weight(length, dim):
    """The error is at most twice the emulation's, over 131072 keys, too."""
    q, k, v = (t.clone() for t in tensors(1, 2, 2, 128, length, dim))
    q += 1
    k[:, :, 0] += 8 * math.log(length) / math.sqrt(dim)
    v[:, :, 0] *= 0.01
    truth = reference(q, k, v)
    x = Inputs(q, k, v)
    exact, _ = emulation.forward(x, problem(x), torch.float64)
    assert apart(fp8(q, k, v), truth) < 2 * apart(exact, truth) + 1e-3


@pytest.mark.parametrize("dim", [64, 128, 256])
def test_a_learned_sink_takes_its_share(dim):
    q, k, v = tensors(2, 4, 2, 300, 500, dim)
    sink = torch.tensor([-1.0, 3.0, 6.0, 9.0], device="cuda")
    out, lse = fp8(q, k, v, causal=True, sink=sink, return_lse=True)
    truth, whole = reference(q, k, v, causal=True, sink=sink, return_lse=True)
    assert apart(out, truth) < 0.07
    assert float((lse - whole).abs().max()) < 0.1
    found = accel.attention.error_of(q, k, v, causal=True, sink=sink)
    assert found.relative == pytest.approx(apart(out, truth), rel=1e-3)


@pytest.mark.parametrize("dim", [64, 128, 256])
def test_error_of_is_the_error_of_the_kernel(dim):
    q, k, v = tensors(1, 2, 1, 500, 700, dim)
    found = accel.attention.error_of(q, k, v, precision="fp8", causal=True)
    truth = reference(q, k, v, causal=True)
    away = fp8(q, k, v, causal=True).double() - truth
    assert found.backend == "hopper fp8"
    assert found.rmse == pytest.approx(float(away.square().mean().sqrt()), rel=1e-3)
    simulated = accel.attention.error_of(q, k, v, causal=True, backend="emulation")
    assert simulated.backend == "emulation fp8"
    assert found.rmse == pytest.approx(simulated.rmse, rel=0.05)


def test_a_graph_replays_it():
    q, k, v = tensors(2, 4, 2, 1000, 1000, 128)
    for _ in range(2):
        due = fp8(q, k, v, causal=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = fp8(q, k, v, causal=True)
    for _ in range(3):
        out.fill_(math.nan)
        graph.replay()
        assert torch.equal(out, due)
