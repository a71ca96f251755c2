"""The timing loop's GPU half, and the workloads on a GPU. Run on a machine with one:

python -m pytest tests/gpu -n 0
"""

import time

import pytest
import torch

from gpudeck.accel.result import read
from gpudeck.accel.runtime.graphs import Captured
from gpudeck.accel.runtime.timing import measure, measure_in_turn
from gpudeck.accel.workloads import attention as attention_workload
from gpudeck.accel.workloads import catalog, compare, gemm, validate
from gpudeck.accel.workloads import copy as copy_workload
from gpudeck.accel.workloads.harness import main, serve

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


def test_a_captured_function_keeps_the_tensors_that_its_kernels_read():
    out = torch.zeros(1 << 20, device=CUDA)

    def capture():
        x = torch.full_like(out, 3.0)
        return Captured(lambda: out.copy_(x), CUDA)

    replay = capture()
    out.zero_()
    others = [torch.full_like(out, 5.0) for _ in range(4)]  # in the memory that x would have left
    replay()
    assert bool((out == 3.0).all()) and len(others) == 4


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


def test_short_calls_in_turn_take_what_they_take_without_events_between_them():
    """Of eight kernels of some microseconds, recorded as a graph so that the host is no limit."""
    a = torch.randn(1 << 20, device=CUDA)
    graphs = [torch.cuda.CUDAGraph() for _ in range(2)]
    for graph in graphs:
        with torch.cuda.graph(graph):
            for _ in range(8):
                a.mul_(1.0)
    loops = measure_in_turn(
        [graph.replay for graph in graphs], 0.3, CUDA, lambda *_: None, lambda _: None
    )
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(1000):
        graphs[0].replay()
    end.record()
    end.synchronize()
    for loop in loops:
        assert loop.timing.median == pytest.approx(begin.elapsed_time(end) / 1000, rel=0.15)


RUN = {
    "attention": lambda argv: serve("attention", attention_workload.work, argv),
    "compare": lambda argv: serve("compare", compare.work, argv),
    "validate": lambda argv: serve("validate", validate.work, argv),
    "gemm": lambda argv: main("gemm", gemm.prepare, argv),
    "copy": lambda argv: main("copy", copy_workload.prepare, argv),
}


def run(name, argv, capsys):
    assert RUN[name](argv) == 0
    r = read(capsys.readouterr().out.splitlines()[-1].encode())
    assert r.passed and r.device == torch.cuda.get_device_name()
    assert {"python", "torch", "cuda", "cudnn"} <= set(r.versions)
    return r


@pytest.mark.parametrize(
    ("name", "argv"),
    [
        ("attention", ["--seq=4096", "--causal=yes"]),
        ("attention", ["--seq=16384", "--dtype=float16", "--backend=flash", "--kv-heads=4"]),
        ("attention", ["--seq=2048", "--dtype=float32"]),
        ("gemm", ["--size=4096"]),
        ("gemm", ["--size=2048", "--dtype=float32"]),
        ("copy", ["--mib=512"]),
    ],
)
def test_workloads_pass(name, argv, capsys):
    r = run(name, [*argv, "--seconds=1"], capsys)
    assert r.sustained_tflops <= r.flops / (r.timing.minimum / 1e3) / 1e12
    assert r.sensors.sm_mhz and r.sensors.celsius
    assert r.sensors.watts is None and "less than the 1 s" in str(r.sensors.absent)


def test_energy_is_what_the_card_drew_meanwhile(capsys):
    r = run("attention", ["--seq=8192", "--seconds=3"], capsys)
    (cell,) = r.cells
    assert 50 < cell.sensors.watts < 2000
    assert cell.sensors.joules_per_tflop == pytest.approx(cell.sensors.watts / r.sustained_tflops)


def test_a_comparison_of_all_backends(capsys):
    argv = [
        "--seq=1024",
        "--head-dim=64",
        "--direction=both",
        "--seconds=0.2",
        "--power=yes",
    ]  # 2.2 s a cell
    r = run("compare", argv, capsys)
    backends = next(p for p in catalog.find("compare").params if p.name == "backends")
    assert len(r.cells) == 2 * 2 * len(backends.default.split(","))
    for cell in r.cells:
        assert cell.tflops > 0 if cell.backend else cell.note
        assert not cell.backend or (cell.sensors.sm_mhz and cell.sensors.watts)
    assert all(
        cell.tflops for cell in r.cells if cell.contender in ("auto", "flash", "cudnn", "triton")
    )


@pytest.mark.parametrize("inputs", ["normal", "outliers"])
def test_validation_of_what_auto_chooses(inputs, capsys):
    r = run("validate", ["--trials=50", f"--inputs={inputs}"], capsys)
    assert [cell.trials.count for cell in r.cells] == [50] * 8
