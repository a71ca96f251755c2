"""Every backend on a GPU against the float64 reference, and through every door. Run on a machine
with one:

python -m pytest tests/gpu -n 0
"""

import math

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from torch.library import opcheck
from torch.nn.functional import scaled_dot_product_attention

from gpudeck import accel
from gpudeck.accel.attention import (
    Problem,
    Ragged,
    attention,
    choose,
    describe,
    flashcore,
)
from gpudeck.accel.attention.dispatch import rule_out
from gpudeck.accel.attention.inputs import arrange, problem_of, rules_of
from gpudeck.accel.attention.passes import backward, forward
from gpudeck.accel.attention.reference import reference
from gpudeck.accel.runtime import capability

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA GPU", allow_module_level=True)

# flash-attn-4, torch's profiler and its compiler warn of themselves.
pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore:.*Profiler clears events:UserWarning"
)

CUDA = torch.device("cuda")
OURS = ("hopper", "triton")
FUSED = (*OURS, "flash", "cudnn", "fa4", "efficient")
HALF = (torch.float16, torch.bfloat16)
SHAPES = {
    "plain": ((2, 4, 128, 64), (2, 4, 128, 64)),
    "odd lengths": ((1, 3, 77, 64), (1, 3, 131, 64)),
    "grouped": ((2, 8, 100, 128), (2, 2, 100, 128)),
    "grouped, fewer queries": ((1, 8, 33, 64), (1, 2, 200, 64)),
    "more queries than keys": ((1, 4, 150, 64), (1, 4, 60, 64)),
    "decoding": ((4, 8, 1, 128), (4, 1, 300, 128)),
    "one token": ((1, 2, 1, 64), (1, 2, 1, 64)),
    "head size 80": ((1, 2, 64, 80), (1, 2, 64, 80)),
    "head size 256": ((1, 2, 130, 256), (1, 2, 130, 256)),
    "head size 20": ((1, 2, 64, 20), (1, 2, 64, 20)),
    "head size 32": ((1, 2, 200, 32), (1, 2, 200, 32)),
    "long": ((1, 2, 1000, 128), (1, 1, 1000, 128)),
}


def inputs(shapes, dtype, grad=False):
    q, kv = shapes
    return tuple(torch.randn(s, dtype=dtype, device=CUDA, requires_grad=grad) for s in (q, kv, kv))


def skip_unless_able(backend, problem, direction="forward"):
    refusal = rule_out(problem, backend, direction)
    if refusal:
        with pytest.raises(ValueError, match=f"backend {backend} cannot do"):
            choose(problem, backend, direction)
        pytest.skip(f"{backend} {refusal}")


def assert_twice_as_good(got, exact, others, what):
    """At most twice the error of the plain computation in the same dtype, or of torch's flash
    where that is further off."""
    assert got.isfinite().all(), what
    if not got.numel():
        return
    error, allowed = (
        (got - exact).abs().max().item(),
        2 * max((other - exact).abs().max().item() for other in others) + 1e-5,
    )
    assert allowed < float("inf"), what
    assert error <= allowed, f"{what}: {error:.3g} > {allowed:.3g}"


def check(backend, tensors, dtype, names=("out", "lse", "dq", "dk", "dv", "dbias"), **rules):
    """Both passes by `backend`, against the reference in float64 and in `dtype`."""
    bias = rules.get("bias")
    leaves = [*tensors, *([bias] if bias is not None and bias.dtype != torch.bool else [])]
    weight = torch.randn_like(tensors[0])

    def run(op, kind):
        xs = [x.detach().to(kind).requires_grad_() for x in leaves]
        out, lse = op(*xs[:3], **{**rules, "bias": xs[3] if len(xs) == 4 else bias})
        grads = torch.autograd.grad((out * weight.to(kind)).sum(), xs, materialize_grads=True)
        return out.detach(), lse.detach(), *grads

    def oracle(kind):
        def op(q, k, v, *, seqlens=None, layout="bhsd", deterministic=False, **rest):
            x = arrange(q, k, v, rest.pop("bias"), seqlens, layout)
            out, lse = reference(
                *x[:3], bias=x.bias, ragged=seqlens, dtype=kind, return_lse=True, **rest
            )
            out = (
                out[0].transpose(0, 1)
                if seqlens is not None
                else out.transpose(1, 2)
                if layout == "bshd"
                else out
            )
            return out, lse[0] if seqlens is not None else lse

        return run(op, kind)

    ours = run(lambda *x, **r: attention(*x, backend=backend, return_lse=True, **r), dtype)
    others, free = [oracle(dtype)], {**rules, "deterministic": False}
    if not any(
        rule_out(describe(*tensors, **free), "flash", direction)
        for direction in ("forward", "backward")
    ):
        others.append(
            run(
                lambda *x, **r: attention(
                    *x, backend="flash", return_lse=True, **{**r, "deterministic": False}
                ),
                dtype,
            )
        )
    for i, (name, got, exact) in enumerate(zip(names, ours, oracle(torch.float64), strict=False)):
        blind = torch.isneginf(exact)
        assert torch.equal(torch.isneginf(got), blind), f"{name}: rows that see no key"
        assert_twice_as_good(
            got[~blind], exact[~blind], [other[i][~blind] for other in others], name
        )
    assert ours[0].dtype == dtype and ours[1].dtype == torch.float32


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("dtype", [*HALF, torch.float32], ids=str)
@pytest.mark.parametrize("shape", list(SHAPES))
@pytest.mark.parametrize("backend", [*FUSED, "math", "auto"])
def test_both_passes(backend, shape, dtype, causal):
    tensors = inputs(SHAPES[shape], dtype)
    if backend != "auto":
        for direction in ("forward", "backward"):
            skip_unless_able(backend, describe(*tensors, causal=causal), direction)
    check(backend, tensors, dtype, causal=causal)


