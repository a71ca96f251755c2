"""`compare` and `validate` over operations other than attention."""

from __future__ import annotations

import pytest

from gpudeck.accel.result import read
from gpudeck.accel.workloads import compare, operations, validate
from gpudeck.accel.workloads.harness import serve

OTHERS = sorted({*operations.OPERATIONS} - {"gemm"})


def result(tmp_path, monkeypatch, name, work, *argv):
    file = tmp_path / "result.json"
    monkeypatch.setenv("GPUDECK_RESULT", str(file))
    status = serve(name, work, [*argv])
    return status, read(file.read_bytes()) if file.exists() else None


every_operation = pytest.mark.parametrize(
    "operation", ["gemm", *(pytest.param(o, marks=pytest.mark.slow) for o in OTHERS)]
)


@every_operation
def test_every_contender_is_measured_or_says_why_not(operation, tmp_path, monkeypatch):
    status, r = result(
        tmp_path, monkeypatch, "compare", compare.work, f"--operation={operation}", "--sizes=16,32",
        "--seconds=0.1",
    )  # fmt: skip
    assert (status, str(r.verdict)) == (0, "pass")
    names = operations.contenders(operation)
    assert [c.contender for c in r.cells] == [*names, *names]
    assert {c.operation for c in r.cells} == {operation}
    assert len({c.sizes for c in r.cells}) == 2
    for cell in r.cells:
        if cell.backend:
            assert cell.passed and cell.tflops > 0 and cell.timing.count and cell.moved
        else:
            assert "cannot do this" in str(cell.note) and not cell.tflops
    assert sum(bool(c.twin) for c in r.cells) == 2


def test_kinds_of_linear_attention_are_compared_side_by_side(tmp_path, monkeypatch):
    argv = ("--operation=linear_attention", "--sizes=16", "--kinds=ssd,kda", "--seconds=0.1")
    status, r = result(tmp_path, monkeypatch, "compare", compare.work, *argv)
    assert (status, str(r.verdict)) == (0, "pass")
    kinds = [str(c.sizes).split(",")[0] for c in r.cells if c.timing and c.timing.count]
    measured = [c.contender for c in r.cells if c.backend]
    assert set(kinds) == {"ssd", "kda"} and {"auto", "torch"} <= set(measured)


def test_types_of_products_are_compared_side_by_side(tmp_path, monkeypatch):
    argv = ("--operation=gemm", "--sizes=128", "--dtypes=float32,fp8-row", "--seconds=0.1")
    status, r = result(tmp_path, monkeypatch, "compare", compare.work, *argv)
    assert (status, str(r.verdict)) == (0, "pass")
    measured = {(c.dtype, str(c.sizes)) for c in r.cells if c.timing.count}
    assert measured == {("float32", "128 x 128 x 128"), ("fp8", "128 x 128 x 128, scales by row")}


def test_trials_of_types_with_equal_sizes_are_counted_apart(tmp_path, monkeypatch):
    argv = ("--operation=gemm", "--sizes=16", "--dtypes=float32,bfloat16", "--trials=2")
    _, r = result(tmp_path, monkeypatch, "validate", validate.work, *argv)
    assert [(c.dtype, c.trials.count) for c in r.cells] == [("float32", 2), ("bfloat16", 2)]


@every_operation
def test_trials_draw_fresh_inputs_and_are_repeatable(operation, tmp_path, monkeypatch):
    argv = (f"--operation={operation}", "--sizes=16", "--trials=3", "--seed=5")
    status, r = result(tmp_path, monkeypatch, "validate", validate.work, *argv)
    assert (status, str(r.verdict), len(r.cells)) == (0, "pass", 1)
    found = r.cells[0].trials
    assert (found.count, found.failed) == (3, 0)
    assert 5 <= found.worst_seed < 8
    alone = [*argv[:2], "--trials=1", f"--seed={found.worst_seed}"]
    _, again = result(tmp_path, monkeypatch, "validate", validate.work, *alone)
    assert again.cells[0].trials.worst == pytest.approx(found.worst)


def test_what_an_operation_does_not_have_is_refused(tmp_path, monkeypatch, capsys):
    status, r = result(
        tmp_path, monkeypatch, "validate", validate.work, "--operation=gemm", "--backend=flash"
    )
    assert (status, r) == (2, None)
    assert "gemm has no 'flash'. It has: auto, cublas, hopper, triton, torch" in (
        capsys.readouterr().err
    )


def test_a_wrong_answer_fails_the_comparison(tmp_path, monkeypatch):
    from gpudeck.accel.workloads import gemm

    right = gemm.compare
    monkeypatch.setattr(gemm, "compare", lambda c, x: right(c * 1.01, x))
    status, r = result(
        tmp_path, monkeypatch, "compare", compare.work, "--operation=gemm", "--sizes=32",
        "--seconds=0.1",
    )  # fmt: skip
    assert status == 1
    assert str(r.verdict).startswith("fail: ")
    assert not any(c.passed for c in r.cells)
