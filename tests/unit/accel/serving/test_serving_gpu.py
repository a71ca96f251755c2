"""The GPU's kernels without a GPU: interpreted against the CPU's, and compiled for Hopper."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from gpudeck.accel.runtime.call import compile_kernel
from gpudeck.accel.serving import cpu, eight_bits, gpu, launches
from gpudeck.accel.serving.batch import Batch
from gpudeck.accel.serving.cache import PagedCache, Place
from gpudeck.accel.serving.families import FAMILIES, Config
from gpudeck.accel.serving.linear import Heads, Linear, Norm
from gpudeck.accel.serving.memory import BLOCK
from gpudeck.accel.serving.rotary import Rope
from gpudeck.accel.serving.transformer import rotation
from tests.unit.accel.compiled import SHARED_KIB, needs

pytestmark = pytest.mark.xdist_group("interpreted")


def config(heads=6, kv_heads=2, size=24, softcap=0.0) -> Config:
    rope = Rope(tuple(0.5**i for i in range(size // 2 - 2)))
    return Config(
        FAMILIES["llama"], 1, 48, heads, kv_heads, size, 96, 99, 512, 1e-6, True, "silu", 0.3,
        softcap, 0.0, (0,), (rope,), (None,), (), {},
    )  # fmt: skip


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def off(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    return float((ours.float() - theirs.float()).norm() / theirs.float().norm())


NORM = Norm(drawn(256, seed=2) + 1, 1e-6)


def product_error(kind: str, tokens: int, biased: bool) -> float:
    weight = Linear("dense", drawn(72, 256), bias=drawn(72) if biased else None)
    linear, x, add = weight.quantized(kind), drawn(tokens, 256, seed=1), drawn(tokens, 72, seed=3)
    dense = linear.as_dense(torch.float32)
    return max(
        off(gpu.multiply(linear, x, *more), cpu.multiply(dense, x, *more))
        for more in ((NORM,), (None, add, True))
    )


def long_error(kind: str) -> float:
    """Return the error of one vector that is too long for a program to keep."""
    before, gpu.kept_for = gpu.kept_for, lambda kind, depth: None
    try:
        return product_error(kind, 1, True)
    finally:
        gpu.kept_for = before


def test_a_long_vector_is_read_in_parts(interpreted) -> None:
    assert interpreted(long_error, "dense") < 2e-3


@pytest.mark.parametrize("kind", ["dense", "int8", "fp8", "int4"])
@pytest.mark.parametrize(("tokens", "biased"), [(1, True), (3, False)])
def test_products_are_those_of_the_dense_matrix(interpreted, kind, tokens, biased) -> None:
    assert interpreted(product_error, kind, tokens, biased) < 2e-3


def row_errors() -> float:
    x, norm = drawn(3, 80), Norm(drawn(80, seed=2), 1e-6)
    errors = [off(gpu.normalized(x, norm), cpu.normalized(x, norm))]
    gate = Linear("dense", drawn(64, 80, seed=3), bias=drawn(64, seed=4))
    for kind, by, rows in (
        ("silu", None, x), ("gelu_tanh", norm, x),
        ("silu", norm, x[:1]), ("gelu_tanh", None, x[:1]),
    ):  # fmt: skip
        errors.append(off(gpu.gated(gate, rows, by, kind), cpu.gated(gate, rows, by, kind)))
    return max(errors)


def test_rows_are_normalized_and_gated_as_on_a_cpu(interpreted) -> None:
    assert interpreted(row_errors) < 1e-5


def attention_error(kind: str, normed: bool, window: int, softcap: float, length: int) -> float:
    """Return the error of storing keys and attending, with blocks scattered over the cache."""
    c = config(softcap=softcap)
    caches = [PagedCache(c, 8, torch.device("cpu"), torch.float32, kind) for _ in range(2)]
    positions = torch.arange(length)
    table = torch.randperm(8, generator=torch.Generator().manual_seed(1))[: -(-length // BLOCK)]
    slots = table[positions // BLOCK] * BLOCK + positions % BLOCK
    rope = c.ropes[0]
    turn = rotation(rope, positions, torch.tensor(rope.frequencies)) if rope else None
    norms = [Norm(drawn(c.head_dim, seed=seed), 1e-6) for seed in (4, 5)]
    heads = Heads(6, 2, (norms[0], norms[1]) if normed else None)
    linear, x, norm = Linear("dense", drawn(240, 256)), drawn(length, 256, seed=1), NORM
    q, known = (
        ops.queries(linear, x, norm, heads, Place(turn, slots, cache, 0))
        for ops, cache in zip((gpu, cpu), caches, strict=True)
    )
    errors = [off(q, known)]
    every = [cache.dense(0, table) for cache in caches]
    errors += [off(every[0][part], every[1][part]) for part in range(2)]
    last = torch.tensor([length - 1, length // 2])
    tables, rows = table.int().unsqueeze(0), torch.zeros(2, dtype=torch.int32)
    ours = gpu.attend_few(
        q[last], 0, tables, rows, positions[last], caches[0], window, c.attention_scale, softcap
    )
    for at, found in zip(last.tolist(), ours, strict=True):
        first = max(0, at + 1 - window) if window else 0
        keys, values = (part[first : at + 1].repeat_interleave(3, 1) for part in every[1])
        scores = torch.einsum("hd,khd->hk", known[at], keys) * c.attention_scale
        if softcap:
            scores = softcap * torch.tanh(scores / softcap)
        errors.append(off(found, torch.einsum("hk,khd->hd", scores.softmax(1), values)))
    return max(errors)


def varied_errors(owns: bool) -> float:
    """Return the error of queries whose values are normalized, or are those of another layer."""
    c = config()
    caches = [PagedCache(c, 2, torch.device("cpu"), torch.float32) for _ in range(2)]
    norms = Norm(drawn(24, seed=4), 1e-6), Norm(drawn(24, seed=5), 1e-6)
    heads = Heads(6, 2 if owns else 0, norms, Norm(torch.ones(24), 1e-6))
    linear = Linear("dense", drawn(24 * heads.every, 256))
    turn = rotation(Rope(()), torch.arange(3), 0.5 ** torch.arange(12))
    q, known = (
        ops.queries(linear, drawn(3, 256), NORM, heads, Place(turn, torch.arange(3), cache, 0))
        for ops, cache in zip((gpu, cpu), caches, strict=True)
    )
    errors = [off(q, known)]
    if owns:
        errors += [off(caches[0].values[0][part], caches[1].values[0][part]) for part in (0, 1)]
    else:
        errors += [float(cache.values[0].abs().sum()) for cache in caches]
    return max(errors)


@pytest.mark.parametrize("owns", [True, False])
def test_values_are_normalized_and_those_of_another_layer_are_left_alone(interpreted, owns) -> None:
    assert interpreted(varied_errors, owns) < 2e-3


def prompts_error(kind: str, window: int, softcap: float) -> float:
    """Return the error of attending with parts of prompts and answers of several sequences."""
    c = replace(config(softcap=softcap), windows=(window,))
    cache = PagedCache(c, 12, torch.device("cpu"), torch.float32, kind)
    parts = ((1, 20), (2, 35), (9, 9), (37, 40), (10, 48))
    blocks = iter(torch.randperm(12, generator=torch.Generator().manual_seed(1)).tolist())
    every = [[next(blocks) for _ in range(-(-length // BLOCK))] for _, length in parts]
    for found, (_, length) in zip(every, parts, strict=True):
        at = torch.arange(length)
        slots = torch.tensor(found)[at // BLOCK] * BLOCK + at % BLOCK
        vectors = drawn(length, 2, 2, c.head_dim, seed=length)
        cache.write(0, slots, vectors[:, 0], vectors[:, 1])
    positions = torch.cat([torch.arange(length - count, length) for count, length in parts])
    rows = torch.cat([torch.full((count,), i) for i, (count, _) in enumerate(parts)]).int()
    tables = torch.tensor([[*found, *[0] * (3 - len(found))] for found in every]).int()
    batch = Batch(positions, positions, positions, rows, tables, positions, parts)
    q = drawn(len(positions), 6, c.head_dim)
    return off(gpu.attend(q, 0, batch, cache, c), cpu.attend(q, 0, batch, cache, c))


@pytest.mark.parametrize(("kind", "window", "softcap"), [("auto", 0, 0.0), ("int8", 11, 5.0)])
def test_prompts_of_several_sequences_are_attended_with_in_one_launch(
    interpreted, kind, window, softcap
) -> None:
    most = 2e-2 if kind == "int8" else 2e-3
    assert interpreted(prompts_error, kind, window, softcap) < most


@pytest.mark.parametrize(
    ("kind", "normed", "window", "softcap", "length"),
    [
        pytest.param("auto", True, 0, 0.0, 70, marks=pytest.mark.slow),
        pytest.param("int8", False, 20, 5.0, 40, marks=pytest.mark.slow),
        ("auto", False, 0, 0.0, 9),
    ],
)
def test_paged_attention_is_that_of_a_cpu(
    interpreted, kind, normed, window, softcap, length
) -> None:
    most = 2e-2 if kind == "int8" else 2e-3  # halves are rounded another way
    assert interpreted(attention_error, kind, normed, window, softcap, length) < most


def one_token_error(kind: str, turned: bool) -> float:
    """Return the error of a token's queries, keys and values, which one kernel computes."""
    c = config()
    caches = [PagedCache(c, 8, torch.device("cpu"), torch.float32) for _ in range(2)]
    linear = Linear("dense", drawn(240, 256), bias=drawn(240, seed=3)).quantized(kind)
    position, slots = torch.tensor([37]), torch.tensor([3 * BLOCK + 5])
    turn = rotation(Rope(()), position, 0.5 ** torch.arange(12)) if turned else None
    q, known = (
        ops.queries(matrix, drawn(1, 256), NORM, Heads(6, 2, None), Place(turn, slots, cache, 0))
        for ops, cache, matrix in zip(
            (gpu, cpu), caches, (linear, linear.as_dense(torch.float32)), strict=True
        )
    )
    return max(off(q, known), off(caches[0].values[0], caches[1].values[0]))


