"""The timing loop's GPU half, and the workloads on a GPU. Run on a machine with one:

python -m pytest tests/gpu -n 0
"""

import time

import pytest
import torch

from accel.result import read
from accel.runtime.timing import measure
from accel.workloads import attention as attention_workload
from accel.workloads import copy as copy_workload
from accel.workloads import gemm
from accel.workloads.harness import main

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA GPU", allow_module_level=True)

CUDA = torch.device("cuda")


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
