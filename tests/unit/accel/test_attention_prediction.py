"""The predictor: fitted to the tables that ship, monotone where physics is, silent from afar."""

import dataclasses
import math

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpudeck.accel.attention import choose, dispatch, prediction, table
from gpudeck.accel.attention.prediction import Geometry, expect, place, predict, terms
from gpudeck.accel.attention.problem import Problem
from tests.benchmarks import attention_fit

H200 = "NVIDIA H200"
CAUSAL = Geometry(1, 32, 8, 3000, 3000, 128, right=0)


def rows():
    return [
        row
        for file in sorted(table.SHIPPED.glob("*.csv"))
        for row in table.read(file)
        if row.gpu in attention_fit.GPUS
    ]


@pytest.mark.parametrize("direction", attention_fit.DIRECTIONS)
def test_the_shipped_coefficients_are_those_of_the_shipped_tables(direction):
    """After new measurements: python -m tests.benchmarks.attention_fit --write."""
    fits = attention_fit.fitted([r for r in rows() if r.direction == direction])
    shipped = prediction.coefficients().directions[direction]
    assert shipped.shapes == fits.shapes
    for old, new in zip(shipped.fitted, fits.fitted, strict=True):
        assert old.backend == new.backend
        np.testing.assert_allclose(old.coefficients, new.coefficients, rtol=1e-3, atol=1e-6)
        weights = [np.array(f.weights, float) for f in (old, new)]
        np.testing.assert_allclose(*weights, atol=1e-3)


def test_no_coefficient_is_negative_and_no_shape_of_the_zoo_was_fitted():
    from tests.benchmarks.attention_shapes import SHAPES

    for fits in prediction.coefficients().directions.values():
        assert 0 < fits.regret < 0.1
        assert all(c >= 0 for f in fits.fitted for c in f.coefficients)
        for shape in SHAPES:
            sizes = (shape.batch, shape.heads, shape.kv_heads, shape.seq_q, shape.seq_k)
            sizes = (*sizes, shape.head_dim)
            assert sizes not in {msgspec.structs.astuple(g)[:6] for g in fits.shapes}


@given(
    heads=st.integers(1, 64),
    seq=st.integers(64, 16384),
    d=st.sampled_from([40, 64, 80, 96, 128, 192, 256]),
    causal=st.booleans(),
)
def test_more_work_has_larger_terms(heads, seq, d, causal):
    g = Geometry(1, heads, heads, seq, seq, d, right=0 if causal else None)
    for more in (
        msgspec.structs.replace(g, batch=2),
        msgspec.structs.replace(g, right=None),
        msgspec.structs.replace(g, seq_k=seq + 512, right=None),
        msgspec.structs.replace(g, seq_q=seq + 128, seq_k=seq + 128),
    ):
        assert all(b >= a for a, b in zip(terms(g), terms(more), strict=True))
    assert math.dist(place(g), place(msgspec.structs.replace(g, bias=True))) == 0.5


def test_a_window_hides_tiles_and_grouped_heads_share_bytes():
    whole, local = terms(CAUSAL), terms(msgspec.structs.replace(CAUSAL, left=255))
    assert sum(local) < 0.5 * sum(whole)
    assert sum(whole) < sum(terms(msgspec.structs.replace(CAUSAL, kv_heads=32)))


def test_a_measured_shape_is_predicted_as_measured_and_a_far_one_not_at_all():
    row = max(rows(), key=lambda r: (r.gpu == H200, r.direction == "forward", r.microseconds))
    told = expect([row.gpu], "forward", attention_fit.geometry(row))[row.backend]
    assert told == pytest.approx(row.microseconds, rel=0.15)
    assert expect(["NVIDIA A100"], "forward", CAUSAL) == {}
    fits = prediction.coefficients().directions["forward"]
    assert "decoding" in predict(fits, msgspec.structs.replace(CAUSAL, seq_q=1))
    assert predict(fits, msgspec.structs.replace(CAUSAL, seq_q=1, seq_k=1 << 20)) == {}
    assert predict(fits, Geometry(1, 1, 1, 512, 1 << 20, 64)) == {}


@pytest.mark.parametrize("empty", ["batch", "seq_q", "seq_k"])
def test_empty_problems_are_predicted_too(empty):
    g = msgspec.structs.replace(CAUSAL, **{empty: 0})
    for fits in prediction.coefficients().directions.values():
        assert all(us >= 0 for us in predict(fits, g).values())


PEAK = 989.4
"""The dense bfloat16 TFLOP/s of the tensor cores of an H100 and an H200."""


@given(
    batch=st.integers(1, 64),
    heads=st.integers(1, 128),
    seq_q=st.integers(1, 1 << 17),
    seq_k=st.integers(1, 1 << 17),
    d=st.sampled_from([32, 40, 64, 80, 96, 128, 192, 256]),
    causal=st.booleans(),
)
def test_nothing_is_predicted_to_be_faster_than_the_gpu(batch, heads, seq_q, seq_k, d, causal):
    g = Geometry(batch, heads, heads, seq_q, seq_k, d, right=0 if causal else None)
    seen = seq_q * seq_k
    if causal:  # the last query sees all keys, each one before it one fewer
        seen = sum(range(max(0, seq_k - seq_q) + 1, seq_k + 1))
    for direction, products in (("forward", 2), ("backward", 5)):
        flops = 2 * products * batch * heads * seen * d
        for name, us in predict(prediction.coefficients().directions[direction], g).items():
            assert flops / us / 1e6 < PEAK, name


