"""Attention of a few queries over long keys, interpreted against float64, and compiled."""

from __future__ import annotations

import importlib.util
import itertools
import math
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from gpudeck.accel.attention import api, attention, choose, describe
from gpudeck.accel.attention.backends import BACKENDS
from gpudeck.accel.attention.inputs import Inputs
from gpudeck.accel.attention.kernels.decoding import kernel, latent, plan
from gpudeck.accel.attention.kernels.geometry import Target
from gpudeck.accel.attention.kernels.hopper import latent as hopper_latent
from gpudeck.accel.attention.kernels.hopper.latent import Latent, decode_call
from gpudeck.accel.attention.problem import Rules
from gpudeck.accel.attention.reference import reference
from gpudeck.accel.runtime.call import compile_kernel
from gpudeck.accel.serving.cache import quantize_kv_cache
from tests.unit.accel.compiled import SHARED_KIB, TARGETS, needs

pytestmark = pytest.mark.xdist_group("interpreted")
PAGE = 16
INT8, FP8 = torch.int8, torch.float8_e4m3fn


@dataclass(frozen=True)
class Case:
    lengths: tuple[int, ...]
    heads: int = 4
    kv_heads: int = 2
    size: int = 32
    queries: int = 1
    causal: bool = True
    left: int | None = None
    softcap: float = 0.0
    cache: torch.dtype = torch.float32
    values: int = 0
    paged: bool = True


