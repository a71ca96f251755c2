"""The shapes on which `auto` is judged are in no table from which it could know them."""

import pytest
import torch

from gpudeck.accel.attention import table
from gpudeck.accel.attention.problem import Problem
from tests.benchmarks.attention_shapes import GPUS, SHAPES

DIRECTIONS = ("forward", "backward")


@pytest.fixture(autouse=True)
def only_shipped(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUDECK_HOME", str(tmp_path))
    forget()
    yield
    forget()


def forget():
    table._read_all.cache_clear()
    table.rows_of.cache_clear()


def found_in_a_table():
    """Return each shape that a row of a table decides on its own, as dispatch would find it."""
    return [
        (shape.name, row.gpu, row.seq_q, row.seq_k, row.head_dim)
        for shape in SHAPES
        for gpu in GPUS
        for direction in DIRECTIONS
        for row in table.rows_of(gpu, direction, "bfloat16", shape.head_dim, shape.causal)
        if row.place == shape.place
    ]


def test_no_shipped_table_contains_a_shape_of_the_second_grid():
    assert found_in_a_table() == []


def test_a_table_that_does_is_noticed(tmp_path, monkeypatch):
    shape = SHAPES[0]
    row = table.read(next(table.SHIPPED.glob("h100.csv")))[0]
    given = {
        name: getattr(shape, name)
        for name in ("batch", "heads", "kv_heads", "seq_q", "seq_k", "head_dim", "causal")
    }
    monkeypatch.setattr(table, "SHIPPED", tmp_path)
    table.write([table.msgspec.structs.replace(row, **given)], tmp_path / "h100.csv")
    forget()
    assert {name for name, *_ in found_in_a_table()} == {shape.name}


def test_the_grid_has_what_users_have():
    assert len(SHAPES) == len({shape.name for shape in SHAPES}) == 60
    assert all(shape.source for shape in SHAPES)
    assert {shape.head_dim for shape in SHAPES} >= {32, 40, 64, 72, 80, 96, 128, 160, 192, 256}
    assert {(s.head_dim, s.value_dim) for s in SHAPES if s.value_dim} == {(192, 128), (576, 512)}
    assert sum(shape.heads != shape.kv_heads for shape in SHAPES) >= 10
    assert sum(shape.seq_q % 128 != 0 for shape in SHAPES) > len(SHAPES) / 2
    for shape in SHAPES:
        problem = shape.problem(torch.device("cuda", 0))
        assert isinstance(problem, Problem) and shape.flops > 0
        assert not shape.lengths or problem.seq_q == max(shape.lengths)


def test_the_first_shapes_are_a_sample_of_all_groups():
    groups = {shape.group for shape in SHAPES}
    assert {shape.group for shape in SHAPES[: 2 * len(groups)]} == groups