@pytest.mark.parametrize("direction", attention_fit.DIRECTIONS)
def test_long_sequences_are_computed_at_rates_that_were_measured(direction):
    """The tiles of distributed attention were once given to a kernel that takes twice as long."""
    fits = prediction.coefficients().directions[direction]
    measured = predict(fits, Geometry(1, 16, 16, 8192, 8192, 128))
    longer = predict(fits, Geometry(1, 32, 8, 8192, 65536, 128))
    for name, us in longer.items():
        assert us > 2 * 8 * 0.75 * measured[name], name  # twice the heads, eight times the keys
    assert min(longer, key=longer.__getitem__) not in ("triton", "flash")


def test_a_kernel_with_tiles_of_powers_of_two_computes_a_head_of_80_as_one_of_128():
    fits = prediction.coefficients().directions["forward"]
    odd, even = (predict(fits, msgspec.structs.replace(CAUSAL, head_dim=dim)) for dim in (80, 128))
    assert odd["triton"] == even["triton"] and odd["cudnn"] < even["cudnn"]


def test_a_kernel_with_few_tile_sizes_computes_smaller_heads_as_the_next_larger_ones():
    fits = prediction.coefficients().directions["forward"]
    for backend, narrow, wide in (("hopper", 72, 96), ("cudnn", 112, 128), ("flash", 104, 128)):
        odd, even = (predict(fits, msgspec.structs.replace(CAUSAL, head_dim=d))[backend]
                     for d in (narrow, wide))  # fmt: skip
        assert odd == even, backend


def test_no_table_holds_times_of_the_host():
    """A table once had eager calls of short sequences: launching them takes 28 to 150 us."""
    able = [r for r in rows() if r.backend == "triton" and r.head_dim == 64 and r.seq_q == r.seq_k]
    small = [r for r in able if r.batch * r.heads * r.seq_q <= 16384 and r.seq_q <= 512]
    assert len(small) > 5 and max(r.microseconds for r in small) < 25


def test_dispatch_goes_by_the_prediction_and_says_so(monkeypatch, tmp_path):
    monkeypatch.setenv("GPUDECK_HOME", str(tmp_path))
    monkeypatch.setattr(dispatch, "_gpu", lambda problem: H200)
    for cache in (choose, table._read_all, table.rows_of):
        cache.cache_clear()
    p = Problem(1, 32, 8, 3000, 3000, 128, torch.bfloat16, torch.device("cuda"), (9, 0), 0.1,
                right=0)  # fmt: skip
    choice = choose(p)
    told = expect([H200], "forward", CAUSAL)
    assert choice.basis == "predicted" and not choice.is_measured
    able = [c.backend for c in choice.candidates if c.refusal is None and c.backend in told]
    assert choice.backend == min(able, key=told.__getitem__)
    assert "auto: predicted from measurements on NVIDIA H200" in str(choice.reason)
    assert choice.tflops == pytest.approx(p.flops / told[choice.backend] / 1e6)
    back, us = choose(p, direction="backward"), expect([H200], "backward", CAUSAL)
    assert back.tflops == pytest.approx(2.5 * p.flops / us[back.backend] / 1e6)
    assert choose(dataclasses.replace(p, seq_q=1, seq_k=1 << 20, right=None)).basis == "order"
    biased = choose(dataclasses.replace(p, bias="float"))
    assert (biased.basis, biased.backend, biased.tflops) == ("order", "triton", None)
    assert {"triton", "hopper", "cudnn"} <= set(
        dispatch.contenders(dataclasses.replace(p, bias="float"), "forward")
    )
    # the decoding kernel is measured near a single token, but in the order of long keys only
    token = dataclasses.replace(p, batch=1, heads=2, kv_heads=2, seq_q=1, seq_k=1, head_dim=64)
    assert "decoding" in dispatch.contenders(token, "forward")
    choose.cache_clear()
    table.forget()


@pytest.mark.parametrize("predicted", [True, False])
def test_a_sink_is_left_to_backends_that_add_it_before_they_round(monkeypatch, predicted):
    """The others' output is scaled afterwards, which no measured time holds."""
    monkeypatch.setattr(dispatch, "_gpu", lambda problem: H200)
    monkeypatch.setattr(dispatch, "fail_to_load", lambda backend: None)
    us = {"cudnn": 1.0, "flash": 2.0, "triton": 3.0, "hopper": 4.0}
    monkeypatch.setattr(prediction, "expect", lambda *_: us if predicted else {})
    monkeypatch.setattr(table, "expect", lambda *_: {name: 1.0 / t for name, t in us.items()})
    p = Problem(3, 6, 6, 1000, 1000, 64, torch.bfloat16, torch.device("cuda"), (9, 0), 0.1,
                right=0, sink=True)  # fmt: skip
    choose.cache_clear()
    assert choose(p).backend == "triton" and choose(p).basis == "predicted"
    assert choose(p, direction="backward").backend == "cudnn"
    assert choose(dataclasses.replace(p, sink=False)).backend == "cudnn"
    choose.cache_clear()
