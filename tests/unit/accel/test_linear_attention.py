"""Linear attention, chunked and by the kernels (interpreted), against the recurrence."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from gpudeck import accel
from gpudeck.accel.primitives.linear_attention.api import choose, linear_attention, operands
from gpudeck.accel.primitives.linear_attention.chunked import chunked
from gpudeck.accel.primitives.linear_attention.fused import fused
from gpudeck.accel.primitives.linear_attention.kinds import KINDS
from gpudeck.accel.primitives.linear_attention.part_kernels import join
from gpudeck.accel.primitives.linear_attention.plan import (
    Shape,
    cut,
    parts_of,
    passing,
    single,
    tables,
)
from gpudeck.accel.primitives.linear_attention.problem import Operands
from gpudeck.accel.primitives.linear_attention.reference import recurrence
from gpudeck.accel.primitives.linear_attention.single_pass import suffices
from gpudeck.accel.runtime import named
from gpudeck.accel.runtime.call import KernelCall, compile_kernel
from tests.kernel_code import launched
from tests.unit.accel import interpreted_bfloat16
from tests.unit.accel.compiled import SHARED_KIB, TARGETS, needs

STARTS = [0, 0, 66, 129]
"""Of sequences end to end: an empty one, one of two chunks, and one token short of a chunk."""


def drawn(
    kind: str, batch: int = 2, tokens: int = 70, keys: int = 8, values: int = 12, **rules: Any
) -> dict[str, Tensor]:
    """Draw float64 arguments of `linear_attention`, with two heads of values for each of keys."""
    random = torch.Generator().manual_seed(7)
    heads, strength = 2, rules.get("strength", 1.0)
    shared = heads if kind == "rwkv7" else 1

    def rand(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=random, dtype=torch.float64)

    def randn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random, dtype=torch.float64)

    x = {
        "q": randn(batch, tokens, shared, keys),
        "k": functional.normalize(randn(batch, tokens, shared, keys), dim=-1),
        "v": randn(batch, tokens, heads, values),
        "state": randn(rules.get("sequences", batch), heads, keys, values),
    }
    if KINDS[kind].decay == "head":
        x["decay"] = -strength * rand(batch, tokens, heads)
    elif KINDS[kind].decay == "channel":
        x["decay"] = -strength * rand(batch, tokens, heads, keys)
    if "beta" in KINDS[kind].needs:
        x["beta"] = rand(batch, tokens, heads)
    if kind == "rwkv7":
        erased = functional.normalize(randn(batch, tokens, heads, keys), dim=-1)
        x |= {"a": -erased, "b": erased * rand(batch, tokens, heads, keys)}
    return x


def problem(kind: str, x: dict[str, Tensor], starts: list[int] | None = None) -> Operands:
    given = (x.get(n) for n in ("decay", "beta", "a", "b"))
    ragged = None if starts is None else torch.tensor(starts)
    return operands(x["q"], x["k"], x["v"], kind, *given, None, x.get("state"), ragged)


def gradients(
    run: str, kind: str, x: dict[str, Tensor], dtype: torch.dtype, starts: list[int] | None = None
) -> dict[str, Tensor]:
    """Return outputs, states and the gradients of a random sum of both."""
    leaves = {n: t.detach().to(dtype).requires_grad_() for n, t in x.items()}
    given = problem(kind, leaves, starts)
    if run == "rounded recurrence":
        out, last = recurrence(given.to(dtype))
    else:
        function = {"recurrence": recurrence, "chunked": chunked, "fused": fused}[run]
        out, last = function(given)
    random = torch.Generator().manual_seed(8)
    weights = [
        torch.randn(t.shape, generator=random, dtype=torch.float64).to(t.device)
        for t in (out, last)
    ]
    loss = (out.double() * weights[0]).sum() + (last.double() * weights[1]).sum()
    found = torch.autograd.grad(loss, list(leaves.values()))
    return {"out": out.detach(), "last": last.detach(), **dict(zip(leaves, found, strict=True))}


def assert_close(got: dict[str, Tensor], exact: dict[str, Tensor], bound: float) -> None:
    for name, right in exact.items():
        error = float((got[name].double() - right).norm() / right.norm().clamp(min=1e-30))
        assert error < bound, f"{name}: {error:.1e}"


@pytest.mark.parametrize("strength", [1.0, 9.9, 100.0])
@pytest.mark.parametrize("kind", KINDS)
def test_chunks_give_the_output_and_the_gradients_of_the_recurrence(kind, strength, one_thread):
    x = drawn(kind, strength=strength)
    exact = gradients("recurrence", kind, x, torch.float64)
    assert_close(gradients("chunked", kind, x, torch.float64), exact, 1e-11)


@pytest.mark.parametrize("kind", KINDS)
def test_sequences_end_to_end_do_not_see_each_other(kind, one_thread):
    x = drawn(kind, 1, STARTS[-1], sequences=len(STARTS) - 1)
    exact = gradients("recurrence", kind, x, torch.float64, STARTS)
    assert_close(gradients("chunked", kind, x, torch.float64, STARTS), exact, 1e-11)


@pytest.mark.xdist_group("interpreted")
@pytest.mark.parametrize(
    ("kind", "strength", "bound"),
    [
        pytest.param("ssd", 1.0, 1e-5, marks=pytest.mark.slow),
        ("gdn", 9.9, 1e-4),
        # relative to the tiny gradients of strong decays, float32 sums of large terms show; the
        # chunk of two tokens is computed at once, the others in blocks of rows
        ("kda", 9.9, 5e-3),
        ("rwkv7", 1.0, 1e-5),
        pytest.param("retention", 1.0, 1e-5, marks=pytest.mark.slow),
        pytest.param("gla", 1.0, 1e-4, marks=pytest.mark.slow),
    ],
)
def test_the_kernels_give_the_output_and_the_gradients_of_the_recurrence(
    interpreted, kind, strength, bound
):
    x = drawn(kind, 1, STARTS[-1], 20, 24, strength=strength, sequences=len(STARTS) - 1)
    exact = gradients("recurrence", kind, x, torch.float64, STARTS)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYTHONWARNINGS", "ignore")  # factors that are masked may overflow
        got = interpreted(gradients_ignoring_overflow, kind, x, STARTS)
    assert_close(got, exact, bound)


@pytest.mark.xdist_group("interpreted")
@pytest.mark.parametrize("tokens", [28, 32])
def test_places_past_a_sequence_are_not_seen_at_the_strongest_decays(interpreted, tokens):
    """Factors there are infinite, and an infinite factor of nothing is no number."""
    x = drawn("kda", 1, tokens, 16, 16, strength=20.0)
    x["decay"].fill_(-20.0)
    exact = gradients("recurrence", "kda", x, torch.float64)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYTHONWARNINGS", "ignore")
        got = interpreted(gradients_ignoring_overflow, "kda", x, [0, tokens])
    assert_close(got, {n: exact[n] for n in ("out", "v", "beta")}, 1e-3)
    assert all(t.isfinite().all() for t in got.values())


def test_what_inference_leaves_behind_serves_training(one_thread):
    with torch.inference_mode():
        left = tables.__wrapped__(((0, 70), (70, 75)), torch.device("cpu"))
        parted = cut.__wrapped__(((0, 512),), 2, torch.device("cpu"))
    assert not any(t.is_inference() for t in (left.chunks, left.sequences, parted))
    assert left.chunks.tolist() == [[0, 64, 0], [64, 6, 1], [70, 5, 3]]
    assert parted.tolist() == [[0, 4], [4, 4]]


def gradients_ignoring_overflow(
    kind: str, x: dict[str, Tensor], starts: list[int]
) -> dict[str, Tensor]:
    """Run the kernels in float32; factors of masked elements may overflow, as on a GPU."""
    import numpy as np

    with np.errstate(over="ignore", invalid="ignore"):
        return gradients("fused", kind, x, torch.float32, starts)


@pytest.mark.xdist_group("interpreted")
@pytest.mark.parametrize(
    ("kind", "strength"),
    [
        pytest.param("gdn", 0.1, marks=pytest.mark.slow),
        *(
            pytest.param(kind, strength, marks=pytest.mark.slow)
            for kind in ("gdn", "ssd", "rwkv7", "gla")
            # the weaker decays leave something of all chunks, the stronger of one or two
            for strength in (0.01, 0.9)
        ),
    ],
)
def test_sequences_that_are_cut_into_parts_give_what_the_recurrence_does(
    interpreted, kind, strength
):
    starts = [0, 0, 210, 260]  # 0, 4 and 1 chunks in parts of 2 and 1, of which some are empty
    x = drawn(kind, 1, starts[-1], 20, 24, strength=strength, sequences=len(starts) - 1)
    exact = gradients("chunked", kind, x, torch.float64, starts)
    assert_close(interpreted(in_two_or_four_parts, kind, x, starts), exact, 1e-4)


@pytest.mark.xdist_group("interpreted")
@pytest.mark.parametrize(
    ("kind", "starts"),
    [
        pytest.param("gdn", [0, 200, 200], marks=pytest.mark.slow),
        pytest.param("gdn", None, marks=pytest.mark.slow),
        pytest.param("kda", [0, 130, 130], marks=pytest.mark.slow),
    ],
)
def test_a_last_sequence_without_tokens_and_parts_without_a_state_before_them(
    interpreted, kind, starts
):
    x = drawn(kind, 1, starts[-1] if starts else 200, 20, 24, strength=0.01, sequences=2)
    if starts is None:
        del x["state"]
    exact = gradients("chunked", kind, x, torch.float64, starts)
    assert_close(interpreted(in_two_or_four_parts, kind, x, starts), exact, 1e-4)


@pytest.mark.xdist_group("interpreted")
@pytest.mark.parametrize("kind", ["gdn", pytest.param("kda", marks=pytest.mark.slow)])
def test_without_tokens_the_kernels_read_no_more_than_there_is(interpreted, kind):
    x = drawn(kind, 1, 0, 20, 24, sequences=2)
    found = interpreted(in_two_or_four_parts, kind, x, [0, 0, 0])
    assert_close(found, {"last": x["state"]}, 1e-6)
    assert found["out"].shape == (1, 0, 2, 24)


FIXED = {
    "alike": ("retention", 24, 24, {}),
    "without a state": ("retention", 16, 16, {"state": False}),
    "unlike": ("retention", 20, 24, {"trained": False}),
    "given": ("ssd", 24, 24, {"trained": False, "strength": 0.3}),
    "strong": ("ssd", 24, 24, {"trained": False, "strength": 30.0}),
}
"""Cases of one decay a head for all tokens: the kind, the sizes of keys and values, and more."""


@pytest.mark.xdist_group("interpreted")
@pytest.mark.parametrize("case", FIXED)
def test_one_pass_suffices_where_decays_are_fixed(interpreted, case):
    kind, keys, values, rules = FIXED[case]
    x = with_fixed_decays(kind, keys, values, **rules)
    run = gradients if rules.get("trained", True) else outputs
    exact = run("recurrence", kind, x, torch.float64, STARTS)
    got, kernels = interpreted(of_one_pass, run, kind, x)
    assert kernels == (["outputs", "gradients"] if run is gradients else ["outputs"])
    assert_close(got, exact, 1e-5)


@pytest.mark.parametrize(
    ("change", "trained", "one"),
    [
        ({}, True, True),
        ({"dtype": torch.float16}, False, False),
        ({"dtype": torch.float32}, False, False),
        ({"decay": torch.zeros(1, 1, 2).expand(2, 70, 2)}, True, True),
        ({"decay": torch.zeros(2, 1, 2).expand(2, 70, 2)}, False, False),
        ({"decay": torch.zeros(1, 70, 2).expand(2, 70, 2)}, False, False),
        ({"decay": torch.zeros(1, 1, 2, requires_grad=True).expand(2, 70, 2)}, True, False),
        ({"decay": torch.zeros(1, 1, 2, requires_grad=True).expand(2, 70, 2)}, False, True),
        ({"tokens": 1, "decay": torch.zeros(2, 1, 2)}, False, False),
        ({"batch": 1, "tokens": 1, "decay": torch.zeros(1, 1, 2)}, False, True),
        ({"tokens": 0}, False, False),
        ({"shared": 1}, True, False),
        ({"shared": 1}, False, True),
        ({"values": 32}, True, False),
        ({"values": 32}, False, True),
        ({"values": 129}, False, False),
    ],
)
def test_one_pass_is_taken_where_it_is_right_and_fast(change, trained, one):
    sizes = {"batch": 2, "tokens": 70, "shared": 2, "keys": 16, "values": 16} | change
    batch, tokens = sizes["batch"], sizes["tokens"]
    q = torch.zeros(batch, tokens, sizes["shared"], sizes["keys"])
    v = torch.zeros(batch, tokens, 2, sizes["values"])
    q, v = (t.to(sizes.get("dtype", torch.bfloat16)) for t in (q, v))
    kind = "ssd" if "decay" in sizes else "retention"
    given = operands(q, q, v, kind, sizes.get("decay"), *[None] * 6)
    assert suffices(given, trained) is one


def test_a_few_long_sequences_are_trained_in_parts(monkeypatch):
    patches = {"processors_of": lambda _: 132, "capability_of": lambda _: (9, 0)}
    for name, told in patches.items():
        monkeypatch.setitem(suffices.__globals__, name, told)

    def one(tokens: int, heads: int) -> bool:
        q = torch.zeros(1, 1, heads, 64, dtype=torch.bfloat16).expand(1, tokens, heads, 64)
        return suffices(operands(q, q, q, "retention", *[None] * 7), True)

    assert [one(65536, heads) for heads in (4, 16, 64)] == [False, True, True]
    assert one(4096, 4)


@pytest.mark.xdist_group("interpreted")
@pytest.mark.parametrize("kind", ["retention", "gdn"])
def test_second_derivatives_are_refused(interpreted, kind):
    with pytest.raises(RuntimeError, match="once_differentiable"):
        interpreted(second_derivative, kind)


def second_derivative(kind: str) -> None:
    x = {n: t.float() for n, t in drawn(kind, 1, 3, 16, 16).items()}
    x |= {n: x[n].repeat(1, 1, 2, 1).requires_grad_() for n in ("q", "k")}
    with pytest.MonkeyPatch.context() as patches:
        patches.setitem(suffices.__globals__, "_DTYPES", (torch.float32,))
        out, _ = fused(problem(kind, x))
    (found,) = torch.autograd.grad(out.square().sum(), x["q"], create_graph=True)
    found.sum().backward()


def with_fixed_decays(kind: str, keys: int, values: int, **rules: Any) -> dict[str, Tensor]:
    """Draw arguments whose heads have a decay each; those that are trained share no keys."""
    x = drawn(kind, 1, STARTS[-1], keys, values, sequences=len(STARTS) - 1)
    if rules.get("trained", True):
        x |= {n: torch.cat([x[n], x[n].flip(3)], 2) for n in ("q", "k")}
    if kind == "ssd":
        x["decay"] = -rules["strength"] * torch.tensor([0.02, 0.9], dtype=torch.float64)
    if not rules.get("state", True):
        del x["state"]
    return x


def outputs(
    run: str, kind: str, x: dict[str, Tensor], dtype: torch.dtype, starts: list[int] | None = None
) -> dict[str, Tensor]:
    """Return outputs and states alone; decays of heads are those of all their tokens."""
    x = {n: t.to(dtype) for n, t in x.items()}
    if "decay" in x:
        x["decay"] = x["decay"].expand(1, x["v"].shape[1], 2)
    given = problem(kind, x, starts)
    out, last = {"recurrence": recurrence, "fused": fused}[run](given)
    return {"out": out, "last": last}


def of_one_pass(run: Any, kind: str, x: dict[str, Tensor]) -> tuple[dict[str, Tensor], list[str]]:
    """Return what a function finds by the kernels, and which of them ran."""
    names, launch = [], named.launch

    def record(kernel: Any, *given: Any) -> None:
        names.append(kernel.fn.__name__)
        launch(kernel, *given)

    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(named, "launch", record)
        patches.setitem(suffices.__globals__, "_DTYPES", (torch.float32,))  # for exact results
        return run("fused", kind, x, torch.float32, STARTS), names


@pytest.mark.xdist_group("interpreted")
@pytest.mark.parametrize("back", [False, True])
def test_states_are_joined_from_part_to_part(interpreted, back):
    """Of four parts the second one's last state keeps nothing of the state before it."""
    random = torch.Generator().manual_seed(3)
    turns, added = (torch.randn(4, 2, 1, 16, 16, generator=random) for _ in range(2))
    turns[1, 0], reaches = 0.0, torch.ones(4, 2, 1, dtype=torch.int32)
    reaches[1, 0] = 0
    first = torch.randn(2, 1, 16, 16, generator=random)
    exact, state = torch.empty_like(added), first
    for part in reversed(range(4)) if back else range(4):
        exact[part] = state
        turn = turns[part].mT if back else turns[part]
        state = turn @ state + added[part]
    got = interpreted(joined, turns, added, reaches, first, back)
    assert_close({"states": got}, {"states": exact}, 1e-5)


