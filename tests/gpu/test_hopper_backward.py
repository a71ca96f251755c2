"""The Hopper backward kernels against the float64 computation. Run on a machine with an H100 or
H200:

python -m pytest tests/gpu/test_hopper_backward.py -n 0
"""

import math
from dataclasses import replace

import pytest
import torch

from gpudeck.accel.attention.problem import Rules
from gpudeck.accel.attention.ragged import Ragged

if not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0):
    pytest.skip("needs a Hopper GPU", allow_module_level=True)

from gpudeck.accel.attention.kernels.hopper.backward import NEVER, TILES, _plan, backward

NONE = {"left": None, "right": None, "softcap": 0.0}
CAUSAL = {**NONE, "right": 0}
BF16, FP16 = torch.bfloat16, torch.float16
BOTH = pytest.mark.parametrize("deterministic", [False, True], ids=["fused", "deterministic"])


@pytest.fixture(autouse=True)
def atomics(monkeypatch):
    """Each tile has a CTA, and the keys add to dq atomically unless asked to be deterministic,
    whatever the sizes would do by themselves."""
    _plan.cache_clear()
    for size in (64, 128):
        monkeypatch.setitem(TILES, size, replace(TILES[size], atomic_from=0, claimed_to=0))


def plain(dout, q, k, v, *, left, right, scale, softcap, dtype, out_as=None):
    """out, lse (float64), dq, dk and dv of attention over q [B,H,Sq,D], every step in `dtype`.

    With `out_as` the gradients come from an `out` rounded to that type, which is all that a
    backward pass is given.
    """
    q, k, v = (x.detach().to(dtype).requires_grad_() for x in (q, k, v))
    seq_q, seq_k = q.shape[2], k.shape[2]
    keys, values = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ keys.mT * scale
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    place = torch.arange(seq_q, device=q.device)[:, None] + seq_k - seq_q
    key = torch.arange(seq_k, device=q.device)
    hidden = torch.zeros(seq_q, seq_k, dtype=torch.bool, device=q.device)
    if left is not None:
        hidden |= key < place - left
    if right is not None:
        hidden |= key > place + right
    lse = torch.logsumexp(scores.detach().double().masked_fill(hidden, -math.inf), -1)
    scores = scores.masked_fill(hidden, torch.finfo(dtype).min)
    out = torch.softmax(scores, -1).masked_fill(hidden, 0.0) @ values
    if out_as is None:
        return out.detach(), lse, *torch.autograd.grad(out, (q, k, v), dout.to(dtype))
    weights = torch.exp(scores - lse.to(dtype).unsqueeze(-1)).masked_fill(hidden, 0.0)
    delta = (dout.to(dtype) * out.detach().to(out_as).to(dtype)).sum(-1)
    surrogate = (dout.to(dtype) * (weights @ values)).sum() - (weights.sum(-1) * delta).sum()
    return out.detach(), lse, *torch.autograd.grad(surrogate, (q, k, v))


def assert_close(got, dout, q, k, v, what="", **asked):
    """No further from the float64 answer than twice what the inputs' own precision costs, and
    what it costs in the given `out`."""
    exact = plain(dout, q, k, v, **asked, dtype=torch.float64)[2:]
    rough = plain(dout, q, k, v, **asked, dtype=q.dtype)[2:]
    given = plain(dout, q, k, v, **asked, dtype=torch.float64, out_as=q.dtype)[2:]
    for name, x, to, other, rounded in zip(
        ("dq", "dk", "dv"), got, exact, rough, given, strict=True
    ):
        apart, allowed = (
            (x - to).abs().max().item(),
            2 * (other - to).abs().max().item() + (rounded - to).abs().max().item() + 1e-4,
        )
        assert apart <= allowed, f"{what}: {name} is {apart} off; {allowed} allowed"


def run(dout, q, k, v, out, lse, *, ragged=None, deterministic=False, **asked):
    """`backward`, into memory that was NaN before."""
    size = q.numel() + 2 * q.shape[0] * q.shape[1] * (q.shape[2] + 256) * 256
    poison = [
        torch.full((size,), math.nan, device="cuda"),
        *(torch.full_like(x, math.nan) for x in (q, k, v)),
    ]
    del poison
    rules = Rules(**asked)
    return backward(dout, q, k, v, out, lse, rules, ragged=ragged, deterministic=deterministic)


def tensors(q_shape, kv_shape, dtype, seed=0):
    """Standard normal dout, q, k, v of [B,H,S,D]."""
    at = torch.Generator("cuda").manual_seed(seed)
    return [
        torch.randn(shape, generator=at, device="cuda").to(dtype)
        for shape in (q_shape, q_shape, kv_shape, kv_shape)
    ]


