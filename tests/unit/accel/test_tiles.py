"""The blocks of which kernels are built: each by itself, and the fused kernel of the manual."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional

from gpudeck.accel.primitives.tiles.memory import load_tile, store_tile
from gpudeck.accel.primitives.tiles.reductions import largest_size
from gpudeck.accel.primitives.tiles.scans import join_inverses, running
from gpudeck.accel.primitives.tiles.softmax import LOG2E, softmax_end, softmax_step
from gpudeck.accel.runtime.call import KernelCall, Pointer, compile_kernel
from tests.unit.accel.compiled import SHARED_KIB, TENSOR_CORES, needs

MANUAL = Path(__file__).parents[3] / "docs" / "manual" / "tiles.md"
BF16 = torch.bfloat16


def example(folder: Path, number: int = 0) -> ModuleType:
    """Return a module in the manual, written to a file, where Triton reads sources."""
    text = re.findall(r"```python\n(.*?)```", MANUAL.read_text(), re.DOTALL)[number]
    path = folder / f"tiles_example_{number}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def loss_of_example(x: Tensor, w: Tensor, target: Tensor, folder: Path) -> Tensor:
    return example(folder).cross_entropy(x, w, target)


@pytest.mark.xdist_group("interpreted")
def test_the_fused_kernel_of_the_manual_gives_the_loss(interpreted, tmp_path):
    random = torch.Generator().manual_seed(1)
    x, w = torch.randn(70, 50, generator=random), torch.randn(300, 50, generator=random)
    x[3] *= 40  # scores whose powers overflow float32 without the running maximum
    target = torch.randint(300, (70,), generator=random)
    exact = functional.cross_entropy(x.double() @ w.double().t(), target, reduction="none")
    got = interpreted(loss_of_example, x, w, target, tmp_path)
    torch.testing.assert_close(got.double(), exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("capability", [80, 90])
def test_the_fused_kernel_of_the_manual_uses_the_tensor_cores(tmp_path, capability):
    kernel = example(tmp_path).cross_entropy_kernel
    arguments = {
        "x_ptr": Pointer(BF16), "w_ptr": Pointer(BF16), "target_ptr": Pointer(torch.int64),
        "loss_ptr": Pointer(torch.float32), "rows": 16384, "words": 50304, "size": 768,
    }  # fmt: skip
    options = {"num_warps": 4, "num_stages": 3}
    call = KernelCall(kernel, 256, arguments, {"BM": 64, "BN": 64, "BK": 32}, options)
    found = needs(compile_kernel(call, capability))
    assert TENSOR_CORES[capability] in found.ptx
    assert found.shared <= SHARED_KIB[capability] * 1024
    assert found.spilled == 0


def test_the_fused_kernel_for_hopper_keeps_its_scores_in_registers(tmp_path):
    call = example(tmp_path, 1).launch_of(16384, 50304, 768)
    found = needs(compile_kernel(call, 90))
    assert "wgmma.mma_async" in found.ptx and "cp.async.bulk.tensor" in found.ptx
    assert found.shared <= SHARED_KIB[90] * 1024
    assert found.spilled == 0


@pytest.mark.parametrize("number", [0, 1])
def test_the_fused_kernels_of_the_manual_are_short(number):
    text = re.findall(r"```python\n(.*?)```", MANUAL.read_text(), re.DOTALL)[number]
    kernels = re.findall(r"@(?:triton|gluon)\.jit\n.*?\n\n\n", text, re.DOTALL)
    assert sum(kernel.strip().count("\n") + 1 for kernel in kernels) <= 40


@triton.jit
def softmax_kernel(x_ptr, v_ptr, out_ptr, lse_ptr, rows, columns, size, NATURAL: tl.constexpr):  # noqa: N803 - as Triton has it
    """Write softmax(x) v by blocks of 16 scores; columns past the end are not seen."""
    row, at = tl.arange(0, 16), tl.arange(0, 16)
    m, sums = tl.full([16], float("-inf"), tl.float32), tl.zeros([16], tl.float32)
    acc = tl.zeros([16, 16], tl.float32)
    for first in range(0, columns, 16):
        column = first + tl.arange(0, 16)
        x = load_tile(x_ptr, row, column, rows, columns, columns, 1)
        x = tl.where((column < columns)[None, :], x, float("-inf"))
        scale = 1.0 if NATURAL else LOG2E
        weights, m, sums, shrink = softmax_step(x, m, sums, scale, NATURAL=NATURAL)
        v = load_tile(v_ptr, column, at, columns, size, size, 1)
        acc = tl.dot(weights, v, acc * shrink[:, None], input_precision="ieee")
    if NATURAL:
        m *= LOG2E
    acc, lse = softmax_end(acc, m, sums)
    store_tile(out_ptr, acc, row, at, rows, size)
    tl.store(lse_ptr + row, lse, mask=row < rows)


@triton.jit
def rows_kernel(x_ptr, inverse_ptr, sums_ptr, sizes_ptr, PRECISION: tl.constexpr):  # noqa: N803
    """Write the inverse of I - L, running sums down the columns, and the largest magnitude."""
    at = tl.arange(0, 16)
    i, j = at[:, None], at[None, :]
    x = load_tile(x_ptr, at, at, 16, 16, 16, 1)
    lower = tl.where(i > j, x, 0.0)
    inverse = join_inverses(tl.where(i == j, 1.0, 0.0), lower, i, j, 0, 4, tl.float32, PRECISION)
    store_tile(inverse_ptr, inverse, at, at, 16, 16)
    store_tile(sums_ptr, running(x, True), at, at, 16, 16)
    tl.store(sizes_ptr, largest_size(x))
    tl.store(sizes_ptr + 1, largest_size(tl.where(x > 1.0, x / 0.0, x)))


def softmaxes(x: Tensor, v: Tensor, natural: bool) -> tuple[Tensor, Tensor]:
    out, lse = torch.full((len(x), v.shape[1]), torch.nan), torch.full((len(x),), torch.nan)
    softmax_kernel[(1,)](x, v, out, lse, *x.shape, v.shape[1], natural)
    return out, lse


def of_rows(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    found = torch.empty_like(x), torch.empty_like(x), torch.empty(2)
    rows_kernel[(1,)](x, *found, "ieee")
    return found


@pytest.mark.xdist_group("interpreted")
@pytest.mark.parametrize("natural", [False, True])
def test_a_softmax_by_blocks_is_that_of_whole_rows(interpreted, natural):
    random = torch.Generator().manual_seed(2)
    x, v = (torch.randn(*s, generator=random) for s in ((5, 41), (41, 7)))
    x[1, :20] = -torch.inf  # the first block sees nothing
    x[2] = -torch.inf  # the row sees nothing
    x[3] += 1000
    x[4, 30] = torch.nan
    out, lse = interpreted(softmaxes, x, v, natural)
    seen = [0, 1, 3]
    exact = x.double()
    torch.testing.assert_close(
        out[seen].double(), exact[seen].softmax(1) @ v.double(), rtol=2e-4, atol=2e-5
    )
    torch.testing.assert_close(lse[seen].double(), exact[seen].logsumexp(1), rtol=1e-6, atol=1e-5)
    assert not out[2].any()
    assert lse[2] == -torch.inf
    assert bool(out[4].isnan().all())


@pytest.mark.xdist_group("interpreted")
def test_scans_and_reductions_give_their_definitions(interpreted):
    x = torch.randn(16, 16, generator=torch.Generator().manual_seed(3))
    inverse, sums, sizes = interpreted(of_rows, x)
    exact = torch.linalg.inv(torch.eye(16).double() - x.double().tril(-1))
    torch.testing.assert_close(inverse.double(), exact, rtol=1e-4, atol=1e-4 * exact.abs().max())
    torch.testing.assert_close(sums, x.cumsum(0), rtol=1e-5, atol=1e-5)
    assert sizes[0] == x.abs().max()
    assert sizes[1] == x[x <= 1].abs().max()  # what is not finite does not count