def joined(turns: Tensor, added: Tensor, reaches: Tensor, first: Tensor, back: bool) -> Tensor:
    states = torch.empty_like(added)
    join[1, 1, 8](turns, added, reaches, first, states, 1, 2, 16, 16, 16, 16, 16, back)
    return states


def in_two_or_four_parts(kind: str, x: dict[str, Tensor], starts: list[int]) -> dict[str, Tensor]:
    with pytest.MonkeyPatch.context() as patches:
        strong = x["decay"].numel() > 0 and x["decay"].min() < -0.5
        parts = 2 if strong else 4
        patches.setitem(fused.__globals__, "parts_of", lambda *_: parts)
        return gradients("fused", kind, x, torch.float32, starts)


def test_sequences_are_cut_where_few_programs_have_many_chunks():
    def parts(heads: int, chunks: int) -> int:
        shape = Shape(128, 128, heads, 1, False, KINDS["gdn"].rule, torch.bfloat16)
        return parts_of(shape, (9, 0), 1, chunks, 132)

    assert [parts(heads, 512) for heads in (8, 16, 32, 64, 96, 128)] == [16, 8, 4, 2, 1, 1]
    assert [parts(8, chunks) for chunks in (63, 64, 128)] == [1, 2, 4]


@pytest.mark.xdist_group("interpreted")
@pytest.mark.parametrize("kind", ["rwkv7", pytest.param("kda", marks=pytest.mark.slow)])
def test_gradients_in_bfloat16_are_as_exact_as_those_of_the_recurrence(
    interpreted, kind, one_thread
):
    # decays' gradients are small differences of what tokens give and take
    x = drawn(kind, 1, 128, 64, 64, strength=0.6)
    x = {n: t.bfloat16().double() for n, t in x.items()}
    exact = gradients("recurrence", kind, x, torch.float64)
    naive = gradients("rounded recurrence", kind, x, torch.bfloat16)
    got = interpreted(gradients_in_bfloat16, kind, x)

    def errors(found: dict[str, Tensor]) -> dict[str, float]:
        return {n: float((found[n].double() - e).norm() / e.norm()) for n, e in exact.items()}

    assert errors(got)["decay"] <= errors(naive)["decay"]
    assert max(errors(got).values()) <= max(errors(naive).values())