def check(dout, q, k, v, *, deterministic, **asked):
    out, lse = plain(dout, q, k, v, **asked, dtype=torch.float64)[:2]
    got = run(dout, q, k, v, out.to(q.dtype), lse.float(), deterministic=deterministic, **asked)
    assert_close(got, dout, q, k, v, **asked)
    return got


@BOTH
@pytest.mark.parametrize("dim", [64, 128, 256])
@pytest.mark.parametrize(
    "rule",
    [NONE, CAUSAL, {**NONE, "left": 70, "right": 20}, {**NONE, "left": 100}],
    ids=["full", "causal", "window", "left"],
)
@pytest.mark.parametrize(
    ("seq_q", "seq_k"),
    [(256, 256), (1, 1), (77, 131), (200, 65), (333, 333), (1, 300), (640, 1000)],
)
def test_gradients(dim, rule, seq_q, seq_k, deterministic):
    check(
        *tensors((2, 4, seq_q, dim), (2, 2, seq_k, dim), BF16),
        scale=dim**-0.5,
        deterministic=deterministic,
        **rule,
    )


@pytest.mark.parametrize("atomic", [False, True], ids=["two kernels", "atomic"])
@pytest.mark.parametrize("dim", [64, 96])
@pytest.mark.parametrize(
    "rule",
    [NONE, CAUSAL, {**NONE, "left": 70, "right": 20}, {**CAUSAL, "softcap": 3.0}],
    ids=["full", "causal", "window", "softcap"],
)
@pytest.mark.parametrize(("seq_q", "seq_k"), [(1024, 1024), (77, 131), (333, 200), (640, 1000)])
def test_claimed_tiles(monkeypatch, dim, rule, seq_q, seq_k, atomic):
    """More tiles than multiprocessors where sequences are long, and some that nobody sees."""
    for size in (64, 128):
        claimed = {"claimed_to": 4096, "claimed_atomic_from": 0 if atomic else NEVER}
        monkeypatch.setitem(TILES, size, replace(TILES[size], **claimed))
    _plan.cache_clear()
    check(
        *tensors((4, 6, seq_q, dim), (4, 3, seq_k, dim), BF16),
        scale=dim**-0.5,
        deterministic=False,
        **rule,
    )


@BOTH
@pytest.mark.parametrize("dim", [8, 40, 64, 72, 128, 192, 256])
@pytest.mark.parametrize("dtype", [FP16, BF16], ids=["fp16", "bf16"])
def test_head_sizes_and_dtypes(dim, dtype, deterministic):
    check(
        *tensors((1, 6, 150, dim), (1, 2, 190, dim), dtype),
        scale=dim**-0.5,
        deterministic=deterministic,
        **CAUSAL,
    )


@BOTH
@pytest.mark.parametrize("dim", [64, 128, 256])
def test_softcap(dim, deterministic):
    inputs = tensors((1, 2, 200, dim), (1, 2, 200, dim), BF16)
    check(
        *inputs, scale=dim**-0.5 * 4, deterministic=deterministic, left=None, right=0, softcap=3.0
    )


@BOTH
@pytest.mark.parametrize("dim", [64, 128, 256])
def test_outliers(dim, deterministic):
    """The distribution of the FlashAttention-3 paper: N(0, 1), and N(0, 100) in one of 1000."""
    at = torch.Generator("cuda").manual_seed(1)
    shape = (1, 2, 512, dim)

    def draw():
        rare = torch.rand(shape, generator=at, device="cuda") < 0.001
        return (
            torch.randn(shape, generator=at, device="cuda")
            + 10 * rare * torch.randn(shape, generator=at, device="cuda")
        ).to(FP16)

    check(
        torch.randn(shape, generator=at, device="cuda").half(),
        draw(),
        draw(),
        draw(),
        scale=dim**-0.5,
        deterministic=deterministic,
        **NONE,
    )


@BOTH
@pytest.mark.parametrize("dim", [64, 128, 256])
def test_strides(dim, deterministic):
    """Slices of a packed tensor, and gradients in the layout of their inputs; a dout that no box
    fits."""
    packed = torch.randn(2, 100, 3, 4, dim, device="cuda").to(BF16)
    q, k, v = (packed[:, :, i].transpose(1, 2) for i in range(3))
    dout = torch.randn(2, 4, dim, 100, device="cuda").to(BF16).mT
    dq, dk, dv = check(dout, q, k, v, scale=0.1, deterministic=deterministic, **CAUSAL)
    assert dq.stride() == torch.empty_like(q).stride()
    assert dk.stride() == dv.stride() == torch.empty_like(k).stride()


