"""`auto` measures products that come back: when, what it keeps, and what it leaves alone.

The backends and the clock are real: torch, and Triton's kernels in its interpreter, which is a
thousand times as slow and yet what is chosen where nothing was measured. Only that a CPU learns at
all, and which two compete there, are the tests' own. What all operations share is tested with
attention (test_attention_learning.py).
"""

from __future__ import annotations

import multiprocessing
import os
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from gpudeck import accel
from gpudeck.accel.lessons import measuring, store, usage
from gpudeck.accel.lessons.records import Measured, decode_learned
from gpudeck.accel.primitives.gemm import dispatch, idle_lessons, lessons, table
from gpudeck.accel.primitives.gemm.api import explain_gemm, gemm
from gpudeck.accel.primitives.gemm.backends import BACKENDS
from gpudeck.accel.primitives.gemm.dispatch import LEARNED, choose, contenders
from gpudeck.accel.primitives.gemm.low_precision import OF_A, OF_B
from gpudeck.accel.primitives.gemm.operands import arrange
from gpudeck.accel.primitives.gemm.problem import Problem, Steps
from gpudeck.accel.primitives.quantize.fp8 import fp8_quantize
from gpudeck.accel.runtime import state_files

pytestmark = pytest.mark.xdist_group("interpreted")