def gradients_in_bfloat16(kind: str, x: dict[str, Tensor]) -> dict[str, Tensor]:
    """Run the kernels with bfloat16 as a GPU computes with it."""
    with pytest.MonkeyPatch.context() as patches:
        interpreted_bfloat16.install(patches)
        return gradients("fused", kind, x, torch.bfloat16)


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_continues_a_sequence_token_by_token(kind, one_thread):
    x = drawn(kind, tokens=5)
    whole = linear_attention(kind=kind, **x)
    state, outs = x.pop("state"), []
    for t in range(5):
        token = {n: tensor[:, t : t + 1] for n, tensor in x.items()}
        step = linear_attention(kind=kind, state=state, **token)
        state = step.state
        outs.append(step.out)
    torch.testing.assert_close(torch.cat(outs, 1), whole.out, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(state, whole.state, rtol=1e-10, atol=1e-10)


def test_no_tokens_leave_the_state_as_it_was():
    x = drawn("gdn", tokens=0)
    found = linear_attention(kind="gdn", **x)
    assert found.out.shape == (2, 0, 2, 12)
    torch.testing.assert_close(found.state, x["state"])


def largest_error(found: dict[str, Tensor], exact: dict[str, Tensor]) -> float:
    return max(float((found[n].double() - e).norm() / e.norm()) for n, e in exact.items())


@pytest.mark.parametrize(
    "size", [100, *(pytest.param(s, marks=pytest.mark.slow) for s in (64, 256))]
)
@pytest.mark.parametrize("kind", KINDS)
def test_strong_decays_in_bfloat16_are_at_least_as_exact_as_in_the_recurrence(
    kind, size, one_thread
):
    x = drawn(kind, 1, 130, size, size, strength=9.9)
    x = {n: t.bfloat16().double() for n, t in x.items()}
    exact = gradients("recurrence", kind, x, torch.float64)
    naive = gradients("rounded recurrence", kind, x, torch.bfloat16)
    got = gradients("chunked", kind, x, torch.bfloat16)
    assert got["out"].dtype == torch.bfloat16
    assert largest_error(got, exact) <= largest_error(naive, exact)
    assert largest_error(got, {"out": exact["out"]}) <= largest_error(naive, {"out": exact["out"]})


@pytest.mark.slow
@pytest.mark.xdist_group("interpreted")
@pytest.mark.parametrize("size", [64, 100])
@pytest.mark.parametrize("kind", KINDS)
def test_the_kernels_are_as_exact_at_strong_decays_as_the_recurrence(
    interpreted, kind, size, one_thread
):
    """The outputs are, and of outputs, states and gradients the worst."""
    x = drawn(kind, 1, 70, size, size, strength=9.9)
    x = {n: t.bfloat16().double() for n, t in x.items()}
    exact = gradients("recurrence", kind, x, torch.float64)
    naive = gradients("rounded recurrence", kind, x, torch.bfloat16)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYTHONWARNINGS", "ignore")  # factors that are masked may overflow
        got = interpreted(gradients_in_bfloat16, kind, x)
    assert largest_error(got, exact) <= largest_error(naive, exact)
    assert largest_error(got, {"out": exact["out"]}) <= largest_error(naive, {"out": exact["out"]})


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_million_tokens_are_as_exact_as_the_recurrence(one_thread):
    tokens, tail = 2**20, 3000
    x = {n: t.bfloat16() for n, t in drawn("gdn", 1, tokens, strength=0.05).items()}
    got = linear_attention(kind="gdn", **x).out[:, -500:]
    # what came before has decayed by a factor of about e^-60
    end = {n: t[:, -tail:] for n, t in x.items() if n != "state"} | {"state": x["state"]}
    exact, naive = (
        recurrence(problem("gdn", end).to(dtype))[0][:, -500:].double()
        for dtype in (torch.float64, torch.bfloat16)
    )
    assert (got.double() - exact).norm() <= (naive - exact).norm()


def test_the_backend_is_named_and_never_another():
    x = drawn("gdn")
    assert linear_attention(kind="gdn", **x).backend == "torch"
    assert "float16, bfloat16 and float32" in str(choose(problem("gdn", x)).refusals["triton"])
    with pytest.raises(ValueError, match="needs a CUDA GPU"):
        linear_attention(kind="gdn", backend="triton", **{n: t.float() for n, t in x.items()})
    with pytest.raises(ValueError, match="no backend is called 'cuda'"):
        linear_attention(kind="gdn", backend="cuda", **x)
    assert linear_attention(kind="gdn", backend="reference", **x).backend == "reference"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "mamba"}, "no kind is called 'mamba'"),
        ({"beta": None}, "gdn needs beta"),
        ({"a": torch.zeros(1)}, "gdn does not take a"),
        ({"decay": torch.zeros(2, 70, 2, 8)}, r"decay of gdn must be \[2, 70, 2\]"),
        ({"q": torch.zeros(2, 70, 8)}, r"must be \[B,T,H,D\]"),
        ({"v": torch.zeros(2, 70, 3, 12, dtype=torch.float32)}, "one floating dtype"),
        ({"state": torch.zeros(1, 2, 8, 12)}, "state must be"),
        ({"starts": torch.tensor([0, 70])}, "in a batch of 1"),
        ({"scale": float("nan")}, "scale must be a finite number"),
    ],
)
def test_what_does_not_fit_is_explained(change, message):
    with pytest.raises(ValueError, match=message):
        linear_attention(**{"kind": "gdn", **drawn("gdn"), **change})