SIDE = st.none() | st.integers(0, 300)


@st.composite
def problems(draw):
    torch.manual_seed(draw(st.integers(0, 2**31)))
    kv_heads = draw(st.integers(1, 3))
    dim = draw(st.sampled_from((32, 64, 96, 128, 192, 256)))
    q = (
        draw(st.integers(1, 3)),
        kv_heads * draw(st.integers(1, 4)),
        draw(st.integers(1, 400)),
        dim,
    )
    tensors = inputs(
        (q, (q[0], kv_heads, draw(st.integers(1, 400)), dim)), draw(st.sampled_from(HALF))
    )
    if draw(st.booleans()):  # the outliers of the FlashAttention-3 paper, section 4.3
        tensors = tuple(
            t + 10 * torch.randn_like(t) * (torch.rand_like(t) < 0.001) for t in tensors
        )
    return tensors, {
        "window": (draw(SIDE), draw(SIDE)),
        "softcap": draw(st.sampled_from((0.0, 0.0, 20.0))),
    }


@pytest.mark.parametrize("backend", OURS)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(problem=problems(), deterministic=st.booleans())
def test_random_shapes_windows_and_softcaps(backend, problem, deterministic):
    tensors, rules = problem
    if rule_out(describe(*tensors, **rules), backend, "backward"):
        return
    check(backend, tensors, tensors[0].dtype, deterministic=deterministic, **rules)


@pytest.mark.parametrize("backend", [*OURS, "flash"])
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    lengths=st.lists(st.tuples(st.integers(0, 300), st.integers(0, 300)), min_size=1, max_size=5),
    causal=st.booleans(),
    left=SIDE,
    dim=st.sampled_from((64, 128)),
)
@example(lengths=[(5, 2)], causal=False, left=0, dim=64)
def test_ragged_batches(backend, lengths, causal, left, dim):
    lengths_q, lengths_k = zip(*lengths, strict=True)
    q, k, v = (
        torch.randn(sum(n), h, dim, device=CUDA, dtype=torch.bfloat16)
        for n, h in ((lengths_q, 4), (lengths_k, 2), (lengths_k, 2))
    )
    ragged = Ragged.of(lengths_q, lengths_k, device=CUDA)
    rules = {"causal": causal, "window": (left, None), "seqlens": ragged}
    if not rule_out(describe(q, k, v, **rules), backend, "backward"):
        check(backend, (q, k, v), torch.bfloat16, **rules)


@pytest.mark.parametrize("kind", ["mask", "bias", "bias per key"])
@pytest.mark.parametrize("backend", ["triton", "math", "auto"])
def test_masks_and_biases(backend, kind):
    tensors = inputs(((2, 4, 150, 64), (2, 2, 170, 64)), torch.bfloat16)
    bias = {
        "mask": torch.rand(2, 1, 150, 170, device=CUDA) > 0.3,
        "bias": torch.randn(1, 4, 150, 170, device=CUDA, dtype=torch.bfloat16),
        "bias per key": torch.randn(2, 1, 1, 170, device=CUDA, dtype=torch.bfloat16),
    }[kind]
    check(backend, tensors, torch.bfloat16, bias=bias, causal=kind == "bias")


