"""The Hopper forward kernel against the float64 computation. Run on a machine with an H100 or H200:

python -m pytest tests/gpu/test_hopper_forward.py -n 0
"""

import math
import random

import pytest
import torch

from gpudeck.accel.attention.problem import Rules
from gpudeck.accel.attention.ragged import Ragged

if not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0):
    pytest.skip("needs a Hopper GPU", allow_module_level=True)

from gpudeck.accel.attention.kernels.decoding import latent
from gpudeck.accel.attention.kernels.decoding.plan import attend
from gpudeck.accel.attention.kernels.hopper import forward_wide
from gpudeck.accel.attention.kernels.hopper.forward import forward

NONE = {"left": None, "right": None, "softcap": 0.0}
CAUSAL = {**NONE, "right": 0}
BF16, FP16 = torch.bfloat16, torch.float16


def plain(q, k, v, *, left, right, scale, softcap, dtype=torch.float64):
    """Attention of q [B,H,Sq,D] with every step in `dtype`: out, and lse in float64."""
    seq_q, seq_k = q.shape[2], k.shape[2]
    k, v = (x.to(dtype).repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q.to(dtype) @ k.mT * scale
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    place = torch.arange(seq_q, device=q.device)[:, None] + seq_k - seq_q
    key = torch.arange(seq_k, device=q.device)
    hidden = torch.zeros(seq_q, seq_k, dtype=torch.bool, device=q.device)
    if left is not None:
        hidden |= key < place - left
    if right is not None:
        hidden |= key > place + right
    scores = scores.masked_fill(hidden, -math.inf)
    lse = torch.logsumexp(scores.double(), -1)
    weights = torch.softmax(scores, -1).masked_fill(hidden.all(-1, keepdim=True), 0.0)
    return weights @ v, lse


def check(q, k, v, out, lse, **asked):
    """Out and lse are no further from the float64 answer than twice what the inputs' own
    precision costs."""
    if not lse.numel():
        return
    exact, exact_lse = plain(q, k, v, **asked)
    rough, rough_lse = plain(q, k, v, **asked, dtype=q.dtype)
    blind = exact_lse == -math.inf
    assert torch.equal(lse == -math.inf, blind)
    assert not out[blind].any()
    if not blind.all():
        apart = (lse - exact_lse)[~blind].abs().max()
        assert apart <= 2 * (rough_lse - exact_lse)[~blind].abs().max() + 1e-4, (
            f"lse is {apart} off"
        )
    apart = (out - exact).abs().max()
    bound = 2 * (rough - exact).abs().max() + 1e-5
    assert apart <= bound, f"out is {apart} off; {bound} allowed"


def tensors(q_shape, kv_shape, dtype, seed=0):
    """Standard normal q, k, v of [B,H,S,D]."""
    at = torch.Generator("cuda").manual_seed(seed)
    return [
        torch.randn(shape, generator=at, device="cuda").to(dtype)
        for shape in (q_shape, kv_shape, kv_shape)
    ]


def run(q, k, v, *, ragged=None, **asked):
    """`forward`, into memory that was NaN before."""
    poison = [torch.full_like(q, math.nan), torch.full(q.shape[:3], math.nan, device="cuda")]
    del poison
    return forward(q, k, v, Rules(**asked), ragged=ragged)


@pytest.mark.parametrize("dtype", [FP16, BF16])
@pytest.mark.parametrize("dim", [32, 64, 96, 128, 192, 256])
@pytest.mark.parametrize(
    "kind",
    [
        NONE,
        CAUSAL,
        {**NONE, "left": 100},
        {**NONE, "left": 70, "right": 30},
        {**CAUSAL, "softcap": 20.0},
    ],
    ids=["full", "causal", "left", "window", "causal, softcap"],
)
def test_every_kind_and_head_size(dim, dtype, kind):
    q, k, v = tensors((2, 4, 333, dim), (2, 2, 333, dim), dtype)
    asked = {**kind, "scale": dim**-0.5}
    check(q, k, v, *run(q, k, v, **asked), **asked)


@pytest.mark.parametrize("dim", [64, 128, 256])
@pytest.mark.parametrize(
    "kind", [NONE, CAUSAL, {**NONE, "left": 5, "right": 3}, {**NONE, "left": 300, "right": -20}]
)
@pytest.mark.parametrize(
    "lengths",
    [(1, 1), (1, 700), (7, 129), (129, 7), (200, 64), (64, 200), (500, 1), (192, 512), (640, 640)],
)
def test_lengths(lengths, dim, kind):
    seq_q, seq_k = lengths
    q, k, v = tensors((1, 3, seq_q, dim), (1, 1, seq_k, dim), BF16)
    asked = {**kind, "scale": 0.1}
    check(q, k, v, *run(q, k, v, **asked), **asked)


def test_random_shapes():
    at = random.Random(5)
    for seed in range(60):
        kv_heads, dim = at.choice([1, 2, 3]), at.choice([8, 40, 64, 72, 128, 160, 256])
        q_shape = (at.randint(1, 3), kv_heads * at.choice([1, 2, 4]), at.randint(1, 900), dim)
        kv_shape = (q_shape[0], kv_heads, at.randint(1, 900), dim)
        q, k, v = tensors(q_shape, kv_shape, at.choice([FP16, BF16]), seed)
        asked = {
            "left": at.choice([None, at.randint(0, 400)]),
            "right": at.choice([None, 0, at.randint(0, 400)]),
            "scale": at.choice([0.05, 0.125, 1.0]),
            "softcap": at.choice([0.0, 0.0, 15.0]),
        }
        check(q, k, v, *run(q, k, v, **asked), **asked)


@pytest.mark.parametrize("dim", [64, 128, 256])
@pytest.mark.parametrize(
    "kind", [NONE, CAUSAL, {**NONE, "left": 60, "right": 10}, {**CAUSAL, "softcap": 8.0}]
)
def test_ragged(dim, kind):
    lengths_q, lengths_k = [70, 0, 1, 500, 129, 20, 0], [70, 33, 300, 131, 0, 64, 0]
    q, k, v = tensors((1, 4, sum(lengths_q), dim), (1, 2, sum(lengths_k), dim), BF16)
    starts = [
        torch.tensor([0, *n], dtype=torch.int32, device="cuda").cumsum(0, dtype=torch.int32)
        for n in (lengths_q, lengths_k)
    ]
    asked = {**kind, "scale": dim**-0.5}
    out, lse = run(q, k, v, ragged=Ragged(*starts, max(lengths_q), max(lengths_k)), **asked)
    for i in range(len(lengths_q)):
        here_q, here_k = (slice(int(at[i]), int(at[i + 1])) for at in starts)
        parts = (
            q[:, :, here_q],
            k[:, :, here_k],
            v[:, :, here_k],
            out[:, :, here_q],
            lse[:, :, here_q],
        )
        check(*parts, **asked)


@pytest.mark.parametrize("dim", [64, 128, 256])
def test_many_ragged_sequences(dim):
    """More tiles than multiprocessors, many of them past the end of their sequence: each is
    claimed or passed over, none is left."""
    at = random.Random(dim)
    lengths = [at.choice([0, 1, at.randint(2, 64), at.randint(65, 700)]) for _ in range(120)]
    q, k, v = tensors((1, 4, sum(lengths), dim), (1, 2, sum(lengths), dim), BF16)
    starts = torch.tensor([0, *lengths], dtype=torch.int32, device="cuda").cumsum(
        0, dtype=torch.int32
    )
    asked = {**CAUSAL, "scale": dim**-0.5}
    out, lse = run(q, k, v, ragged=Ragged(starts, starts, max(lengths), max(lengths)), **asked)
    for first, length in zip(starts.tolist(), lengths, strict=False):
        here = slice(first, first + length)
        check(*(x[:, :, here] for x in (q, k, v, out, lse)), **asked)


@pytest.mark.parametrize("kind", [NONE, CAUSAL])
def test_a_neighbours_nan_does_not_leak(kind):
    """Neither over the end of a sequence, nor between batches, nor from another ragged sequence."""
    q, k, v = tensors((3, 2, 100, 128), (3, 2, 100, 128), BF16)
    asked = {**kind, "scale": 0.1}
    clean = forward(q, k, v, Rules(**asked))
    for x in (q, k, v):
        x[1] = math.nan
    dirty = forward(q, k, v, Rules(**asked))
    for x, y in zip(clean, dirty, strict=True):
        assert torch.equal(x[::2], y[::2])
        assert y[1].isnan().all()
    ends = torch.tensor([0, 100, 200, 300], dtype=torch.int32, device="cuda")
    flat = [x.transpose(0, 1).reshape(1, 2, 300, 128) for x in (q, k, v)]
    out, lse = forward(*flat, Rules(**asked), ragged=Ragged(ends, ends, 100, 100))
    assert torch.equal(out[0].view(2, 3, 100, 128).transpose(0, 1)[::2], clean[0][::2])
    assert torch.equal(lse[0].view(2, 3, 100).transpose(0, 1)[::2], clean[1][::2])


def test_strides_need_no_copy():
    """[B,S,H,D], a packed qkv, a batch that repeats one tensor, a slice along the sequence: bit
    for bit as of contiguous tensors."""
    asked = {**CAUSAL, "scale": 0.1, "ragged": None}
    packed = torch.randn(2, 150, 3, 4, 64, device="cuda").to(BF16)
    one = torch.randn(1, 1, 150, 64, device="cuda").to(BF16)
    long = torch.randn(2, 4, 400, 64, device="cuda").to(BF16)
    cases = {
        "BSHD, packed": [packed[:, :, i].transpose(1, 2) for i in range(3)],
        "repeated": [
            packed[:, :, 0].transpose(1, 2),
            one.expand(2, 4, 150, 64),
            one.expand(2, 4, 150, 64),
        ],
        "sliced": [long[:, :, 30:180], long[:, :, 100:250], long[:, :, 200:350]],
    }
    for name, (q, k, v) in cases.items():
        out, lse = run(q, k, v, **asked)
        expected, expected_lse = run(*(x.contiguous() for x in (q, k, v)), **asked)
        assert torch.equal(out, expected), name
        assert torch.equal(lse, expected_lse), name
        assert out.stride() == torch.empty_like(q).stride()


@pytest.mark.parametrize("seq_k", [0, 5])
def test_nothing_to_attend_to(seq_k):
    q, k, v = tensors((2, 2, 9, 64), (2, 2, seq_k, 64), BF16)
    out, lse = run(q, k, v, left=None, right=-9, scale=1.0, softcap=0.0)
    assert not out.any()
    assert (lse == -math.inf).all()


@pytest.mark.parametrize("dim", [64, 128, 256])
def test_outliers(dim):
    """The distribution of the FlashAttention-3 paper, section 4.3: N(0, 1) + N(0, 100) with a
    chance of 0.001."""
    shape = (1, 4, 1000, dim)
    q, k, v = (
        (torch.randn(shape) + 10 * torch.randn(shape) * (torch.rand(shape) < 0.001)).to(
            "cuda", FP16
        )
        for _ in range(3)
    )
    for kind in (NONE, CAUSAL):
        asked = {**kind, "scale": dim**-0.5}
        check(q, k, v, *run(q, k, v, **asked), **asked)


@pytest.mark.parametrize("dim", [64, 128, 256])
@pytest.mark.parametrize("kind", [NONE, CAUSAL])
def test_the_same_bits_every_time(dim, kind):
    q, k, v = tensors((2, 16, 2000, dim), (2, 4, 2000, dim), BF16)
    first = forward(q, k, v, Rules(scale=0.1, **kind))
    for _ in range(20):
        again = forward(q, k, v, Rules(scale=0.1, **kind))
        assert all(torch.equal(x, y) for x, y in zip(first, again, strict=True))


def test_long_and_many():
    """More tiles than multiprocessors, and rows past the first 2**31 elements."""
    q, k, v = tensors((1, 1, 300, 128), (1, 1, 300, 128), BF16)
    far = torch.empty(2, 1 << 31, dtype=BF16, device="cuda")[:, : 300 * 128].view(2, 1, 300, 128)
    far.copy_(q.expand(2, 1, 300, 128))
    out, _ = forward(far, far, far, Rules(scale=0.1, **CAUSAL))
    expected, _ = forward(q, q, q, Rules(scale=0.1, **CAUSAL))
    assert torch.equal(out[0], expected[0]) and torch.equal(out[1], expected[0])
    del far, out
    q, k, v = tensors((64, 9, 130, 64), (64, 3, 130, 64), FP16)
    asked = {**CAUSAL, "scale": 0.125}
    check(q, k, v, *run(q, k, v, **asked), **asked)


@pytest.mark.parametrize("dtype", [BF16, FP16])
@pytest.mark.parametrize(
    ("batch", "heads", "keys"), [(1, 64, 64), (2, 128, 4109), (33, 128, 300), (5, 192, 1000)]
)
def test_latent_keys_in_one_query(monkeypatch, batch, heads, keys, dtype):
    """MLA: right against float64, the same bits every time, and blind to what lies behind."""
    ran = []
    compute = latent.attend
    monkeypatch.setattr(latent, "attend", lambda *given: (ran.append(1), compute(*given)))
    q = torch.randn(batch, 1, heads, 576, device="cuda").to(dtype).transpose(1, 2)
    room = torch.full((batch, 1, keys + 70, 576), math.nan, dtype=dtype, device="cuda")
    room[:, :, :keys] = torch.randn(batch, 1, keys, 576, device="cuda")
    k = room[:, :, :keys]
    asked = {"scale": 576**-0.5, "softcap": 0.0}
    out, lse = attend(q, k, k[..., :512], Rules(**asked), wants_lse=True)
    assert ran
    check(q, k, k[..., :512], out, lse, **asked, left=None, right=None)
    for _ in range(20):
        again, _ = attend(q, k, k[..., :512], Rules(**asked))
        assert torch.equal(out, again)


@pytest.mark.parametrize(("dim", "dtype"), [(512, BF16), (512, FP16), (264, BF16), (400, FP16)])
@pytest.mark.parametrize(
    "rule",
    [NONE, CAUSAL, {**NONE, "left": 70, "right": 20}, {**CAUSAL, "softcap": 3.0}],
    ids=["full", "causal", "window", "softcap"],
)
@pytest.mark.parametrize(
    ("seq_q", "seq_k"), [(256, 256), (1, 1), (77, 131), (300, 200), (1024, 1024)]
)
def test_the_widest_heads(dim, dtype, rule, seq_q, seq_k):
    at = torch.Generator("cuda").manual_seed(seq_q)
    q, k, v = (
        torch.randn(shape, generator=at, device="cuda").to(dtype)
        for shape in ((2, 4, seq_q, dim), (2, 2, seq_k, dim), (2, 2, seq_k, dim))
    )
    asked = {"scale": dim**-0.5, **rule}
    out, lse = forward_wide.plan_run(q, k, v, Rules(**asked))(q, k, v)
    check(q, k, v, out, lse, **asked)