def test_it_is_a_name_of_accel():
    assert accel.linear_attention is linear_attention


@pytest.mark.matrix
@pytest.mark.timeout(600)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("size", [64, 128, 256])
@pytest.mark.parametrize("kind", KINDS)
def test_kernels_compile_and_loops_over_states_fit_the_shared_memory_of_every_target(
    kind, size, target
):
    rule = KINDS[kind]
    shape = Shape(size, size, 4, 1, rule.decay == "channel", rule.rule, torch.bfloat16)
    given = {n: t.bfloat16() for n, t in drawn(kind, 1, 128, size, size).items()}
    given |= {n: given[n].float() for n in ("decay", "state") if n in given}

    def run() -> None:
        leaves = {n: t.requires_grad_() for n, t in given.items()}
        out, last = fused(problem(kind, leaves, None))
        torch.autograd.grad(out.float().sum() + last.sum(), list(leaves.values()))

    for name, call in launched(run):
        asked = call
        if "scan" in name or "state" in name:
            columns, options = passing(shape, divmod(target, 10), 1)
            constants = {**call.constants, "BLOCK": columns}
            asked = dataclasses.replace(call, constants=constants, options=options)
        found = compile_kernel(asked, target)
        assert found.metadata.shared <= SHARED_KIB[target] * 1024, name


