"""What may be asked of attention, how it is counted, and what each backend refuses. CUDA problems are described here, not run."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from accel.attention import Problem, choose, describe
from accel.attention.api import preferred


def problem(**changes):
    asked = {
        "batch": 1,
        "heads": 8,
        "kv_heads": 8,
        "seq_q": 128,
        "seq_k": 128,
        "head_dim": 64,
        "dtype": torch.bfloat16,
        "device": torch.device("cuda", 0),
        "capability": (9, 0),
        "causal": False,
        "scale": 0.125,
        "grad": False,
    }
    return Problem(**{**asked, **changes})


def tensors(q=(1, 4, 5, 8), k=(1, 2, 7, 8), v=(1, 2, 7, 8), dtype=torch.float32):
    return tuple(torch.zeros(s, dtype=dtype) for s in (q, k, v))


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"q": (4, 5, 8)}, r"q must be \[batch, heads, sequence, head size\]; got shape \[4, 5, 8\]"),
        ({"v": (1, 2, 6, 8)}, r"k and v must have one shape; got q \[1, 4, 5, 8\], k \[1, 2, 7, 8\], v \[1, 2, 6, 8\]"),
        ({"q": (2, 4, 5, 8)}, r"one batch size; got q \[2, 4, 5, 8\]"),
        ({"q": (1, 4, 5, 9)}, r"one head size; got q \[1, 4, 5, 9\]"),
        ({"q": (1, 3, 5, 8)}, r"the key/value heads must divide the query heads, at least 1 each; got 2 for 3 query heads"),
        ({"k": (1, 0, 7, 8), "v": (1, 0, 7, 8)}, r"at least 1 each; got 0 for 4 query heads"),
        ({"q": (1, 4, 5, 0), "k": (1, 2, 7, 0), "v": (1, 2, 7, 0)}, r"the head size must be at least 1; got 0"),
        ({"dtype": torch.float64}, r"attention takes float16, bfloat16, float32; got float64"),
        ({"dtype": torch.int32}, r"attention takes float16, bfloat16, float32; got int32"),
    ],
)
def test_inputs_that_do_not_fit_are_refused_by_name(shapes, message):
    with pytest.raises(ValueError, match=message):
        describe(*tensors(**shapes))


def test_mixed_dtypes_and_devices_are_named():
    q, k, v = tensors()
    with pytest.raises(ValueError, match=r"q, k and v must have one dtype; got q: float32, k: float16, v: float32"):
        describe(q, k.half(), v)
    with pytest.raises(ValueError, match=r"q, k and v must have one device; got q: cpu, k: cpu, v: meta"):
        describe(q, k, v.to("meta"))
    with pytest.raises(ValueError, match=r"attention runs on cpu and cuda; got tensors on meta"):
        describe(q.to("meta"), k.to("meta"), v.to("meta"))
    with pytest.raises(ValueError, match=r"q must be an ordinary dense tensor; got layout torch.sparse_coo"):
        describe(q.to_sparse(), k, v)


@pytest.mark.parametrize("scale", [math.nan, math.inf, -math.inf, 0.0, -0.5])
def test_a_scale_no_kernel_can_use_is_refused(scale):
    with pytest.raises(ValueError, match=r"scale must be a finite number above 0, or None for 1/sqrt\(head size\); got"):
        describe(*tensors(), scale=scale)


def test_describe_says_all_that_dispatch_needs():
    q, k, v = tensors()
    q.requires_grad_()
    p = describe(q, k, v, causal=True)
    assert (p.batch, p.heads, p.kv_heads, p.seq_q, p.seq_k, p.head_dim) == (1, 4, 2, 5, 7, 8)
    assert (p.scale, p.grad, p.dense, p.capability) == (1 / math.sqrt(8), True, True, None)
    with torch.no_grad():
        assert not describe(q, k, v).grad
    assert str(p) == "batch 1, heads 4 over 2, sequence 5 over 7, head size 8, float32, causal on cpu"


@given(seq_q=st.integers(0, 40), seq_k=st.integers(0, 40), causal=st.booleans())
def test_pairs_are_counted_one_by_one(seq_q, seq_k, causal):
    p = problem(seq_q=seq_q, seq_k=seq_k, causal=causal)
    seen = [[not causal or j <= i + seq_k - seq_q for j in range(seq_k)] for i in range(seq_q)]
    assert p.pairs == sum(map(sum, seen))
    assert p.flops == 4 * p.batch * p.heads * p.pairs * p.head_dim
    assert p.blind == (sum(not any(row) for row in seen) if causal else 0)


def test_flops_of_a_long_causal_square_are_the_usual_half_and_its_diagonal():
    full, causal = problem(seq_q=16384, seq_k=16384), problem(seq_q=16384, seq_k=16384, causal=True)
    assert full.flops == 4 * 8 * 16384**2 * 64
    assert causal.flops == full.flops / 2 * (16385 / 16384)


@pytest.mark.parametrize(
    ("backend", "changes", "message"),
    [
        ("flash", {"dtype": torch.float32}, "takes float16 and bfloat16, not float32"),
        ("flash", {"head_dim": 320}, "takes head sizes up to 256 on CUDA, not 320"),
        ("flash", {"capability": (7, 5)}, "needs compute capability 8.0 or newer; this GPU has 7.5"),
        ("cudnn", {"dtype": torch.float32}, "takes float16 and bfloat16, not float32"),
        ("cudnn", {"head_dim": 60}, "takes head sizes that are multiples of 8 up to 256, not 60"),
        ("cudnn", {"causal": True, "seq_q": 64}, "masks causal sequences of one length only, not 64 over 128"),
        ("efficient", {"capability": (7, 5)}, "takes bfloat16 from compute capability 8.0 on; this GPU has 7.5"),
        ("efficient", {"causal": True, "seq_q": 64, "kv_heads": 2}, "cannot mask 64 over 128 tokens with grouped heads"),
        ("flash", {"dense": False}, r"needs the elements of a head side by side in memory \(call \.contiguous\(\) on q, k and v\)"),
        ("efficient", {"device": torch.device("cpu"), "capability": None}, "needs a CUDA GPU; the tensors are on cpu"),
    ],
)
def test_each_refusal_says_why_and_what_can(backend, changes, message):
    with pytest.raises(ValueError, match=rf"^backend {backend} cannot do this: it {message}.*\. These can: .*math, reference$"):
        choose(problem(**changes), backend)


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch's own verdict on this GPU comes on top")
@pytest.mark.parametrize(
    ("changes", "picked"),
    [
        ({}, "cudnn"),
        ({"capability": (8, 0)}, "flash"),
        ({"capability": (12, 0)}, "flash"),
        ({"dtype": torch.float32}, "efficient"),
        ({"causal": True, "seq_q": 64}, "flash"),
        ({"causal": True, "seq_q": 200}, "cudnn"),  # the queries that see a key form a square
        ({"causal": True, "seq_q": 1}, "cudnn"),  # a single query sees every key
        ({"capability": (7, 5)}, "math"),
        ({"capability": (7, 5), "dtype": torch.float16}, "efficient"),
        ({"head_dim": 512}, "efficient"),
        ({"device": torch.device("cpu"), "capability": None}, "flash"),
    ],
)
def test_auto_takes_the_first_preferred_that_can(changes, picked):
    p = problem(**changes)
    choice = choose(p)
    assert choice.backend == picked
    assert choice.reason.startswith(f"auto: the first of {', '.join(preferred(p))} that can do it")
    able = {c.backend for c in choice.candidates if c.refusal is None}
    assert picked == next(name for name in preferred(p) if name in able)