@pytest.mark.parametrize(
    ("kind", "turned"), [pytest.param("dense", True, marks=pytest.mark.slow), ("fp8", False)]
)
def test_the_vectors_of_one_token_are_stored_as_on_a_cpu(interpreted, kind, turned) -> None:
    assert interpreted(one_token_error, kind, turned) < 1e-5


def calls(monkeypatch) -> dict[str, object]:
    """Return the launches of one layer of Llama 8B's shape, as a GPU would get them."""
    made: dict[str, object] = {}

    def note(call, device):
        made[f"{call.kernel.__name__} {dict(call.constants)}"] = call
        return lambda *tensors: None

    monkeypatch.setattr(launches, "prepare", note)
    monkeypatch.setattr(launches, "_LAUNCHES", {})

    def bf16(*shape: int) -> torch.Tensor:
        return torch.empty(*shape, dtype=torch.bfloat16)

    c = config(32, 8, 128)
    for kind in ("auto", "fp8", "int8"):
        cache = PagedCache(c, 8, torch.device("cpu"), torch.bfloat16, kind)
        positions = torch.zeros(2, dtype=torch.int64)
        turn = (torch.empty(2, 64), torch.empty(2, 64))
        q = bf16(2, 32, 128)
        heads = Heads(32, 8, None)
        gpu.turn_and_store(bf16(2, 48, 128), q, heads, Place(turn, positions, cache, 0))
        rows, tables = torch.zeros(2, dtype=torch.int32), torch.zeros(2, 512, dtype=torch.int32)
        batch = Batch(rows, positions, positions, rows, tables, positions, ((40, 40),))
        gpu.attend_prompts(q, 0, batch, cache, c, q)
    wide = config(16, 8, 512)  # as Gemma 4 has them
    for kind in ("auto", "int8"):
        cache = PagedCache(wide, 8, torch.device("cpu"), torch.bfloat16, kind)
        gpu.attend_prompts(bf16(2, 16, 512), 0, batch, cache, wide, bf16(2, 16, 512))
    norm = Norm(torch.empty(4096), 1e-6)
    gpu.normalized(bf16(2, 4096), norm)
    cache, turn = PagedCache(c, 8, torch.device("cpu"), torch.bfloat16), (turn[0][:1], turn[1][:1])
    for kind in ("dense", "int8", "fp8"):
        cpu_device = torch.device("cpu")
        linear = Linear("dense", drawn(256, 512)).quantized(kind).to(cpu_device, torch.bfloat16)
        gpu.multiply(linear, bf16(1, 512), None, bf16(1, 256))
        gpu.gated(linear, bf16(1, 512), norm, "silu")
        wide = Linear("dense", drawn(48 * 128, 512)).quantized(kind)
        wide = wide.to(cpu_device, torch.bfloat16)
        gpu.queries(wide, bf16(1, 512), norm, heads, Place(turn, positions[:1], cache, 0))
        if kind != "dense":
            gpu.multiply(linear, bf16(16, 512))
            given = {"add": None, "out": bf16(1, 128), "half": 128, "scales": linear.scales,
                     "bias": None, "x": bf16(1, 512), "rows": 256}  # fmt: skip
            gate = {"ADDS": False, "GATE": "silu", "BIASED": False}
            eight_bits.launch_one("one", linear, given, gate)  # a CPU is not asked to
    return made


def test_the_kernels_of_a_layer_compile_for_hopper_and_hardly_spill(monkeypatch) -> None:
    made = calls(monkeypatch)
    assert len(made) >= 21
    for name, call in made.items():
        used = needs(compile_kernel(call, 90))
        assert used.shared <= SHARED_KIB[90] * 1024 and used.spilled <= 64, name