def test_as_many_chunks_are_in_flight_as_there_is_room():
    def stages(kind: str, size: int, capability: tuple[int, int], dtype: torch.dtype) -> int:
        rule = KINDS[kind]
        shape = Shape(size, size, 4, 1, rule.decay == "channel", rule.rule, dtype)
        return passing(shape, capability, 1)[1]["num_stages"]

    bf16 = torch.bfloat16
    assert [stages("gdn", size, (9, 0), bf16) for size in (64, 100, 128, 256)] == [3, 3, 3, 2]
    assert [stages("rwkv7", size, (9, 0), bf16) for size in (64, 128, 256)] == [3, 2, 2]
    assert [stages("rwkv7", size, (8, 0), bf16) for size in (64, 128, 256)] == [3, 2, 1]
    assert [stages("gdn", size, (8, 6), bf16) for size in (64, 128, 256)] == [2, 2, 1]
    assert stages("gdn", 128, (9, 0), torch.float32) == 1
    assert stages("ssd", 64, (9, 0), torch.float32) == 3


def test_whole_states_are_passed_on_only_by_enough_programs():
    rule = KINDS["gdn"]
    shape = Shape(128, 128, 16, 1, False, rule.rule, torch.bfloat16)
    assert passing(shape, (9, 0), 4)[0] == 64
    assert passing(shape, (9, 0), 6)[0] == 128


