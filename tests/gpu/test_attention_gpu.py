"""Every CUDA backend against the float64 reference, and the timing loop's GPU half. Run on a machine with a GPU:

python -m pytest tests/gpu -n 0
"""

import time

import pytest
import torch

from accel.attention import BACKENDS, Problem, attention, choose, describe
from accel.attention.reference import reference
from accel.result import read
from accel.runtime import capability
from accel.runtime.timing import measure
from accel.workloads import attention as attention_workload
from accel.workloads import copy as copy_workload
from accel.workloads import gemm
from accel.workloads.harness import main

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA GPU", allow_module_level=True)

CUDA = torch.device("cuda")
FUSED = ("flash", "cudnn", "efficient")
KERNELS = {"flash": "FlashAttention", "cudnn": "Cudnn", "efficient": "EfficientAttention"}
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
}


def inputs(shapes, dtype, grad=False):
    q, kv = shapes
    return tuple(torch.randn(s, dtype=dtype, device=CUDA, requires_grad=grad) for s in (q, kv, kv))


def able(backend, q, k, v, causal):
    refusal = BACKENDS[backend].refusal(describe(q, k, v, causal=causal))
    if refusal:
        with pytest.raises(ValueError, match=f"backend {backend} cannot do this"):
            attention(q, k, v, causal=causal, backend=backend)
        pytest.skip(f"{backend} {refusal}")


def assert_twice_as_good(got, exact, plain, what):
    """The rule of flash-attention's tests: at most twice the error of the plain computation in the same dtype."""
    assert got.isfinite().all(), what
    error, allowed = (got - exact).abs().max().item(), 2 * (plain - exact).abs().max().item() + 1e-5
    assert error <= allowed, f"{what}: {error:.3g} > {allowed:.3g}"


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("shape", list(SHAPES))
@pytest.mark.parametrize("backend", [*FUSED, "math", "reference", "auto"])
def test_forward(backend, shape, dtype, causal):
    q, k, v = inputs(SHAPES[shape], dtype)
    if backend != "auto":
        able(backend, q, k, v, causal)
    exact, plain = reference(q, k, v, causal=causal), reference(q, k, v, causal=causal, dtype=dtype)
    out = attention(q, k, v, causal=causal, backend=backend)
    assert out.shape == q.shape and out.dtype == dtype
    assert_twice_as_good(out, exact, plain, "out")
    blind = max(0, q.shape[2] - k.shape[2]) if causal else 0
    assert not out[:, :, :blind].any()


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("shape", list(SHAPES))
@pytest.mark.parametrize("backend", [*FUSED, "math", "auto"])
def test_backward(backend, shape, dtype, causal):
    q, k, v = inputs(SHAPES[shape], dtype, grad=True)
    if backend != "auto":
        able(backend, q, k, v, causal)
    weight = torch.randn_like(q)

    def gradients(op, kind):
        xs = [x.detach().to(kind).requires_grad_() for x in (q, k, v)]
        (op(*xs) * weight.to(kind)).sum().backward()
        return [x.grad for x in xs]

    ours = gradients(lambda *x: attention(*x, causal=causal, backend=backend), dtype)
    exact = gradients(lambda *x: reference(*x, causal=causal), torch.float64)
    plain = gradients(lambda *x: reference(*x, causal=causal, dtype=dtype), dtype)
    for name, got, truth, rule in zip(("dq", "dk", "dv"), ours, exact, plain, strict=True):
        assert_twice_as_good(got, truth, rule, name)


@pytest.mark.parametrize("mask", ["full", "causal", "lower right"])
@pytest.mark.parametrize("backend", FUSED)
def test_the_kernel_that_ran_is_the_one_named(backend, mask):
    """Each kernel leaves an autograd node with its name behind."""
    q, k, v = inputs(((1, 2, 64, 64), (1, 2, 128 if mask == "lower right" else 64, 64)), torch.bfloat16, grad=True)
    able(backend, q, k, v, mask != "full")
    out = attention(q, k, v, causal=mask != "full", backend=backend)
    seen, queue = set(), [out.grad_fn]
    while queue:
        node = queue.pop()
        if node is not None and node not in seen:
            seen.add(node)
            queue += [parent for parent, _ in node.next_functions]
    assert any(KERNELS[backend] in type(node).__name__ for node in seen), {type(n).__name__ for n in seen}


