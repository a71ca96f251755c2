"""Linear attention by the kernels on a GPU: every kind, dtype and awkward size, against float64.

Compiling takes most of the time: run it with `-n 12`.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gpudeck.accel.primitives.linear_attention.api import linear_attention, operands
from gpudeck.accel.primitives.linear_attention.kinds import KINDS
from gpudeck.accel.primitives.linear_attention.plan import CHUNK, Shape, parts_of
from gpudeck.accel.primitives.linear_attention.reference import recurrence
from gpudeck.accel.primitives.linear_attention.single_pass import suffices
from tests.unit.accel.test_linear_attention import (
    assert_close,
    drawn,
    gradients,
    largest_error,
    problem,
)

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")

STARTS = [0, 0, 65, 65, 128, *range(129, 138), 300, 300]
"""Sequences without tokens at both ends and in the middle, of one token, and of whole chunks.

Of one token there are several: the gradient of a decay is a difference of sums over whole states
there, and of a single one chance decides whether it or the recurrence's is nearer.
"""
STRONG = 9.9
FLOAT = torch.float32


def on_gpu(x: dict[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    """Return what a dtype holds of the inputs, in float64 on the GPU."""
    return {n: t.to(dtype).double().cuda() for n, t in x.items()}


def ragged(kind: str, size: int, strength: float, dtype: torch.dtype) -> dict[str, Tensor]:
    """Draw sequences of the lengths that STARTS says, with initial states."""
    sequences = len(STARTS) - 1
    return on_gpu(
        drawn(kind, 1, STARTS[-1], size, size, strength=strength, sequences=sequences), dtype
    )


@pytest.mark.parametrize("size", [64, 100, 256])
@pytest.mark.parametrize("kind", KINDS)
def test_ragged_sequences_in_float32_are_those_of_the_recurrence(kind, size):
    x = ragged(kind, size, 0.6, torch.float32)
    exact = gradients("recurrence", kind, x, torch.float64, STARTS)
    assert_close(gradients("fused", kind, x, torch.float32, STARTS), exact, 1e-4)


@pytest.mark.parametrize("strength", [0.6, STRONG])
@pytest.mark.parametrize("size", [64, 100, 256])
@pytest.mark.parametrize("kind", KINDS)
def test_ragged_sequences_in_bfloat16_are_as_exact_as_the_recurrence(kind, size, strength):
    x = ragged(kind, size, strength, torch.bfloat16)
    exact = gradients("recurrence", kind, x, torch.float64, STARTS)
    naive = gradients("rounded recurrence", kind, x, torch.bfloat16, STARTS)
    got = gradients("fused", kind, x, torch.bfloat16, STARTS)
    assert largest_error(got, exact) <= largest_error(naive, exact)
    assert largest_error(got, {"out": exact["out"]}) <= largest_error(naive, {"out": exact["out"]})


@pytest.mark.parametrize("size", [64, 128, 256])
@pytest.mark.parametrize("kind", KINDS)
def test_sequences_that_begin_without_a_state_are_those_of_the_recurrence(kind, size):
    # these are kernels of their own: of GLA's with heads of 64 one read beyond its shared memory
    x = on_gpu(drawn(kind, 2, 200, size, size, strength=0.6), torch.bfloat16)
    del x["state"]
    exact = gradients("chunked", kind, x, torch.float64)
    assert_close(gradients("fused", kind, x, torch.bfloat16), exact, 1e-2)


@pytest.mark.parametrize("kind", KINDS)
def test_the_last_of_a_million_tokens_are_as_exact_as_the_recurrence(kind):
    tokens, tail, compared = 2**20, 3000, 500
    strength = 0.05 if KINDS[kind].decay != "fixed" else 1.0
    x = drawn(kind, 1, tokens, 64, 64, strength=strength)
    x = {n: t.bfloat16().cuda() for n, t in x.items()}
    found = linear_attention(kind=kind, **x)
    assert found.backend == "triton" and bool(found.out.isfinite().all())
    # what came before has decayed by a factor of about e^-60, or for retention e^-39 and more
    end = {n: t[:, -tail:] for n, t in x.items() if n != "state"} | {"state": x["state"]}
    exact, naive = (
        [t.double() for t in recurrence(problem(kind, end).to(dtype))]
        for dtype in (torch.float64, torch.bfloat16)
    )
    out = found.out[:, -compared:].double()
    right, rounded = exact[0][:, -compared:], naive[0][:, -compared:]
    assert (out - right).norm() <= (rounded - right).norm()
    assert (found.state.double() - exact[1]).norm() <= (naive[1] - exact[1]).norm()


@pytest.mark.parametrize("kind", ["gdn", "rwkv7"])
def test_heads_that_share_keys_and_many_sequences_are_those_of_the_recurrence(kind):
    x = on_gpu(drawn(kind, 46, 130, 128, 128, strength=0.6), torch.bfloat16)
    exact = gradients("chunked", kind, x, torch.float64)
    assert_close(gradients("fused", kind, x, torch.bfloat16), exact, 1e-2)


@pytest.mark.parametrize("size", [64, 100, 128, 256])
@pytest.mark.parametrize("kind", ["gdn", "ssd", "rwkv7", "kda"])
def test_parts_of_long_sequences_are_joined(kind, size):
    # decays so weak that every part depends on all before it
    starts = [0, 8192, 8192, 12300]
    sequences = len(starts) - 1
    x = on_gpu(drawn(kind, 1, starts[-1], size, size, strength=0.001, sequences=sequences), FLOAT)
    channel = KINDS[kind].decay == "channel"
    shape = Shape(size, size, 2, 1, channel, KINDS[kind].rule, FLOAT)
    assert parts_of(shape, (9, 0), sequences, starts[1] // CHUNK, 132) > 1
    exact = gradients("chunked", kind, x, torch.float64, starts)
    assert_close(gradients("fused", kind, x, FLOAT, starts), exact, 1e-3)


@pytest.mark.parametrize("heads", [2, 64])
@pytest.mark.parametrize("size", [64, 100, 128])
def test_one_pass_is_as_exact_as_the_recurrence(size, heads):
    # a program for each multiprocessor with two heads, and several with 64
    x = drawn("retention", 1, STARTS[-1], size, size, sequences=len(STARTS) - 1)
    x |= {n: x[n].repeat(1, 1, heads // x[n].shape[2], 1) for n in ("q", "k", "v")}
    x["state"] = x["state"].repeat(1, heads // 2, 1, 1)
    x = on_gpu(x, torch.bfloat16)
    exact = gradients("recurrence", "retention", x, torch.float64, STARTS)
    naive = gradients("rounded recurrence", "retention", x, torch.bfloat16, STARTS)
    got = gradients("fused", "retention", x, torch.bfloat16, STARTS)
    assert largest_error(got, exact) <= largest_error(naive, exact)


def test_decays_of_heads_give_what_decays_of_tokens_do():
    x = on_gpu(drawn("ssd", 2, 300, 64, 128), torch.bfloat16)
    given = {n: t.bfloat16() for n, t in x.items()}
    decay = torch.tensor([-0.001, -3.0], device="cuda")
    given["decay"] = decay.expand(2, 300, 2)
    names = ("decay", "beta", "a", "b", "scale", "state", "starts")
    asked = operands(given["q"], given["k"], given["v"], "ssd", *(given.get(n) for n in names))
    assert suffices(asked, False)
    one = linear_attention(kind="ssd", **given)
    given["decay"] = given["decay"].contiguous()
    several = linear_attention(kind="ssd", **given)
    exact = {"out": several.out.double(), "state": several.state.double()}
    assert_close({"out": one.out, "state": one.state}, exact, 5e-3)


@pytest.mark.parametrize("kind", ["gdn", "ssd", "rwkv7", "kda"])
def test_parts_in_bfloat16_are_those_of_the_chunked_form(kind):
    # 128 channels, of which two programs share a multiprocessor, and a sequence without tokens last
    starts = [0, 8192, 12300, 12300]
    x = drawn(kind, 1, starts[-1], 128, 128, strength=0.001, sequences=len(starts) - 1)
    x = on_gpu(x, torch.bfloat16)
    exact = gradients("chunked", kind, x, torch.float64, starts)
    assert_close(gradients("fused", kind, x, torch.bfloat16, starts), exact, 2e-2)