@pytest.mark.matrix
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("size", [16, 64, 100, 128])
def test_one_pass_fits_the_shared_memory_of_every_target(size, target):
    shape = Shape(size, size, 4, 1, False, KINDS["retention"].rule, torch.bfloat16)
    x = {n: t.bfloat16() for n, t in drawn("retention", 1, 128, size, size).items()}
    x |= {n: x[n].repeat(1, 1, 2, 1).requires_grad_() for n in ("q", "k")}
    x["state"] = x["state"].float()

    def run() -> None:
        out, last = fused(problem("retention", x))
        torch.autograd.grad(out.float().sum() + last.sum(), [x["q"], x["k"]])

    for (name, call), passes in zip(launched(run), (1, 3), strict=True):
        for states in (4, 400):
            columns, options = single(shape, divmod(target, 10), passes * states, 132)
            constants = {**call.constants, "BLOCK": columns}
            asked = dataclasses.replace(call, constants=constants, options=options)
            found = compile_kernel(asked, target)
            assert found.metadata.shared <= SHARED_KIB[target] * 1024, (name, states)


def launched_in_two_parts(kind: str, size: int, monkeypatch) -> list[tuple[str, KernelCall]]:
    """Return what is launched on Hopper, forward and backward, for a sequence in two parts."""
    for name, told in {"parts_of": lambda *_: 2, "capability_of": lambda _: (9, 0)}.items():
        monkeypatch.setitem(fused.__globals__, name, told)
    given = {n: t.bfloat16() for n, t in drawn(kind, 1, 256, size, size).items()}
    given |= {n: given[n].float() for n in ("decay", "state")}
    leaves = {n: t.requires_grad_() for n, t in given.items()}

    def run() -> None:
        out, last = fused(problem(kind, leaves, None))
        torch.autograd.grad(out.float().sum() + last.sum(), list(leaves.values()))

    return list(launched(run))


@pytest.mark.matrix
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("size", [64, 100, 128, 256])
def test_what_joins_parts_keeps_its_registers(size, target, monkeypatch):
    joins = [c for name, c in launched_in_two_parts("ssd", size, monkeypatch) if "join" in name]
    assert [call.constants["BACK"] for call in joins] == [False, True]
    for call in joins:
        asks = needs(compile_kernel(call, target))
        assert asks.spilled <= 64
        assert asks.shared <= SHARED_KIB[target] * 1024


@pytest.mark.matrix
@pytest.mark.parametrize("kind", ["gdn", "ssd"])
def test_a_multiprocessor_runs_two_programs_that_pass_on_parts(kind, monkeypatch):
    every = launched_in_two_parts(kind, 128, monkeypatch)
    calls = [call for name, call in every if "scan" in name or "state" in name]
    assert len(calls) == 5
    for call in calls:
        assert call.options == {"num_warps": 4, "num_stages": 2}
        assert 2 * (compile_kernel(call, 90).metadata.shared + 1024) <= 228 * 1024