def drawn(case: Case) -> tuple[Tensor, Tensor, Tensor, tuple[Tensor, Tensor] | None]:
    """Queries, keys and values [2, pages, PAGE, Hkv, D] as they are kept, dense, and scales."""
    g = torch.Generator().manual_seed(case.size)
    count = sum(-(-n // PAGE) for n in case.lengths) + 1
    b, shape = len(case.lengths), (2, count, PAGE, case.kv_heads, case.size)
    q = torch.randn(b, case.queries, case.heads, case.size, generator=g).transpose(1, 2)
    dense = torch.randn(shape, generator=g) * torch.rand(*shape[:-1], 1, generator=g) * 3
    if case.values:
        dense = dense[:1]
    if case.cache == torch.float32:
        return q, dense, dense, None
    kept = quantize_kv_cache(dense, case.cache)
    return (
        q,
        kept.values,
        kept.dense(),
        (kept.scales[0].transpose(1, 2), kept.scales[1].transpose(1, 2)),
    )


def right(case: Case, q: Tensor, k: Tensor, v: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """The answer of one sequence [H, Sq, D], and lse, in float64."""
    group = case.heads // case.kv_heads
    k, v = (x[:length].transpose(0, 1).double().repeat_interleave(group, 0) for x in (k, v))
    scores = q.double() @ k.transpose(1, 2) / math.sqrt(case.size)
    if case.softcap:
        scores = case.softcap * torch.tanh(scores / case.softcap)
    at, key = torch.arange(case.queries)[:, None] + length - case.queries, torch.arange(length)
    seen = key <= at if case.causal else torch.ones(case.queries, length, dtype=torch.bool)
    if case.left is not None:
        seen &= key >= at - case.left
    scores = scores.masked_fill(~seen, -torch.inf)
    return scores.softmax(2).nan_to_num(0.0) @ v, scores.logsumexp(2)


def errors(case: Case) -> tuple[float, float]:
    """The largest error of an answer beside its size, and of a logarithm."""
    q, kept, dense, scales = drawn(case)
    size = case.values or case.size
    pages = iter(torch.randperm(kept.shape[1], generator=torch.Generator().manual_seed(2)).tolist())
    every = [list(itertools.islice(pages, -(-n // PAGE))) for n in case.lengths]
    rules = Rules(case.left, 0 if case.causal else None, case.size**-0.5, case.softcap)
    flat = [[part[own].flatten(0, 1) for own in every] for part in (dense[0], dense[-1])]
    if case.paged:
        width = max(map(len, every)) + 1
        # Each sequence's row is another one, and the table has what no sequence reads.
        table = torch.tensor([[*own, *[0] * (width - len(own))] for own in reversed(every)]).int()
        rows = torch.arange(len(every)).flip(0).int()
        out, lse = plan.attend(
            q, kept[0].transpose(1, 2), kept[-1].transpose(1, 2)[..., :size], rules, scales=scales,
            tables=table, rows=rows, lengths=torch.tensor(case.lengths) - 1, more=1, wants_lse=True,
        )  # fmt: skip
    else:
        k, v = (torch.stack([x[: case.lengths[0]] for x in part]).transpose(1, 2) for part in flat)
        out, lse = plan.attend(q, k, v, rules, wants_lse=True)
    assert lse is not None
    found, logarithms = [], []
    for i, length in enumerate(case.lengths):
        known, known_lse = right(case, q[i], flat[0][i], flat[1][i][..., :size], length)
        found.append(float((out[i] - known).norm() / known.norm()))
        blind = known_lse.isneginf()
        assert bool((lse[i].isneginf() == blind).all()) and bool((out[i][blind] == 0).all())
        logarithms.append(float((lse[i].double() - known_lse)[~blind].abs().max()))
    assert all(int(ring._counters.sum()) == 0 for ring in plan._RINGS.values())
    return max(found), max(logarithms)


RAGGED = Case((150, 1, 330), 2, 1)
MANY_PARTS = Case((700,), 4, 1, 256, 4)
CASES = [
    RAGGED,
    Case((300,), size=96, queries=3, heads=6, kv_heads=1, paged=False),
    Case((2, 80), 2, 1, queries=4, size=80, cache=FP8),
    Case((90,), 4, 2, size=512, paged=False),
]
WINDOWED = Case((233, 40), 2, 1, queries=2, left=150, softcap=5.0, cache=INT8)
SLOW = [WINDOWED, MANY_PARTS, Case((40, 200), 8, 1, 576, values=512)]


def most(case: Case) -> float:
    """The error that is right: weights and queries of a quantized cache are fp16."""
    return 1e-5 if case.cache == torch.float32 else 3e-3


@pytest.mark.parametrize(
    "case", [*CASES, *(pytest.param(c, marks=pytest.mark.slow) for c in SLOW)], ids=str
)
def test_answers_are_those_of_float64(interpreted, case) -> None:
    out, lse = interpreted(errors, case)
    assert out < most(case) and lse < most(case)


@pytest.mark.slow
@pytest.mark.parametrize("size", [24, 64, 72, 128, 192, 256, 400, 512])
@pytest.mark.parametrize("cache", [torch.float32, INT8])
@pytest.mark.parametrize(("queries", "causal", "left"), [(1, False, None), (16, True, 70)])
def test_head_sizes_and_rules(interpreted, size, cache, queries, causal, left) -> None:
    case = Case((390, 17), 8, 2, size, queries, causal, left, 0.0, cache)
    assert max(interpreted(errors, case)) < most(case)


def planted(old: str, new: str, case: Case) -> float:
    """The error of a case with a defect in the kernel's source."""
    source = Path(kernel.__file__).read_text()
    assert source.count(old) == 1, f"{source.count(old)} times: {old}"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "planted.py"
        file.write_text(source.replace(old, new))
        spec = importlib.util.spec_from_file_location("planted", file)
        assert spec and spec.loader
        module = sys.modules["planted"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        plan._prepare.cache_clear()
        known, plan.decode = plan.decode, module.decode
        try:
            return max(errors(case))
        except (AssertionError, IndexError, ValueError):
            return math.inf  # a counter that is not 0, or an address outside
        finally:
            plan.decode = known
            plan._prepare.cache_clear()
            plan._RINGS.clear()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "case"),
    [
        ("who < batch", "who < batch - 1", RAGGED),
        ("(ends <= number)", "(ends < number)", RAGGED),
        ("            tl.store(counter, 0)\n", "            tl.store(counter, 1)\n", RAGGED),
        ("weights = tl.exp2(most - anchor(m, True)[None, :])", "weights = most * 0.0 + 1.0",
         RAGGED),
        ("sums = sums * shrink", "sums = sums", MANY_PARTS),
        ("accs = accs * shrink[:, :, None]", "accs = accs", MANY_PARTS),
        ("key[None, :] <= (length - QUERIES + query)", "key[None, :] <= (length - 1 + query)",
         CASES[1]),
        ("(length - QUERIES - left + query)", "(length - QUERIES - left + 1 + query)", WINDOWED),
        ("p = p * (v_scales / unit)[None, :]", "p = p / unit", WINDOWED),
        ("scale *= largest\n", "scale *= 1.0\n", CASES[2]),
        ("within = key % PAGE", "within = key % PAGE * 0", RAGGED),
        ("scores = tl.dot(q_rest, tl.trans(k_rest), scores)", "scores += 0.0",
         replace(CASES[1], size=192)),
    ],
)  # fmt: skip
def test_a_planted_defect_is_seen(interpreted, old, new, case) -> None:
    assert not interpreted(planted, old, new, case) < 3 * most(case)


SIZES = (64, 80, 96, 128, 192, 256, 512, 576)
COMPILED = [
    (target, size, kept)
    for target, size, kept in itertools.product(TARGETS, SIZES, (torch.bfloat16, FP8, INT8))
    if (size, kept) != (576, FP8) and (size, kept) != (576, INT8)
]


def in_make_test(target: int, size: int, kept: torch.dtype) -> bool:
    return (target, size, kept) == (90, 128, FP8)


@pytest.mark.parametrize(
    ("target", "size", "kept"),
    [c if in_make_test(*c) else pytest.param(*c, marks=pytest.mark.matrix) for c in COMPILED],
)
def test_the_kernel_compiles_for_every_target(target, size, kept) -> None:
    heads, kv_heads = (128, 1) if size == 576 else (32, 8)
    values = 512 if size == 576 else size
    q = torch.empty(64, 1, heads, size, device="meta").transpose(1, 2)
    k = torch.empty(100, PAGE, kv_heads, size, device="meta").transpose(1, 2)
    scaled = kept.itemsize == 1
    kind = plan.Kind(
        tuple(q.shape), q.stride()[:3], tuple(k.shape), k.stride()[:3], k.stride()[:3], values,
        (PAGE * kv_heads, 1, kv_heads) if scaled else None, torch.bfloat16, kept, True,
        torch.device("cuda", 0), Rules(scale=0.1), 512, torch.int64, 1, False, False,
    )  # fmt: skip
    if kept == FP8 and target < 89:
        pytest.skip("Triton has no FP8 for this GPU")
    made = plan.plan_of(kind, Target(target, 100))
    used = needs(compile_kernel(made.call, target))
    assert used.shared <= SHARED_KIB[target] * 1024
    assert used.spilled <= (1100 if size == 576 else 256)
    assert "mma" in used.ptx


def joined(splits: int) -> float:
    """The error of parts that are combined, of which the last has seen no key."""
    g = torch.Generator().manual_seed(splits)
    scores, values = torch.randn(2, 8, splits, 5, generator=g), torch.randn(5, 512, generator=g)
    scores[:, :, splits - 1] = -torch.inf
    m = scores.amax(3)
    weights = torch.exp2(scores - torch.where(m == -torch.inf, 0.0, m).unsqueeze(3))
    partial, sums = weights @ values, torch.stack([m, weights.sum(3)], 3)
    out, lse = torch.full((2, 8, 512), torch.nan), torch.full((2, 8), torch.nan)
    kernel.join[2, 2](
        out, lse, partial.transpose(1, 2).contiguous(), sums.transpose(1, 2).contiguous(), splits,
        *out.stride()[:2], HEADS=8, REAL=4, VALUES=512, PARTS=2, EARLY=False,
    )  # fmt: skip
    every = scores.flatten(2).double() * math.log(2)
    exact = every.softmax(2) @ values.repeat(splits, 1).double()
    return max(
        float((out - exact).norm() / exact.norm()), float((lse - every.logsumexp(2)).abs().max())
    )


@pytest.mark.slow
@pytest.mark.parametrize("splits", [2, 5])
def test_parts_of_another_kernel_are_combined(interpreted, splits) -> None:
    assert interpreted(joined, splits) < 1e-6


MLA = plan.Kind(
    (4, 128, 1, 576), (73728, 576, 73728), (4, 1, 300, 576), (172800, 172800, 576),
    (172800, 172800, 576), 512, None, torch.bfloat16, torch.bfloat16, True,
    torch.device("cuda", 0), Rules(scale=0.04), 0, None, 0, False, True,
)  # fmt: skip


@pytest.mark.parametrize(
    ("change", "takes"),
    [
        ({}, True),
        ({"dtype": torch.float32, "kept": torch.float32}, False),
        ({"q": (4, 16, 1, 576)}, False),  # heads that fill no tile
        ({"q": (4, 128, 2, 576)}, False),
        ({"rules": Rules(left=100)}, False),
        ({"rules": Rules(softcap=5.0)}, False),
        ({"table_width": 8, "counted": torch.int64}, False),
        ({"v_strides": (172800, 172800, 512)}, False),  # values of their own
        ({"k_strides": (172800, 172800, 577), "v_strides": (172800, 172800, 577)}, False),
        ({"aligned": False}, False),
    ],
)
def test_hoppers_kernel_takes_mla_in_whole_tiles_only(monkeypatch, change, takes) -> None:
    monkeypatch.setattr(latent, "target_of", lambda device: Target(90, 132))
    latent.takes.cache_clear()
    assert latent.takes(MLA._replace(**change)) == takes
    latent.takes.cache_clear()


@pytest.mark.matrix
def absorbed(scattered: bool) -> float:
    """The error of the backend with values that are a part of the keys."""
    torch.manual_seed(0)
    q, k = torch.randn(1, 4, 2, 576), torch.randn(1, 1, 40, 576)
    if scattered:
        k = k.mT.contiguous().mT
    x = Inputs(q, k, k[..., :512])
    out, _ = BACKENDS["decoding"].forward(x, describe(*x[:3], causal=True))
    exact = reference(*(t.double() for t in x[:3]), causal=True)
    return float((out - exact).norm() / exact.norm())


@pytest.mark.parametrize("scattered", [False, True])
def test_the_backend_computes_mla_with_its_keys_alone(interpreted, scattered) -> None:
    assert interpreted(absorbed, scattered) < 1e-5


def test_mla_is_decoded_where_its_values_lie_in_its_keys() -> None:
    q, room = torch.randn(2, 128, 1, 576).bfloat16(), torch.randn(2, 1, 300, 1152).bfloat16()
    k = room[..., :576]

    def backend(v: Tensor, **changed: Any) -> str:
        p = describe(q, k, v)
        return choose(replace(p, device=torch.device("cuda"), capability=(9, 0), **changed)).backend

    assert backend(k[..., :512]) == "decoding"
    assert backend(k[..., :512].clone()) != "decoding"
    # the same strides, another place
    assert backend(room[..., 64:576]) != "decoding" and backend(room[..., 576:1088]) != "decoding"
    assert backend(k[..., :384]) != "decoding"
    assert backend(k[..., :512], bias="float") != "decoding"


def test_a_plan_for_values_in_keys_is_not_used_for_others() -> None:
    q, room = torch.randn(1, 2, 1, 24), torch.randn(1, 1, 30, 48)
    for v in (room[..., :16], room[..., 24:40]):
        attention(q, room[..., :24], v)
    plans = [p.problem for p in api._PLANS.values() if p.problem.value_dim == 16]
    assert [p.values_in_keys for p in plans] == [True, False]


def test_the_latent_kernels_compile() -> None:
    strides = (73728, 576), (172800, 576), (65536, 512)
    problem = Latent(4, 128, 300, *strides, torch.bfloat16, 0.04, True)
    for splits in (1, 2):
        used = needs(compile_kernel(decode_call(problem, splits), 90))
        assert used.shared <= SHARED_KIB[90] * 1024 and used.spilled <= 128
        assert "wgmma" in used.ptx
    assert not needs(compile_kernel(latent.join_call(MLA, 2, (65536, 512)), 90)).spilled


@pytest.mark.parametrize(("keys", "most"), [(64, 1), (200, 2), (300, 4), (1000, 7)])
def test_the_parts_of_latent_keys_are_all_tiles_once(monkeypatch, keys, most) -> None:
    seen: list[int] = []
    splits = hopper_latent.parts(keys, most)
    for program in range(splits):
        here = SimpleNamespace(program_id=lambda axis, at=program: at, minimum=min)
        monkeypatch.setattr(hopper_latent, "gl", here)
        sequence, first, end = hopper_latent._part.fn(keys, splits, 1)
        assert sequence == 0 and first < end, "no part is empty"
        seen += range(int(first), int(end))
    assert seen == list(range(-(-keys // hopper_latent.HEADS)))


@pytest.mark.parametrize(
    ("units", "tiles", "most"), [(8, 2048, 2.2), (512, 128, 1.6), (64, 64, 1.6), (1, 4096, 3.0)]
)
def test_keys_are_split_so_that_no_processor_waits_long(units, tiles, most) -> None:
    slots = 528
    parts = plan.split(units, tiles, slots, 2)
    waves = math.ceil(units * parts / slots)
    assert 1 <= parts <= tiles
    assert waves * math.ceil(tiles / parts) <= most * max(2, units * tiles / slots)
