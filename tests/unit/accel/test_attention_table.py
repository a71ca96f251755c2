"""The measured table: what is kept, what replaces what, and how it decides."""

import stat

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpudeck.accel.attention import choose, dispatch, prediction, table
from gpudeck.accel.attention.problem import Problem
from gpudeck.accel.attention.table import Row, expect, place

H100 = "NVIDIA H100 80GB HBM3"


def row(backend="hopper", seq=2048, tflops=600.0, **changes):
    values = {
        "gpu": H100,
        "direction": "forward",
        "dtype": "bfloat16",
        "head_dim": 128,
        "causal": False,
        "batch": 16384 // seq,
        "heads": 16,
        "kv_heads": 16,
        "seq_q": seq,
        "seq_k": seq,
        "backend": backend,
        "microseconds": 100.0,
        "low": 99.0,
        "high": 101.0,
        "tflops": tflops,
        "versions": "torch 2.11.0",
        "date": "2026-11-21",
    }
    return Row(**{**values, **changes})


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A state folder of its own, no shipped tables, and a GPU called H100."""
    monkeypatch.setenv("GPUDECK_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(table, "SHIPPED", tmp_path / "shipped")
    monkeypatch.setattr(dispatch, "_gpu", lambda problem: H100)
    nothing = prediction.Coefficients((), {})
    monkeypatch.setattr(prediction, "coefficients", lambda: nothing)
    forget()
    yield tmp_path
    forget()


def forget():
    table.forget()
    choose.cache_clear()


def problem(**changes):
    asked = {
        "batch": 8,
        "heads": 16,
        "kv_heads": 16,
        "seq_q": 2048,
        "seq_k": 2048,
        "head_dim": 128,
        "dtype": torch.bfloat16,
    }
    return Problem(
        **{
            **asked,
            "device": torch.device("cuda", 0),
            "capability": (9, 0),
            "scale": 0.1,
            **changes,
        }
    )


def test_a_table_is_read_as_it_was_written_for_its_owner_alone(own):
    rows = [row(), row("cudnn", tflops=1 / 3, causal=True)]
    file = table.record(rows)
    assert table.read(file) == rows
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and [
        f.name for f in file.parent.iterdir()
    ] == [file.name]


def test_a_shape_measured_again_is_replaced_and_others_stay(own):
    table.record([row(), row("cudnn")])
    table.record([row(tflops=650.0), row(seq=512)])
    assert sorted((r.backend, r.seq_q, r.tflops) for r in table.read(table.user_file())) == [
        ("cudnn", 2048, 600.0),
        ("hopper", 512, 600.0),
        ("hopper", 2048, 650.0),
    ]


def test_the_users_own_measurements_count_more_than_the_shipped(own):
    table.write(
        [row("cudnn", tflops=700.0), row("hopper", tflops=600.0)], own / "shipped" / "h100.csv"
    )
    forget()
    assert choose(problem()).backend == "cudnn"
    table.record([row("cudnn", tflops=500.0), row("hopper", tflops=600.0)])
    choose.cache_clear()
    choice = choose(problem())
    assert choice.backend == "hopper" and choice.tflops == 600.0
    assert str(choice.reason) == f"auto: measured fastest on {H100}, 600 TFLOP/s, cudnn 500"
    assert "cudnn      500 TFLOP/s measured" in str(choice)


@pytest.mark.parametrize("nearest_last", [True, False])
def test_of_two_measured_shapes_at_one_place_the_one_with_the_nearest_heads_decides(
    nearest_last, own
):
    few, many = row(seq=8192, tflops=500.0, batch=1), row(seq=8192, tflops=650.0)
    other = row("cudnn", seq=8192, tflops=600.0)
    table.record([few, other, many] if nearest_last else [many, other, few])
    assert choose(problem(batch=4, seq_q=8192, seq_k=8192)).backend == "hopper"
    assert choose(problem(batch=1, seq_q=8192, seq_k=8192)).backend == "cudnn"


def test_only_backends_that_can_are_taken_however_fast_the_others_are(own):
    table.record(
        [row("fa4", tflops=900.0), row("cudnn", tflops=500.0), row("triton", tflops=300.0)]
    )
    assert choose(problem()).backend == "cudnn"
    assert choose(problem(softcap=2.0)).backend == "triton"


def test_head_sizes_between_take_the_next_measured_one_and_other_gpus_nothing(own):
    table.record(
        [
            row("cudnn", head_dim=64, tflops=9.0),
            row("flash", head_dim=128),
            row("cudnn", head_dim=128, tflops=1.0),
        ]
    )
    assert choose(problem(head_dim=80)).backend == "flash"
    assert choose(problem(head_dim=160)).tflops is None
    assert table.rows_of("NVIDIA A100", "forward", "bfloat16", 64, False) == ()


def test_a_gpu_like_one_that_was_measured_goes_by_its_rows_and_says_so(own, monkeypatch):
    table.record(
        [
            row("cudnn", gpu="NVIDIA H200", tflops=500.0),
            row("flash", gpu="NVIDIA H200", tflops=400.0),
        ]
    )
    choice = choose(problem())
    assert choice.backend == "cudnn" and "predicted from measurements on NVIDIA H200, 500" in str(
        choice.reason
    )
    table.record([row("flash", tflops=300.0), row("cudnn", tflops=200.0)])
    forget()  # a program that runs keeps its choices
    assert f"measured fastest on {H100}, 300" in str(choose(problem()).reason)


def test_one_shape_measured_here_leaves_the_others_to_the_gpu_that_is_alike(own):
    alike = {"gpu": "NVIDIA H200", "seq": 512}
    table.record(
        [
            row("cudnn", tflops=500.0),
            row("hopper", tflops=400.0),
            row("cudnn", tflops=90.0, **alike),
            row("flash", tflops=80.0, **alike),
        ]
    )
    assert (
        str(choose(problem(batch=32, seq_q=512, seq_k=512)).reason)
        == "auto: predicted from measurements on NVIDIA H200, 90 TFLOP/s, flash 80"
    )
    assert (
        str(choose(problem()).reason)
        == f"auto: measured fastest on {H100}, 500 TFLOP/s, hopper 400"
    )
    half, wide = {"dtype": torch.float16}, {"head_dim": 80}
    table.record(
        [row("flash", tflops=70.0, dtype="float16"), row("flash", tflops=60.0, head_dim=96)]
    )
    forget()
    assert choose(problem(**half)).tflops == 70.0 and choose(problem(**wide)).tflops == 60.0
    for changed in (half, wide):
        assert (
            str(choose(problem(batch=32, seq_q=512, seq_k=512, **changed)).reason)
            == "auto: predicted from measurements on NVIDIA H200, 90 TFLOP/s, flash 80"
        )
    between = choose(problem(batch=16, seq_q=1024, seq_k=1024))
    assert f"predicted from measurements on {H100} and NVIDIA H200, " in str(between.reason)


def test_the_shipped_tables_can_be_read_and_compare_backends_at_every_shape():
    for file in table.SHIPPED.glob("*.csv"):
        shapes = {}
        for found in table.read(file):
            assert found.low <= found.microseconds <= found.high
            shapes.setdefault((found.kind, found.place, found.batch), set()).add(found.backend)
        assert shapes
        if file.stem.endswith("_shapes"):  # of kinds that some backends refuse
            assert all({"hopper", "triton"} <= backends for backends in shapes.values())
        else:
            assert len({frozenset(backends) for backends in shapes.values()}) == 1


def test_each_two_byte_type_has_rows_and_can_replace_the_other(own):
    table.record(
        [
            row("cudnn", tflops=500.0),
            row("flash", tflops=400.0),
            row("flash", dtype="float16", tflops=450.0),
        ]
    )
    assert choose(problem()).backend == "cudnn"
    assert choose(problem(dtype=torch.float16)).backend == "flash"
    assert choose(problem(dtype=torch.float32)).tflops is None
    table.record([row("fa4", head_dim=64, tflops=300.0), row("flash", head_dim=64, tflops=200.0)])
    assert {
        (r.dtype, r.head_dim) for r in table.rows_of(H100, "forward", "float16", 64, False)
    } == {("bfloat16", 64)}
    assert {
        (r.dtype, r.head_dim) for r in table.rows_of(H100, "forward", "float16", 80, False)
    } == {("float16", 128)}


@given(seq=st.integers(1, 2**20), heads=st.integers(1, 2**12))
def test_what_is_expected_lies_between_what_was_measured_near_by_and_nothing_is_said_from_afar(
    seq, heads
):
    rows = [
        row("a", seq=512, tflops=100.0),
        row("a", seq=8192, tflops=300.0),
        row("b", seq=512, tflops=200.0),
        row("b", seq=8192, tflops=250.0),
    ]
    at = place(heads, seq, seq)
    found = expect(rows, at)
    near = [
        r
        for r in rows
        if seq > 16 and all(abs(x - y) <= 2 for x, y in zip(r.place, at, strict=True))
    ]
    assert bool(found) == bool(near)
    if found:
        rates = [r.tflops for r in near]
        assert all(min(rates) * 0.3 <= rate <= max(rates) + 1e-9 for rate in found.values())


def test_a_measured_shape_decides_alone_and_one_backend_missing_there_is_not_guessed():
    rows = [
        row("a", seq=512, tflops=100.0),
        row("a", seq=8192, tflops=300.0),
        row("b", seq=512, tflops=200.0),
    ]
    assert expect(rows, rows[0].place) == {"a": 100.0, "b": 200.0}
    assert expect(rows, rows[1].place) == {"a": 300.0}
    assert set(expect(rows, place(64, 4096, 4096))) == {"a"}
    assert set(expect(rows, place(512, 600, 600))) == {"a", "b"}


def test_a_neighbour_counts_more_than_a_crowd_further_off():
    """At 640 the fastest at 512 is chosen, not the fastest from 1024 on."""
    far = [
        row(name, seq=seq, tflops=rate)
        for seq in (1024, 2048)
        for name, rate in (("cudnn", 600.0), ("hopper", 700.0))
    ]
    near = [row("cudnn", seq=512, tflops=490.0), row("hopper", seq=512, tflops=440.0)]
    found = expect([*near, *far], place(512, 560, 560))
    assert found["cudnn"] > found["hopper"]


def test_a_decoding_step_is_not_decided_by_prompts(own):
    table.record(
        [row("cudnn", seq=8192), row("hopper", seq=8192), row("triton", seq=8192, tflops=300.0)]
    )
    choice = choose(problem(batch=2, seq_q=1, seq_k=8192))
    assert choice.backend == "decoding" and choice.tflops is None


def test_a_users_row_replaces_that_backend_only(own):
    table.write(
        [row("cudnn", tflops=700.0), row("hopper", tflops=600.0)], own / "shipped" / "h100.csv"
    )
    table.record([row("cudnn", tflops=500.0)])
    assert choose(problem()).backend == "hopper"


def test_a_table_that_cannot_be_read_is_warned_of_and_the_shipped_ones_go_on(own):
    table.write([row("cudnn", tflops=700.0)], own / "shipped" / "h100.csv")
    table.user_file().parent.mkdir()
    table.user_file().write_text("nonsense\n1\n")
    forget()
    with pytest.warns(
        UserWarning,
        match=(
            r"goes by the tables that came with the program: .*attention\.csv, line 2.*`gpudeck run"
            r" tune`"
        ),
    ):
        assert choose(problem()).backend == "cudnn"
    assert choose(problem(), "flash").backend == "flash"
    assert expect([], place(1, 1, 1)) == {}


def test_a_spoiled_table_says_where_and_what_to_do(own):
    file = table.record([row()])
    file.write_text(file.read_text().replace("600.0", "fast"))
    with pytest.raises(
        ValueError,
        match=(
            r"attention\.csv, line 2: .*tflops.*\. Remove the file, or measure again with `gpudeck"
            r" run tune`"
        ),
    ):
        table.read(file)


def test_every_shipped_table_is_one_and_names_known_backends():
    from gpudeck.accel.attention import BACKENDS

    for file in table.SHIPPED.glob("*.csv"):
        rows = table.read(file)
        assert rows and {r.backend for r in rows} <= set(BACKENDS)
        assert all(r.low <= r.microseconds <= r.high and r.tflops > 0 for r in rows)
