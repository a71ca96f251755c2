"""Problems are described and counted, and backends refuse what they cannot do; nothing runs on
CUDA."""

import importlib
import math
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpudeck.accel.attention import BACKENDS, Problem, Ragged, attention, choose, describe, dispatch
from gpudeck.accel.attention.backends import fa3, fa4
from gpudeck.accel.attention.dispatch import fail_to_load, prefer, refuse, rule_out
from gpudeck.accel.attention.inputs import arrange


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
        "scale": 0.125,
        "right": 0 if changes.pop("causal", False) else None,
    }
    return Problem(**{**asked, **changes})


def tensors(q=(1, 4, 5, 8), k=(1, 2, 7, 8), v=(1, 2, 7, 8), dtype=torch.float32):
    return tuple(torch.zeros(s, dtype=dtype) for s in (q, k, v))


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (
            {"q": (4, 5, 8)},
            r"q must be \[batch, heads, sequence, head size\]; got shape \[4, 5, 8\]",
        ),
        (
            {"v": (1, 2, 6, 8)},
            (
                r"k and v must have one shape, but for a smaller head size of v; got"
                r" q \[1, 4, 5, 8\], k \[1, 2, 7, 8\], v \[1, 2, 6, 8\]"
            ),
        ),
        ({"q": (2, 4, 5, 8)}, r"one batch size; got q \[2, 4, 5, 8\]"),
        ({"q": (1, 4, 5, 9)}, r"q and k must have one head size; got q \[1, 4, 5, 9\]"),
        (
            {"k": (1, 2, 7, 4)},
            r"q and k must have one head size; got q \[1, 4, 5, 8\], k \[1, 2, 7, 4\]",
        ),
        (
            {"q": (1, 3, 5, 8)},
            (
                r"the key/value heads must divide the query heads, at least 1 each; got 2 for 3"
                r" query heads"
            ),
        ),
        ({"k": (1, 0, 7, 8), "v": (1, 0, 7, 8)}, r"at least 1 each; got 0 for 4 query heads"),
        (
            {"q": (1, 4, 5, 0), "k": (1, 2, 7, 0), "v": (1, 2, 7, 0)},
            r"the head size must be at least 1; got 0",
        ),
        ({"dtype": torch.int32}, r"attention takes float16, bfloat16, float32, float64; got int32"),
    ],
)
def test_inputs_that_do_not_fit_are_refused_by_name(shapes, message):
    with pytest.raises(ValueError, match=message):
        describe(*tensors(**shapes))


def test_mixed_dtypes_and_devices_are_named():
    q, k, v = tensors()
    with pytest.raises(
        ValueError, match=r"q, k and v must have one dtype; got q: float32, k: float16, v: float32"
    ):
        describe(q, k.half(), v)
    with pytest.raises(
        ValueError, match=r"q, k and v must have one device; got q: cpu, k: cpu, v: meta"
    ):
        describe(q, k, v.to("meta"))
    with pytest.raises(ValueError, match=r"attention runs on cpu and cuda; got tensors on meta"):
        describe(q.to("meta"), k.to("meta"), v.to("meta"))
    with pytest.raises(
        ValueError, match=r"q must be an ordinary dense tensor; got layout torch.sparse_coo"
    ):
        describe(q.to_sparse(), k, v)


@pytest.mark.parametrize("scale", [math.nan, math.inf, -math.inf, 0.0, -0.5])
def test_a_scale_no_kernel_can_use_is_refused(scale):
    with pytest.raises(
        ValueError,
        match=r"scale must be a finite number above 0, or None for 1/sqrt\(head size\); got",
    ):
        describe(*tensors(), scale=scale)


def test_describe_says_all_that_dispatch_needs():
    q, k, v = tensors()
    q.requires_grad_()
    p = describe(q, k, v, causal=True)
    assert (p.batch, p.heads, p.kv_heads, p.seq_q, p.seq_k, p.head_dim) == (1, 4, 2, 5, 7, 8)
    assert (p.scale, p.grad, p.causal, p.capability) == (1 / math.sqrt(8), True, True, None)
    with torch.no_grad():
        assert not describe(q, k, v).grad
    assert (
        str(p) == "batch 1, heads 4 over 2, sequence 5 over 7, head size 8, float32, causal on cpu"
    )