@pytest.mark.parametrize("kind", ["mask", "padding", "hidden rows", "bias", "bias per key"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("seq", [150, 256, 49])
@pytest.mark.parametrize("backend", ["cudnn", "efficient"])
def test_torchs_kernels_take_masks_and_biases(backend, seq, causal, kind):
    q, k, v = inputs(((2, 4, seq, 64), (2, 4, seq, 64)), torch.bfloat16)
    mask = torch.rand(2, 1, seq, seq, device=CUDA) > 0.3
    bias = {
        "mask": mask,
        "padding": torch.arange(seq, device=CUDA)
        >= torch.tensor([5, 0], device=CUDA)[:, None, None, None],
        "hidden rows": mask & (torch.arange(seq, device=CUDA)[:, None] > 3),
        "bias": torch.randn(1, 4, seq, seq, device=CUDA, dtype=torch.bfloat16),
        "bias per key": torch.randn(2, 1, 1, seq, device=CUDA, dtype=torch.bfloat16),
    }[kind]
    with torch.enable_grad():
        leaf = bias if bias.dtype == torch.bool else bias.requires_grad_()
        problem = describe(q, k, v, bias=leaf, causal=causal)
    skip_unless_able(backend, problem)
    skip_unless_able(backend, problem, "backward")
    x = arrange(q, k, v, leaf, None, "bhsd")
    dout = torch.randn_like(q)
    with torch.no_grad():
        found, exact = (
            (*(passed := forward(x, problem, name)), *backward(dout, x, *passed, problem, name))
            for name in (backend, "math")
        )
    assert torch.equal(found[1].isneginf(), exact[1].isneginf())
    for ours, theirs in zip(found, exact, strict=True):
        if theirs is not None:
            a, b = (t.float().nan_to_num(neginf=0.0) for t in (ours, theirs))
            assert (a - b).norm() < 0.015 * b.norm()


@pytest.mark.parametrize(
    ("seq", "dtype"), [(256, torch.bfloat16), (250, torch.bfloat16), (250, torch.float32)], ids=str
)
@pytest.mark.parametrize("last", FUSED)
@pytest.mark.parametrize("first", FUSED)
def test_any_forward_pass_is_followed_by_any_backward_pass(first, last, seq, dtype):
    """They share out and lse only."""
    q, k, v = inputs(((2, 4, seq, 64), (2, 4, seq, 64)), dtype)
    x = arrange(q, k, v, None, None, "bhsd")
    p = problem_of(x, rules_of(q, causal=True))
    skip_unless_able(first, p)
    skip_unless_able(last, p, "backward")
    dout = torch.randn_like(q)
    grads = backward(dout, x, *forward(x, p, first), p, last)
    exact = backward(dout, x, *forward(x, p, "math"), p, "math")
    for ours, theirs in zip(grads[:3], exact[:3], strict=True):
        assert (ours - theirs).norm() / theirs.norm() < 0.01


@pytest.mark.parametrize("backend", [*OURS, "fa4"])
@pytest.mark.parametrize("dim", [64, 128, 256])
def test_deterministic_gradients_are_the_same_bit_for_bit(backend, dim):
    q, k, v = inputs(((2, 4, 1000, dim), (2, 2, 1000, dim)), torch.bfloat16, grad=True)
    skip_unless_able(backend, describe(q, k, v, causal=True, deterministic=True), "backward")
    dout = torch.randn_like(q)
    runs = []
    for _ in range(5):
        out = attention(q, k, v, causal=True, deterministic=True, backend=backend)
        runs.append((out, *torch.autograd.grad(out, (q, k, v), dout)))
    for other in runs[1:]:
        assert all(torch.equal(a, b) for a, b in zip(runs[0], other, strict=True))


@pytest.mark.parametrize("backend", FUSED)
def test_both_layouts_and_slices_of_a_projection(backend):
    projected = torch.randn(2, 100, 3, 4, 64, device=CUDA, dtype=torch.bfloat16)
    q, k, v = projected.unbind(2)
    skip_unless_able(backend, describe(q, k, v, layout="bshd"), "backward")
    check(backend, (q, k, v), torch.bfloat16, layout="bshd")
    out = attention(q, k, v, layout="bshd", backend=backend)
    heads_first = attention(*(t.transpose(1, 2).contiguous() for t in (q, k, v)), backend=backend)
    assert out.shape == q.shape and out.stride() == torch.empty_like(q).stride()
    assert torch.equal(out, heads_first.transpose(1, 2))


@pytest.mark.parametrize(
    "kind", ["elements apart", "odd address", "odd strides", "expanded heads", "expanded gradient"]
)
@pytest.mark.parametrize("backend", FUSED)
def test_what_kernels_cannot_load_is_copied(backend, kind):
    make = {
        "elements apart": lambda: torch.randn(2, 4, 64, 70, device=CUDA, dtype=torch.float16).mT,
        "odd address": (
            lambda: torch.randn(2 * 4 * 70 * 64 + 1, device=CUDA, dtype=torch.float16)[1:].view(
                2, 4, 70, 64
            )
        ),
        "odd strides": lambda: torch.randn(2, 4, 70, 67, device=CUDA, dtype=torch.float16)[
            ..., :64
        ],
        "expanded heads": (
            lambda: torch.randn(2, 1, 70, 64, device=CUDA, dtype=torch.float16).expand(2, 4, 70, 64)
        ),
        "expanded gradient": lambda: torch.randn(2, 4, 70, 64, device=CUDA, dtype=torch.float16),
    }[kind]
    odd = [make().detach().requires_grad_() for _ in range(3)]
    skip_unless_able(backend, describe(*odd, causal=True), "backward")
    plain = [t.detach().contiguous().requires_grad_() for t in odd]
    answers = []
    for tensors in (odd, plain):
        out = attention(*tensors, causal=True, backend=backend)
        loss = out.sum() if kind == "expanded gradient" else out.float().square().sum()
        answers.append((out, *torch.autograd.grad(loss, tensors)))
    for ours, exact in zip(*answers, strict=True):
        torch.testing.assert_close(ours, exact, rtol=1e-2, atol=1e-2)
    assert torch.equal(answers[0][0], answers[1][0])


@pytest.mark.parametrize("backend", FUSED)
@pytest.mark.parametrize("seq", [70, 200])
def test_a_nan_stays_in_its_sequence_and_its_head(backend, seq):
    """Tiles reach beyond the end of a sequence; what they find there must not count, not even as
    0 x NaN."""
    q, k, v = inputs(((3, 4, seq, 64), (3, 4, seq, 64)), torch.bfloat16)
    skip_unless_able(backend, describe(q, k, v))
    clean = attention(q, k, v, backend=backend)
    for poisoned in (q, k, v):
        poisoned[1, 2] = math.nan
    out = attention(q, k, v, backend=backend)
    assert out[1, 2].isnan().all()
    out[1, 2] = clean[1, 2]
    assert torch.equal(out, clean)


@pytest.mark.parametrize("launched", ["call by call", "as a graph"])
@pytest.mark.parametrize(
    ("batch", "seq", "causal"), [(8, 128, False), (32, 512, False), (32, 512, True)]
)
@pytest.mark.parametrize("backend", OURS)
def test_calls_in_a_row_wait_for_each_other(backend, batch, seq, causal, launched):
    """Hopper's begins while the kernel before it ends, be that its own or torch's: each here
    reads what the one before wrote."""
    q, k, v = inputs(((batch, 8, seq, 64), (batch, 8, seq, 64)), torch.float16)

    def chain(wait):
        x = q
        for i in range(40):
            out = attention(x, k, v, causal=causal, backend=backend)
            wait()
            x = out if i % 4 else 3 * out + q
            wait()
        return x

    exact = chain(torch.cuda.synchronize)
    if launched == "as a graph":
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            got = chain(lambda: None)
        for _ in range(3):
            got.zero_()
            graph.replay()
            assert torch.equal(got, exact)
    else:
        assert all(torch.equal(chain(lambda: None), exact) for _ in range(3))


@pytest.mark.parametrize("backend", OURS)
def test_a_nan_stays_in_its_ragged_sequence(backend):
    lengths = (70, 3, 130)
    q, k, v = (
        torch.randn(sum(lengths), 2, 64, device=CUDA, dtype=torch.bfloat16) for _ in range(3)
    )
    ragged = Ragged.of(lengths, device=CUDA)
    skip_unless_able(backend, describe(q, k, v, seqlens=ragged))
    clean = attention(q, k, v, seqlens=ragged, backend=backend)
    for poisoned in (q, k, v):
        poisoned[70:73] = math.nan
    out = attention(q, k, v, seqlens=ragged, backend=backend)
    assert (
        out[70:73].isnan().all()
        and torch.equal(out[:70], clean[:70])
        and torch.equal(out[73:], clean[73:])
    )


MARKS = {
    "hopper": "hopper",
    "triton": "attention",
    "flash": "flash_fwd",
    "cudnn": "cudnn",
    "fa4": "cutlass",
    "fa3": "FlashAttnFwdSm90",
    "efficient": "fmha_cutlass",
}


@pytest.mark.parametrize(
    "rules",
    [{}, {"causal": True}, {"window": (20, 0)}, {"window": (20, 9)}, {"softcap": 5.0}],
    ids=str,
)
@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_forward_pass_of_flash_attention_3(shape, layout, rules):
    tensors = inputs(SHAPES[shape], torch.bfloat16)
    if layout == "bshd":
        tensors = tuple(t.transpose(1, 2).contiguous() for t in tensors)
    skip_unless_able("fa3", describe(*tensors, layout=layout, **rules))
    given = tensors if layout == "bhsd" else tuple(t.transpose(1, 2) for t in tensors)
    exact, plain = (
        reference(*given, dtype=dtype, return_lse=True, **rules)
        for dtype in (torch.float64, torch.bfloat16)
    )
    out, lse = attention(*tensors, backend="fa3", layout=layout, return_lse=True, **rules)
    out = out if layout == "bhsd" else out.transpose(1, 2)
    assert_twice_as_good(out, exact[0], [plain[0]], "out")
    assert_twice_as_good(lse, exact[1], [plain[1]], "lse")


@pytest.mark.parametrize("causal", [False, True])
def test_flash_attention_3_on_a_ragged_batch_with_rows_that_see_nothing(causal):
    queries, keys = (70, 3, 130), (60, 200, 130)
    q = torch.randn(sum(queries), 8, 64, device=CUDA, dtype=torch.bfloat16)
    k, v = (torch.randn(sum(keys), 2, 64, device=CUDA, dtype=torch.bfloat16) for _ in range(2))
    ragged = Ragged.of(queries, keys, device=CUDA)
    skip_unless_able("fa3", describe(q, k, v, seqlens=ragged, causal=causal))
    ours, theirs = (
        attention(q, k, v, seqlens=ragged, causal=causal, backend=name, return_lse=True)
        for name in ("math", "fa3")
    )
    assert torch.allclose(ours[0], theirs[0], atol=0.02)
    assert torch.allclose(ours[1], theirs[1], atol=0.02)


@pytest.mark.parametrize("backend", [*FUSED, "fa3"])
def test_the_kernel_that_ran_is_the_one_named(backend):
    q, k, v = inputs(((1, 2, 256, 64), (1, 2, 256, 64)), torch.bfloat16)
    skip_unless_able(backend, describe(q, k, v, causal=True))
    attention(q, k, v, causal=True, backend=backend)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        attention(q, k, v, causal=True, backend=backend)
        torch.cuda.synchronize()
    ran = [e.name for e in profile.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    assert any(MARKS[backend] in name for name in ran), ran


@pytest.mark.parametrize("backend", FUSED)
def test_memory_grows_with_the_tokens_not_with_their_square(backend):
    beyond = []
    for seq in (8192, 16384):
        q, k, v = inputs(((1, 4, seq, 64), (1, 4, seq, 64)), torch.bfloat16, grad=True)
        skip_unless_able(backend, describe(q, k, v, causal=True), "backward")
        dout = torch.randn_like(q)
        for _ in range(2):  # the first time compiles, and fills workspaces that stay
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            grads = torch.autograd.grad(
                attention(q, k, v, causal=True, backend=backend), (q, k, v), dout
            )
            torch.cuda.synchronize()
            peak = torch.cuda.max_memory_allocated() - before
            del grads
        beyond.append(peak)
    assert beyond[1] <= 2.1 * beyond[0], f"{beyond} bytes for 8192 and 16384 tokens"


def test_choosing_takes_no_device_memory():
    device = capability.find_device()
    before = torch.cuda.memory_allocated()
    choose(
        Problem(
            64,
            64,
            64,
            131072,
            131072,
            128,
            torch.bfloat16,
            device.torch_device,
            device.capability,
            0.1,
            right=0,
        )
    )
    assert torch.cuda.memory_allocated() == before


@pytest.mark.parametrize("backend", ["auto", *OURS])
def test_the_operation_keeps_the_rules_of_torch(backend):
    q, k, v = inputs(((2, 4, 70, 64), (2, 2, 90, 64)), torch.bfloat16, grad=True)
    skip_unless_able(
        backend if backend != "auto" else "math", describe(q, k, v, causal=True), "backward"
    )
    # Gradients by atomic additions differ between two runs: only the rules are checked here, and
    # what they are worth elsewhere.
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    opcheck(
        torch.ops.gpudeck.attention_forward.default,
        (q, k, v, *[None] * 5, [-1, 0, 0, 0], [0.1, 0.0], True, backend),
        test_utils=tests,
    )


def test_a_compiled_program_runs_whole():
    def program(q, k, v):
        return attention(q * 2, k, v, causal=True, layout="bshd").relu()

    q, k, v = (
        torch.randn(2, 100, 4, 64, device=CUDA, dtype=torch.bfloat16, requires_grad=True)
        for _ in range(3)
    )
    compiled = torch.compile(program, fullgraph=True)
    dout = torch.randn_like(q)
    for ours, eager in zip((compiled(q, k, v),), (program(q, k, v),), strict=True):
        torch.testing.assert_close(ours, eager, rtol=2e-2, atol=2e-2)
        for a, b in zip(
            torch.autograd.grad(ours, (q, k, v), dout),
            torch.autograd.grad(eager, (q, k, v), dout),
            strict=True,
        ):
            torch.testing.assert_close(a, b, rtol=5e-2, atol=5e-2)


@pytest.mark.parametrize("dim", [128, 80])
def test_installed_below_scaled_dot_product_attention(dim):
    q, k, v = inputs(((2, 8, 300, dim), (2, 2, 300, dim)), torch.bfloat16, grad=True)
    dout = torch.randn_like(q)

    def call():
        out = scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return out, *torch.autograd.grad(out, (q, k, v), dout)

    before = call()
    accel.install()
    try:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            ours = call()
            torch.cuda.synchronize()
        compiled = torch.compile(
            lambda q, k, v: scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        )(q, k, v)
        dropped = scaled_dot_product_attention(
            q, k, v, dropout_p=0.5, is_causal=True, enable_gqa=True
        )
        torch.autograd.grad(dropped, (q, k, v), dout)
    finally:
        accel.uninstall()
    expected = MARKS[choose(describe(q, k, v, causal=True)).backend]
    ran = [e.name for e in profile.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    assert any(expected in name for name in ran), ran
    for a, b in zip((*ours, compiled), (*before, before[0]), strict=True):
        assert (a - b).norm() / b.norm() < 0.02
    after = call()
    assert torch.equal(after[0], before[0])


def test_a_hugging_face_model_gives_the_same_words():
    transformers = pytest.importorskip("transformers")
    from gpudeck.accel.attention.frameworks.transformers import register

    register()
    config = transformers.LlamaConfig(
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=1000,
    )
    tokens = torch.randint(0, 1000, (2, 37), device=CUDA)
    padding = torch.ones_like(tokens)
    padding[0, :5] = 0
    logits = {}
    for name in ("sdpa", "gpudeck"):
        torch.manual_seed(0)
        model = (
            transformers.LlamaForCausalLM._from_config(config, attn_implementation=name)
            .to(CUDA, torch.bfloat16)
            .eval()
        )
        with torch.no_grad():
            logits[name] = [
                model(tokens).logits,
                model(tokens, attention_mask=padding).logits[:, 5:],
            ]
            logits[name].append(
                model.generate(tokens, max_new_tokens=5, do_sample=False, pad_token_id=0)[
                    :, :38
                ].float()
            )
    for ours, theirs in zip(logits["gpudeck"], logits["sdpa"], strict=True):
        assert (ours - theirs).norm() / theirs.norm() < 0.02


@pytest.mark.parametrize("blocks", [(None, None), (64, 64), (128, 32)])
def test_flashcore_with_tiles_chosen_and_given(blocks):
    q, k, v = inputs(((4, 8, 200, 64), (4, 8, 200, 64)), torch.float16)
    out = flashcore.attention(q, k, v, causal=True, block_m=blocks[0], block_n=blocks[1])
    assert_twice_as_good(
        out,
        reference(q, k, v, causal=True),
        [reference(q, k, v, causal=True, dtype=torch.float16)],
        "out",
    )


def test_flash_attention_3_on_hopper():
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("needs compute capability 9.0")
    q, k, v = (torch.randn(2, 4, 200, 128, device=CUDA, requires_grad=True) for _ in range(3))
    out = accel.FlashAttention3("bf16", causal=True)(q, k, v)
    assert out.dtype == torch.float32
    out.sum().backward()
    exact = reference(q.detach(), k.detach(), v.detach(), causal=True)
    assert (out - exact).norm() / exact.norm() < 0.01 and q.grad.isfinite().all()
