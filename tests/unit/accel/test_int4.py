"""Weights in four bits: rounding, the published layouts, products, and what is refused."""

from __future__ import annotations

import pytest
import torch

from gpudeck.accel.primitives.gemm.int4 import BACKENDS, int4_backend, int4_gemm
from gpudeck.accel.primitives.gemm.int4_few import Cut, call_of, cut_of
from gpudeck.accel.primitives.quantize.int4 import Int4, from_gptq, int4_quantize, pack
from gpudeck.accel.runtime.call import compile_kernel
from tests.benchmarks import int4_peers
from tests.unit.accel.compiled import SHARED_KIB, TARGETS, needs

BF16 = torch.bfloat16


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("dtype", [torch.float32, BF16, torch.float16])
def test_weights_are_within_half_a_step(dtype):
    weight = (drawn(24, 384) * torch.logspace(-3, 1, 24)[:, None]).to(dtype)
    weight[3] = 0
    made = int4_quantize(weight)
    assert made.group == 128 and made.zeros.dtype == torch.uint8 and int(made.zeros.max()) <= 15
    step = made.scales.float().repeat_interleave(128, 1)
    # scales of bfloat16 are rounded themselves, by which the ends of a group move
    assert ((made.dequantize() - weight.float()).abs() <= step * 0.55 + 1e-6).all()
    assert (made.dequantize()[3] == 0).all()


def test_values_are_exactly_those_of_the_definition():
    values = torch.arange(64, dtype=torch.uint8).view(2, 32) % 16
    made = Int4(pack(values), torch.tensor([[0.5, 2.0], [1.0, 4.0]]), torch.tensor(
        [[0, 15], [8, 16]], dtype=torch.uint8))  # fmt: skip
    exact = torch.cat(
        [(values[:, at] - made.zeros[:, i : i + 1].float()) * made.scales[:, i : i + 1]
         for i, at in enumerate((slice(0, 16), slice(16, 32)))], 1)  # fmt: skip
    assert torch.equal(made.dequantize(), exact)
    assert torch.equal(Int4(made.packed, made.scales, made.zeros).regroup(8).dequantize(), exact)


def tiles_error(group: int, count: int, splits: int, biased: bool) -> float:
    from gpudeck.accel.primitives.gemm.int4_tiles import by_tiles

    weight, x = int4_quantize(drawn(200, 384), group), drawn(count, 384, seed=1)
    bias = drawn(200, seed=2) if biased else None
    out = by_tiles(x, weight, bias, splits)
    exact = x.double() @ weight.dequantize(torch.float64).T + (0 if bias is None else bias)
    return float((out - exact).norm() / exact.norm())


@pytest.mark.xdist_group("interpreted")
@pytest.mark.parametrize(
    ("group", "count", "splits", "biased"),
    [(128, 3, 1, True), (16, 18, 5, True), (64, 1, 2, False)],
)
def test_products_by_tiles(interpreted, group, count, splits, biased):
    assert interpreted(tiles_error, group, count, splits, biased) < 1e-5


def test_a_product_on_a_cpu_is_that_of_the_dequantized_matrix():
    weight, x, bias = int4_quantize(drawn(48, 64)), drawn(2, 3, 64, seed=1), drawn(48, seed=2)
    assert int4_backend(x[0], weight) == "dequantized"
    wanted = x @ weight.dequantize().T + bias
    torch.testing.assert_close(int4_gemm(x, weight, bias=bias), wanted)
    assert int4_gemm(x[:, :0], weight).shape == (2, 0, 48)


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda w, x: int4_gemm(x[:, :32], w), r"a must be \[..., 64\]"),
        (lambda w, x: int4_gemm(x, w, bias=x[0]), r"bias must be \[48\]"),
        (lambda w, x: int4_gemm(x, w, backend="few"), "few cannot do this: it needs a CUDA GPU"),
        (lambda w, x: int4_gemm(x, w, backend="many"), "no backend is called 'many'"),
        (lambda w, x: int4_quantize(x[:, :3]), "even number of columns"),
    ],
)
def test_what_does_not_fit_is_refused(call, why):
    with pytest.raises(ValueError, match=why):
        call(int4_quantize(drawn(48, 64)), drawn(2, 64))


def test_every_part_of_a_cut_has_work_and_the_gpu_is_filled():
    for rows, columns in ((7168, 16384), (28672, 4096), (4096, 14336), (256, 128), (6144, 4096)):
        for count in (1, 8, 9, 16):
            rows_each, parts = cut_of(rows, columns // 128, count, 132)
            assert parts in (1, 2, 4, 8, 16) and rows_each in (16, 32)
            assert columns // 128 >= 2 * parts or parts == 1
    assert list(BACKENDS) == ["few", "tiles", "dequantized"]


@pytest.mark.parametrize(
    "target", [pytest.param(t, marks=() if t == 90 else pytest.mark.matrix) for t in TARGETS]
)
def test_the_kernel_loads_16_bytes_and_keeps_weights_in_registers(target):
    kernel = compile_kernel(call_of(Cut(16, 8), 1, 4096, 4096, 32, 4096, BF16), target)
    used = needs(kernel)
    assert used.spilled == 0 and used.shared <= min(SHARED_KIB[target], 8) * 1024
    assert "ld.global.v4.b32" in used.ptx and "mma.sync" in used.ptx
    loop = used.ptx.split("bra")[0]
    assert "ld.shared" not in loop


def test_peers_get_the_same_weights():
    weight = int4_quantize(drawn(128, 256), 128)
    words = int4_peers.words_of_columns(weight)
    zeros = int4_peers.packed_words(weight.zeros.T.int() - 1 & 15)
    again = from_gptq(words, zeros, weight.scales.T)
    assert torch.equal(again.packed, weight.packed) and words.dtype == torch.int32
    columns = torch.arange(128).expand(2, 128)
    assert int4_peers.in_blocks(columns)[1, 64:73].tolist() == [*range(64, 128, 8), 65]