SIDE = st.none() | st.integers(0, 45)


@given(seq_q=st.integers(0, 40), seq_k=st.integers(0, 40), left=SIDE, right=SIDE)
def test_pairs_are_counted_one_by_one(seq_q, seq_k, left, right):
    p = problem(seq_q=seq_q, seq_k=seq_k, left=left, right=right)
    far = 1000
    places = [i + seq_k - seq_q for i in range(seq_q)]
    seen = [
        [
            p - (far if left is None else left) <= j <= p + (far if right is None else right)
            for j in range(seq_k)
        ]
        for p in places
    ]
    assert p.pairs == sum(map(sum, seen))
    assert p.flops == 4 * p.batch * p.heads * p.pairs * p.head_dim
    blind = (
        0
        if seq_k == 0 and right is None
        else sum(
            1
            for row, place in zip(seen, places, strict=True)
            if place + (far if right is None else right) < 0
        )
    )
    assert p.blind == blind


@given(seq_q=st.integers(1, 20), seq_k=st.integers(1, 20), left=SIDE, right=SIDE)
def test_a_side_that_hides_nothing_is_no_limit_and_no_other_is_dropped(seq_q, seq_k, left, right):
    p = describe(
        *tensors((1, 1, seq_q, 8), (1, 1, seq_k, 8), (1, 1, seq_k, 8)), window=(left, right)
    )
    assert p.pairs == problem(seq_q=seq_q, seq_k=seq_k, left=left, right=right).pairs
    for side, kept in ((left, p.left), (right, p.right)):
        assert kept in (None, side)
    if p.left is not None:
        assert (
            p.pairs < problem(seq_q=seq_q, seq_k=seq_k, left=None, right=right).pairs
            or p.blind
            or seq_q > seq_k
        )


def test_flops_of_a_long_causal_square_are_the_usual_half_and_its_diagonal():
    full, causal = problem(seq_q=16384, seq_k=16384), problem(seq_q=16384, seq_k=16384, causal=True)
    assert full.flops == 4 * 8 * 16384**2 * 64
    assert causal.flops == full.flops / 2 * (16385 / 16384)


@pytest.mark.parametrize(
    ("backend", "changes", "message"),
    [
        ("flash", {"dtype": torch.float32}, "takes float16 and bfloat16, not float32"),
        ("flash", {"head_dim": 320}, "takes head sizes up to 256, not 320"),
        ("flash", {"softcap": 30.0}, "takes no softcap"),
        ("flash", {"bias": "bool"}, r"takes no mask \(causal and window excepted\)"),
        (
            "flash",
            {"seq_q": 300, "seq_k": 200, "left": 5},
            r"misreads windows to the right where there are more queries \(300\) than keys \(200\)",
        ),
        (
            "flash",
            {"seq_q": 5, "seq_k": 2, "right": 2, "ragged": True},
            r"misreads windows to the right where there are more queries \(5\)",
        ),
        ("hopper", {"capability": (8, 0)}, "needs compute capability 9.0; this GPU has 8.0"),
        ("hopper", {"head_dim": 513}, "takes head sizes up to 512, not 513"),
        ("hopper", {"head_dim": 257, "bias": "float"}, "takes head sizes up to 256, not 257"),
        ("triton", {"head_dim": 513}, "takes head sizes up to 512, not 513"),
        (
            "triton",
            {"capability": (7, 5)},
            "needs compute capability 8.0 or newer; this GPU has 7.5",
        ),
        ("cudnn", {"ragged": True}, "takes no ragged batches here"),
        ("cudnn", {"seq_k": 1}, "takes no single key"),
        ("cudnn", {"left": 5}, "masks causal sequences of one length only"),
        ("fa4", {}, r"is not installed \(pip install --pre flash-attn-4\)"),
        ("fa3", {}, r"is not installed \(it is part of the package vllm\)"),
        ("fa3", {"capability": (10, 0)}, r"needs compute capability 9.0; this GPU has 10.0"),
        (
            "flash",
            {"capability": (7, 5)},
            "needs compute capability 8.0 or newer; this GPU has 7.5",
        ),
        ("cudnn", {"dtype": torch.float32}, "takes float16 and bfloat16, not float32"),
        ("cudnn", {"head_dim": 257}, "takes head sizes up to 256, not 257"),
        ("cudnn", {"capability": (8, 0), "head_dim": 256}, "takes head sizes up to 128, not 256"),
        (
            "cudnn",
            {"causal": True, "seq_q": 64},
            "masks causal sequences of one length only",
        ),
        (
            "efficient",
            {"capability": (7, 5)},
            "takes bfloat16 from compute capability 8.0 on; this GPU has 7.5",
        ),
        ("efficient", {"kv_heads": 2}, "takes no grouped heads"),
        (
            "efficient",
            {"device": torch.device("cpu"), "capability": None},
            "needs a CUDA GPU; the tensors are on cpu",
        ),
    ],
)
def test_each_refusal_says_why_and_what_can(backend, changes, message):
    with pytest.raises(
        ValueError,
        match=rf"^backend {backend} cannot do this: it {message}.*\. These can: .*math, reference$",
    ):
        choose(problem(**changes), backend)