@BOTH
@pytest.mark.parametrize("dim", [64, 128, 256])
@pytest.mark.parametrize("rule", [NONE, CAUSAL], ids=["full", "causal"])
def test_ragged_is_each_sequence_alone(dim, rule, deterministic):
    lengths_q, lengths_k = [5, 0, 130, 64, 257, 1], [70, 10, 130, 0, 300, 9]
    starts_q, starts_k = (
        torch.tensor([0, *x], device="cuda").cumsum(0).int() for x in (lengths_q, lengths_k)
    )
    dout, q, k, v = tensors((1, 4, sum(lengths_q), dim), (1, 2, sum(lengths_k), dim), BF16)
    # A neighbour's NaN stays with the neighbour.
    for x in (dout, q):
        x[:, :, starts_q[4] : starts_q[5]] = math.nan
    asked = {**rule, "scale": dim**-0.5}
    out, lse = torch.zeros_like(q), torch.full(q.shape[:3], -math.inf, device="cuda")
    parts = []
    for i in range(len(lengths_q)):
        at_q, at_k = slice(starts_q[i], starts_q[i + 1]), slice(starts_k[i], starts_k[i + 1])
        part = [x[:, :, s] for x, s in ((dout, at_q), (q, at_q), (k, at_k), (v, at_k))]
        parts.append((at_q, at_k, part))
        if part[1].numel() and part[2].numel():
            exact = plain(*part, **asked, dtype=torch.float64)
            out[:, :, at_q], lse[:, :, at_q] = exact[0].to(BF16), exact[1].float()
    ragged = Ragged(starts_q, starts_k, max(lengths_q), max(lengths_k))
    got = run(dout, q, k, v, out, lse, ragged=ragged, deterministic=deterministic, **asked)
    for i, (at_q, at_k, part) in enumerate(parts):
        mine = (got[0][:, :, at_q], got[1][:, :, at_k], got[2][:, :, at_k])
        if not part[1].numel() or not part[2].numel():
            assert not any(x.any() for x in mine)
        elif i != 4:
            assert_close(mine, *part, f"sequence {i}", **asked)


@BOTH
@pytest.mark.parametrize("dim", [64, 128, 256])
def test_nan_stays_in_its_head(dim, deterministic):
    dout, q, k, v = tensors((2, 2, 100, dim), (2, 2, 100, dim), BF16)
    q[0, 1, 3] = math.nan
    dout[1, 0, 99] = math.nan
    out, lse = plain(dout, q, k, v, **NONE, scale=0.1, dtype=torch.float64)[:2]
    for x in run(
        dout, q, k, v, out.to(BF16), lse.float(), scale=0.1, deterministic=deterministic, **NONE
    ):
        assert x[0, 0].isfinite().all()
        assert x[1, 1].isfinite().all()


@pytest.mark.parametrize("dim", [64, 128, 256])
@pytest.mark.parametrize("rule", [NONE, CAUSAL], ids=["full", "causal"])
def test_repeats_are_bit_identical(dim, rule):
    dout, q, k, v = tensors((2, 4, 900, dim), (2, 2, 900, dim), BF16)
    out, lse = plain(dout, q, k, v, **rule, scale=0.1, dtype=torch.float64)[:2]
    first, *others = (
        run(dout, q, k, v, out.to(BF16), lse.float(), scale=0.1, deterministic=True, **rule)
        for _ in range(4)
    )
    assert all(torch.equal(x, y) for other in others for x, y in zip(first, other, strict=True))


@BOTH
def test_blind_rows_and_no_scale(deterministic):
    dout, q, k, v = tensors((1, 2, 300, 128), (1, 2, 100, 128), BF16)
    dq = check(dout, q, k, v, scale=0.1, deterministic=deterministic, **CAUSAL)[0]
    assert not dq[:, :, :200].any()
    check(dout, q, k, v, scale=0.0, deterministic=deterministic, **NONE)


def test_nothing_to_see():
    dout, q, k, v = tensors((1, 2, 5, 64), (1, 2, 0, 64), BF16)
    got = run(
        dout,
        q,
        k,
        v,
        torch.zeros_like(q),
        torch.full(q.shape[:3], -math.inf, device="cuda"),
        scale=0.1,
        **NONE,
    )
    assert [x.shape for x in got] == [q.shape, k.shape, v.shape]
    assert not got[0].any()