def test_a_long_sequence_needs_no_quadratic_memory():
    q, k, v = inputs(((1, 4, 16384, 64), (1, 4, 16384, 64)), torch.bfloat16)
    for backend in FUSED:
        if BACKENDS[backend].refusal(describe(q, k, v, causal=True)):
            continue
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        attention(q, k, v, causal=True, backend=backend)
        torch.cuda.synchronize()
        # The scores of one head alone would be 512 MiB.
        assert torch.cuda.max_memory_allocated() - before < 128 * 2**20, backend


def test_lower_right_needs_no_mask_in_memory():
    q, k, v = inputs(((1, 1, 8192, 64), (1, 1, 16384, 64)), torch.bfloat16)
    for backend in ("flash", "efficient"):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        attention(q, k, v, causal=True, backend=backend)
        torch.cuda.synchronize()
        assert torch.cuda.max_memory_allocated() - before < 64 * 2**20, backend


def test_auto_is_decided_without_tensors_as_with_them():
    q, k, v = inputs(SHAPES["plain"], torch.bfloat16)
    device = capability.current()
    p = Problem(2, 4, 4, 128, 128, 64, torch.bfloat16, device.torch_device, device.capability, False, 64**-0.5, False)
    assert describe(q, k, v) == p
    assert attention(q, k, v, return_choice=True)[1] == choose(p)


def test_choosing_takes_no_device_memory():
    device = capability.current()
    before = torch.cuda.memory_allocated()
    choose(Problem(64, 64, 64, 131072, 131072, 128, torch.bfloat16, device.torch_device, device.capability, True, 0.1, True))
    assert torch.cuda.memory_allocated() == before


def test_timed_calls_add_up_to_the_wall_time_and_are_finished_when_counted():
    a = torch.randn(4096, 4096, device=CUDA, dtype=torch.bfloat16)
    out = torch.empty_like(a)
    done = torch.zeros((), dtype=torch.int64, device=CUDA)
    reports = []

    def call():
        torch.matmul(a, a, out=out)
        done.add_(1)

    copy_stream = torch.cuda.Stream()
    landed = torch.zeros((), dtype=torch.int64).pin_memory()

    def report(elapsed, finished):
        with torch.cuda.stream(copy_stream):  # reads the counter while the other stream goes on
            landed.copy_(done, non_blocking=True)
        copy_stream.synchronize()
        reports.append((elapsed, finished, int(landed)))

    measure(call, 0.3, CUDA, lambda *_: None)
    done.zero_()
    m = measure(call, 1.5, CUDA, report)
    torch.cuda.synchronize()
    assert int(done) == m.timing.count
    assert sum(m.samples_ms) / 1e3 == pytest.approx(m.wall_s, rel=0.05)
    assert len(reports) >= 4
    assert all(finished <= counted for _, finished, counted in reports)


def test_the_gpu_does_not_wait_for_the_host():
    """Back-to-back calls cost what they cost in one uninterrupted batch."""
    a = torch.randn(4096, 4096, device=CUDA, dtype=torch.bfloat16)
    out = torch.empty_like(a)
    measured = measure(lambda: torch.matmul(a, a, out=out), 1.0, CUDA, lambda *_: time.sleep(0.02))
    n = 500
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(n):
        torch.matmul(a, a, out=out)
    end.record()
    end.synchronize()
    assert measured.timing.median == pytest.approx(begin.elapsed_time(end) / n, rel=0.15)


@pytest.mark.parametrize(
    ("name", "module", "argv"),
    [
        ("attention", attention_workload, ["--seq=4096", "--causal=yes"]),
        ("attention", attention_workload, ["--seq=16384", "--dtype=float16", "--backend=flash", "--kv-heads=4"]),
        ("attention", attention_workload, ["--seq=2048", "--dtype=float32"]),
        ("gemm", gemm, ["--size=4096"]),
        ("gemm", gemm, ["--size=2048", "--dtype=float32"]),
        ("copy", copy_workload, ["--mib=512"]),
    ],
)
def test_workloads_pass(name, module, argv, capsys):
    assert main(name, module.prepare, [*argv, "--seconds=1"]) == 0
    r = read(capsys.readouterr().out.splitlines()[-1].encode())
    assert r.verdict == "pass" and r.device == torch.cuda.get_device_name()
    assert r.sustained_tflops <= r.flops / (r.timing.minimum / 1e3) / 1e12
    assert {"python", "torch", "cuda", "cudnn"} <= set(r.versions)