@pytest.mark.parametrize(
    ("changes", "picked"),
    [
        ({}, "hopper"),
        ({"capability": (8, 0)}, "flash"),
        ({"capability": (12, 0)}, "flash"),
        ({"capability": (10, 0)}, "cudnn"),
        ({"dtype": torch.float32}, "efficient"),
        ({"dtype": torch.float64}, "math"),
        ({"bias": "float"}, "triton"),
        ({"seq_q": 1}, "decoding"),
        ({"seq_q": 1, "right": 3}, "triton"),
        ({"capability": (7, 5)}, "math"),
        ({"capability": (7, 5), "dtype": torch.float32}, "efficient"),
        ({"head_dim": 512}, "hopper"),
        ({"head_dim": 512, "ragged": True}, "triton"),
        ({"head_dim": 640}, "efficient"),
        ({"device": torch.device("cpu"), "capability": None}, "flash"),
        ({"device": torch.device("cpu"), "capability": None, "left": 7}, "math"),
    ],
)
@pytest.mark.skipif(
    torch.cuda.is_available(), reason="on a GPU that was measured the table decides"
)
def test_auto_takes_the_first_preferred_that_can(changes, picked):
    p = problem(**changes)
    choice = choose(p)
    assert choice.backend == picked
    assert str(choice.reason).startswith(
        f"auto: the first of {', '.join(prefer(p))} that can do it"
    )
    able = {c.backend for c in choice.candidates if c.refusal is None}
    assert picked == next(name for name in prefer(p) if name in able)


def test_a_backward_pass_that_must_repeat_itself_is_refused_by_those_that_cannot():
    p = problem(deterministic=True, grad=True)
    for name in ("flash", "cudnn", "efficient"):
        choose(p, name)
        with pytest.raises(
            ValueError,
            match=(
                f"^backend {name} cannot do the backward pass of this: it adds gradients in an"
                " order that var"
            ),
        ):
            choose(p, name, "backward")
    assert choose(p, direction="backward").backend == "hopper"
    with pytest.raises(
        ValueError, match="takes head sizes up to 128, and 256, in the backward pass, not 160"
    ):
        choose(problem(head_dim=160), "cudnn", "backward")


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """A folder of packages, which are looked up and loaded anew."""

    def forget():
        for cached in (fa4.find_version, fa4._interface, fa3.find_library, fail_to_load, choose):
            cached.cache_clear()
        for name in [n for n in sys.modules if n.partition(".")[0] in ("flash_attn", "vllm")]:
            del sys.modules[name]

    def add(path, text=""):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        importlib.invalidate_caches()
        forget()

    monkeypatch.syspath_prepend(tmp_path)
    forget()
    yield add
    forget()


FLASH4_METADATA = (
    "flash_attn_4-4.0.0b36.dist-info/METADATA",
    "Name: flash-attn-4\nVersion: 4.0.0b36\n",
)