@contextmanager
def learner(home: Path) -> Iterator[pytest.MonkeyPatch]:
    """Let this process learn on its CPU, where torch and the interpreted kernels compete."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUDECK_HOME", str(home))
        patch.setattr(usage, "DEVICES", ("cpu",))
        patch.setattr(lessons, "contenders", lambda _: ("triton", "torch"))
        forget()
        try:
            yield patch
        finally:
            accel.learning("once")
            forget()


def forget() -> None:
    LEARNED.forget()
    lessons.USAGE.forget()
    choose.cache_clear()


def kept() -> list[Measured]:
    return decode_learned(state_files.read(LEARNED.file))


def drawn(m: int = 16, n: int = 16, k: int = 32, **how: Any) -> tuple[Tensor, Tensor]:
    return torch.randn(m, k, **how), torch.randn(k, n, **how)


def ran(a: Tensor, b: Tensor, **rules: Any) -> str:
    """Multiply, check the product, and return what `auto` would run now."""
    torch.testing.assert_close(gemm(a, b, **rules), a @ b, rtol=1e-4, atol=1e-4)
    return explain_gemm(a, b).backend


def second_call(home: Path) -> tuple[list[str], list[str], list[Measured], str]:
    with learner(home):
        a, b = drawn()
        before = [str(explain_gemm(a, b))]
        backends = [ran(a, b) for _ in range(2)]
        found = kept()
        forget()
        backends.append(ran(a, b))
        return backends, [*before, str(explain_gemm(a, b))], found, LEARNED.file.name


def test_the_second_call_is_measured_and_decides_from_then_on(interpreted, tmp_path):
    backends, said, [m], name = interpreted(second_call, tmp_path)
    assert backends == ["triton", "torch", "torch"]
    assert "not measured on this GPU" in said[0]
    day = time.strftime("%Y-%m-%d", time.gmtime())
    assert f"auto: measured fastest here on {day} " in said[1] and " us, triton " in said[1]
    assert "TFLOP/s measured" in said[1]
    assert set(m.microseconds) == {"torch", "triton"} and m.predicted == "triton"
    assert m.fastest == "torch" and m.gain is not None and m.gain > 1
    assert (m.shape, m.flops, m.direction) == ("16 x 16 x 32, float32", 16384.0, "forward")
    assert abs(m.at - time.time()) < 60 and "torch 2" in m.software and m.uuid
    assert name == "gemm-learned.json"


def beside_a_table(home: Path) -> list[str]:
    with learner(home) as patch:
        rates = table.Nearest({"triton": 9.0, "torch": 3.0}, "a card of this name", True)
        patch.setattr(table, "find_measured", lambda *_: rates)
        a, b = drawn()
        return [explain_gemm(a, b).basis, ran(a, b), ran(a, b), explain_gemm(a, b).basis]


def test_a_table_is_gone_by_until_this_card_is_measured(interpreted, tmp_path):
    """The same product was 9 % faster or slower than cuBLAS on two cards of one name."""
    assert interpreted(beside_a_table, tmp_path) == ["measured", "triton", "torch", "measured here"]


def left_alone(home: Path) -> list[int]:
    found = []
    with learner(home) as patch:
        a, b = drawn()

        def twice(call: Callable[[], object]) -> None:
            for _ in range(usage.AT_CALL):
                call()
            found.append(len(kept()))

        for mode in ("off", "idle"):
            accel.learning(mode)
            twice(lambda: ran(a, b))
        accel.learning("once")
        twice(lambda: gemm(a, b, backend="triton"))
        twice(lambda: gemm(a[:0], b))
        torch.use_deterministic_algorithms(True)
        twice(lambda: ran(a, b))
        torch.use_deterministic_algorithms(False)
        with patch.context() as capture:  # what the driver would answer during a capture
            capture.setattr(usage, "is_recorded", lambda device: True)
            twice(lambda: ran(a, b))
        found.append(len(kept()))
        ran(a, b)
        found.append(len(kept()))
    return found


def test_modes_named_backends_captures_and_deterministic_programs_are_left_alone(
    interpreted, tmp_path
):
    assert interpreted(left_alone, tmp_path) == [0, 0, 0, 0, 0, 0, 0, 1]


def told_apart(home: Path) -> list[str]:
    with learner(home):
        for m in (100, 104, 96):
            ran(*drawn(m))
        for _ in range(2):
            a, b = drawn(3)
            ran(a, b)
            gemm(a, b, bias=torch.zeros(16))
            ran(a, b.t().contiguous().t())
            ran(torch.randn(4, 3, 32), b)
            gemm(a.bfloat16(), b.bfloat16())
        return [m.spot for m in kept()]


def test_rows_of_one_step_are_measured_once_and_other_work_apart(interpreted, tmp_path):
    assert interpreted(told_apart, tmp_path) == [
        "batch0 rows27 16x32 dtype=float32 out_dtype=float32 b_along=False",
        "batch0 rows6 16x32 dtype=float32 out_dtype=float32 b_along=False",
        "batch0 rows6 16x32 dtype=float32 out_dtype=float32 bias=True b_along=False",
        "batch0 rows6 16x32 dtype=float32 out_dtype=float32",
        "batch0 rows14 16x32 dtype=float32 out_dtype=float32 b_along=False",
        "batch0 rows6 16x32 dtype=bfloat16 out_dtype=bfloat16 b_along=False",
    ]


def training(home: Path) -> tuple[list[str], bool]:
    with learner(home):
        a, b = (t.requires_grad_() for t in drawn(8))
        for _ in range(2):
            a.grad = b.grad = None
            gemm(a, b).square().sum().backward()
        grads = [a.grad, b.grad]
        a.grad = b.grad = None
        (a @ b).square().sum().backward()
        same = all(
            torch.allclose(x, y, rtol=1e-4, atol=1e-4)
            for x, y in zip(grads, (a.grad, b.grad), strict=True)
        )
        return [m.shape for m in kept()], same


def test_the_products_of_gradients_are_measured_as_others_are(interpreted, tmp_path):
    shapes, same = interpreted(training, tmp_path)
    assert same
    assert shapes == ["8 x 16 x 32, float32", "8 x 32 x 16, float32", "32 x 16 x 8, float32"]


def failing_kernel(x: object) -> Tensor:
    raise RuntimeError("no such kernel\nand more")


def in_trouble(home: Path) -> tuple[list[str], list[list[str]]]:
    told, measured = [], []
    with learner(home) as patch, warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        broken = replace(BACKENDS["torch"], run=failing_kernel)
        with patch.context() as failing:
            failing.setitem(BACKENDS, "torch", broken)
            assert [ran(*drawn()) for _ in range(2)] == ["triton", "triton"]

        def full(*_: object, **__: object) -> None:
            raise torch.OutOfMemoryError("tried to allocate")

        with patch.context() as failing:
            failing.setattr(measuring.brief_timing, "medians", full)
            assert [ran(*drawn(32)) for _ in range(3)] == ["triton"] * 3
        measured = [list(m.microseconds) for m in kept()]
        told = [str(w.message) for w in heard if "gemm" in str(w.message)]
    return told, measured


def test_a_backend_that_fails_or_finds_no_memory_is_told_and_the_caller_gets_the_product(
    interpreted, tmp_path
):
    told, measured = interpreted(in_trouble, tmp_path)
    assert told == [
        "gemm goes on without torch, which failed at 16 x 16 x 32, float32: RuntimeError: no such"
        " kernel",
        "gemm is not measured at 32 x 16 x 32, float32: no memory of the GPU is left",
    ]
    assert measured == [["triton"]]


def of_other_versions(home: Path) -> tuple[list[str], int]:
    with learner(home) as patch:
        a, b = drawn()
        backends = [ran(a, b), ran(a, b)]
        store.software.cache_clear()
        patch.setattr(store, "versions", lambda: {"torch": "1.0", "driver": "1"})
        forget()
        backends += [ran(a, b), ran(a, b)]
        store.software.cache_clear()
        return backends, len({m.software for m in kept()})


def test_what_was_measured_with_other_versions_does_not_count(interpreted, tmp_path):
    assert interpreted(of_other_versions, tmp_path) == (["triton", "torch", "triton", "torch"], 2)


def many(home: Path, number: int) -> int:
    """Multiply shapes of its own and one that all programs share, each twice."""
    with learner(home):
        for n in (16, *range(100 * number, 100 * number + 6)):
            a, b = drawn(n=n)
            for _ in range(2):
                gemm(a, b)
    return os.getpid()


@pytest.mark.slow
def test_programs_that_measure_at_once_lose_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(3, mp_context=context) as programs:
        assert len(set(programs.map(many, [tmp_path] * 3, range(1, 4)))) > 1
    monkeypatch.setenv("GPUDECK_HOME", str(tmp_path))
    sizes = {int(m.shape.split(" x ")[1]) for m in kept()}
    assert sizes == {16, *(100 * number + i for number in range(1, 4) for i in range(6))}


def on_gpu(m: int, n: int, k: int, **rules: Any) -> Problem:
    device = torch.device("cuda", 0)
    return Problem(1, m, n, k, torch.bfloat16, torch.bfloat16, device, (9, 0), **rules)


def test_only_what_could_win_takes_part(monkeypatch):
    rows = tuple(
        table.Row("GPU", "bfloat16", 4096, 4096, 4096, name, 1.0, rate, "torch 2", "2026-11-23")
        for name, rate in (("cublas", 700.0), ("hopper", 710.0), ("triton", 400.0))
    )
    monkeypatch.setattr(table, "_read_shipped", lambda: rows)
    monkeypatch.setattr(dispatch, "_gpu", lambda p: "GPU")
    table._rows.cache_clear()
    choose.cache_clear()
    try:
        assert contenders(on_gpu(4096, 4096, 5000)) == ("hopper", "cublas")
        assert contenders(on_gpu(16, 4096, 4096)) == ("cublas", "hopper", "triton")
        assert contenders(on_gpu(16, 4096, 4096, tile=64)) == ("triton",)
        fp8 = replace(on_gpu(64, 33, 64), dtype=torch.float8_e4m3fn, scaling="outer")
        assert contenders(replace(fp8, steps=Steps(1, 1), boxes=False)) == ("triton",)
    finally:
        table._rows.cache_clear()
        choose.cache_clear()


def while_idle(home: Path) -> tuple[list[str], list[bool], list[str], list[str]]:
    with learner(home) as patch:
        patch.setattr(idle_lessons, "contenders", lambda _: ("triton", "torch"))
        accel.learning("idle")
        a, b = drawn()
        for _ in range(4):
            ran(a, b)
            gemm(a, b.t().contiguous().t(), bias=torch.zeros(16))
        ran(*drawn(3))
        lessons.USAGE.note()
        found = list(idle_lessons.find_pending(torch.device("cpu")))
        measured = [p.measure() for p in found]
        left = [p.text for p in idle_lessons.find_pending(torch.device("cpu"))]
        return [p.text for p in found], measured, left, [ran(a, b), explain_gemm(a, b).basis]


def test_idle_mode_counts_products_and_they_are_measured_later(interpreted, tmp_path):
    told, measured, left, now = interpreted(while_idle, tmp_path)
    assert told == ["16 x 16 x 32, float32", "16 x 16 x 32, float32", "3 x 16 x 32, float32"]
    assert measured == [True] * 3 and left == []
    assert now == ["torch", "measured here"]


@pytest.mark.parametrize("recipe", ["tensor", "row", "block", "tile"])
def test_products_are_posed_again_as_they_were(recipe):
    a, b = drawn(40, 300, 260)
    left = fp8_quantize(a, OF_A.get(recipe, "tile"))
    right = fp8_quantize(b.t().contiguous(), OF_B.get(recipe, "tile")).t
    x = arrange(left.values, right.values, None, "silu", None, (left.scales, right.scales), None)
    again = idle_lessons.draw(x.problem)
    assert again.problem == x.problem
    for one, other in ((x.scale_a, again.scale_a), (x.scale_b, again.scale_b)):
        assert one is not None and other is not None
        assert one.shape == other.shape