def test_another_flash_attn_that_is_broken_breaks_nothing(packages):
    packages("flash_attn/__init__.py", "raise ImportError('undefined symbol')")
    assert "not installed" in str(rule_out(problem(), "fa4", "forward"))
    packages("flash_attn/cute/__init__.py")
    packages("flash_attn-2.8.3.dist-info/METADATA", "Name: flash-attn\nVersion: 2.8.3\n")
    assert "not installed" in str(rule_out(problem(), "fa4", "forward"))
    packages(*FLASH4_METADATA)
    assert rule_out(problem(), "fa4", "forward") is None
    assert "flash_attn" not in sys.modules


def test_modules_that_another_flash_attn_wrote_over_flash_attention_4_are_refused(packages):
    packages("flash_attn/__init__.py")
    packages("flash_attn/cute/__init__.py")
    packages(*FLASH4_METADATA)
    packages("flash_attn/cute/interface.py", "def _flash_attn_fwd(q, k, v, causal): ...")
    why = refuse(problem(), "fa4", "forward")
    assert str(why) == (
        "cannot be loaded: ImportError: flash-attn-4 4.0.0b36: _flash_attn_fwd has no argument"
        " softmax_scale"
    )


@pytest.mark.parametrize(("head_dim", "wrong"), [(40, True), (72, True), (80, True), (96, False)])
def test_flash_attention_4_is_not_asked_for_gradients_that_it_gets_wrong(head_dim, wrong, packages):
    packages(*FLASH4_METADATA)
    assert rule_out(problem(head_dim=head_dim), "fa4", "forward") is None
    refusal = rule_out(problem(head_dim=head_dim), "fa4", "backward")
    assert (refusal is not None and "wrong gradients" in str(refusal)) == wrong


FLASH4 = """
import torch


def _flash_attn_fwd(q, k, v, softmax_scale, causal, softcap, window_size_left=None,
                    window_size_right=None, cu_seqlens_q=None, cu_seqlens_k=None,
                    max_seqlen_q=None, max_seqlen_k=None, return_lse=False, out=None):
    if cu_seqlens_q is not None:
        lse = q.new_zeros(q.shape[1], q.shape[0])
        assert max_seqlen_q == cu_seqlens_q.diff().max() and max_seqlen_k is not None
        for i in range(len(cu_seqlens_q) - 1):
            rows = slice(cu_seqlens_q[i], cu_seqlens_q[i + 1])
            keys = slice(cu_seqlens_k[i], cu_seqlens_k[i + 1])
            _, part = _flash_attn_fwd(q[None, rows], k[None, keys], v[None, keys], softmax_scale,
                                      causal, softcap, window_size_left, window_size_right,
                                      out=out[None, rows])
            lse[:, rows] = part[0]
        return out, lse
    k, v = (x.repeat_interleave(q.shape[2] // k.shape[2], 2) for x in (k, v))
    score = torch.einsum("bqhd,bkhd->bhqk", q, k) * softmax_scale
    if softcap:
        score = softcap * torch.tanh(score / softcap)
    apart = torch.arange(k.shape[1]) - torch.arange(q.shape[1])[:, None] + q.shape[1] - k.shape[1]
    right = 0 if causal else window_size_right
    hidden = torch.zeros_like(apart, dtype=torch.bool)
    if window_size_left is not None:
        hidden |= apart < -window_size_left
    if right is not None:
        hidden |= apart > right
    score = score.masked_fill(hidden, -torch.inf)
    out.copy_(torch.einsum("bhqk,bkhd->bqhd", score.softmax(3), v))
    return out, score.logsumexp(3)
"""
"""Computes what flash-attn-4 documents, with its layouts and names."""


@pytest.mark.parametrize(
    "rules",
    [
        {"causal": True},
        {"window": (5, 0)},
        {"window": (3, 2), "softcap": 2.0},
        {"causal": True, "seqlens": Ragged.of([7, 1, 12], device="cpu")},
        {"window": (4, 0), "seqlens": Ragged.of([7, 13], device="cpu")},
    ],
    ids=str,
)
def test_flash_attention_4_gets_windows_softcaps_and_ragged_batches_in_its_own_terms(
    rules, packages
):
    packages("flash_attn/__init__.py")
    packages("flash_attn/cute/__init__.py")
    packages("flash_attn/cute/interface.py", FLASH4)
    size = (20, 4, 16) if "seqlens" in rules else (2, 4, 20, 16)
    q = torch.randn(size, dtype=torch.float64)
    k, v = (torch.randn_like(q)[..., :2, :, :] for _ in range(2))
    if "seqlens" in rules:
        k, v = (torch.randn(20, 2, 16, dtype=torch.float64) for _ in range(2))
    due, lse = attention(q, k, v, backend="reference", return_lse=True, **rules)
    window = rules.get("window", (None, 0))
    x = arrange(q, k, v, None, rules.get("seqlens"), "bhsd")
    p = describe(q, k, v, window=window, softcap=rules.get("softcap", 0.0),
                 seqlens=rules.get("seqlens"))  # fmt: skip
    out, found = BACKENDS["fa4"].forward(x, p)
    if "seqlens" in rules:
        out, found = out[0].transpose(0, 1), found[0]
    assert torch.allclose(out, due) and torch.allclose(found.double(), lse.double(), atol=1e-5)


@pytest.fixture
def half_an_fa4(packages):
    """flash-attn-4 without the package that its interface imports."""
    packages(*FLASH4_METADATA)
    packages("flash_attn/cute/__init__.py")
    packages("flash_attn/cute/interface.py", "import cutlass_that_nobody_installed")


MISSING = (
    "it cannot be loaded: ModuleNotFoundError: No module named 'cutlass_that_nobody_installed'"
)


def test_a_backend_that_cannot_be_loaded_is_passed_over_and_explained(half_an_fa4, monkeypatch):
    rates = {"fa4": 900.0, "cudnn": 500.0}
    speed = dispatch.Expectation("measured", rates, gpus=("this GPU",))
    monkeypatch.setattr(dispatch, "_expect", lambda *_: speed)
    choice = choose(problem())
    assert choice.backend == "cudnn"
    assert str(choice.reason) == (
        f"auto: measured fastest on this GPU, 500 TFLOP/s; not fa4: {MISSING}"
    )
    assert f"fa4        no: {MISSING}" in str(choice)
    with pytest.raises(ValueError, match=f"^backend fa4 cannot do this: {MISSING}. These can: "):
        choose(problem(), "fa4")


def test_without_any_other_measurement_the_order_of_preference_goes_on(half_an_fa4, monkeypatch):
    speed = dispatch.Expectation("predicted", {"fa4": 900.0})
    monkeypatch.setattr(dispatch, "_expect", lambda *_: speed)
    choice = choose(problem())
    assert choice.backend == "hopper"
    assert str(choice.reason).endswith(f"not fa4: {MISSING}")


def test_a_library_that_is_no_library_is_no_flash_attention_3(packages):
    packages("vllm/__init__.py", "raise ImportError('not to be imported')")
    packages("vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so", "text")
    assert rule_out(problem(), "fa3", "forward") is None
    with pytest.raises(ValueError, match="backend fa3 cannot do this: it cannot be loaded: OSErr"):
        choose(problem(), "fa3")
    with pytest.raises(ValueError, match="has no backward pass"):
        choose(problem(), "fa3", "backward")


def test_an_explanation_names_the_candidates_the_fastest_first():
    said = str(choose(problem(capability=(8, 0))))
    assert said.startswith("forward: flash (auto: the first of flash, cudnn")
    assert "hopper     no: it needs compute capability 9.0; this GPU has 8.0" in said


@pytest.mark.parametrize(
    ("name", "ours"),
    [("attn_mask", "use bias="), ("is_causal", "use causal="), ("softmax_scale", "use scale="),
     ("enable_gqa", "k and v may have fewer heads")],
)  # fmt: skip
def test_an_argument_of_another_function_is_refused_with_ours(name, ours):
    with pytest.raises(TypeError, match=f"no argument {name}: {ours}"):
        attention(*tensors(), **{name: None})


def test_an_unknown_argument_is_refused_as_python_does():
    with pytest.raises(TypeError, match="unexpected keyword argument 'mask'"):
        attention(*tensors(), mask=None)
