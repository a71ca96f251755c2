"""Our kernels of attention, products and linear attention are searched as any other kernel is."""

import pytest
import torch

from gpudeck import accel
from gpudeck.accel.runtime import state_files
from gpudeck.accel.runtime.capability import find_device
from gpudeck.accel.search.api import OURS, problem_of, show_code, template_for
from gpudeck.accel.search.code import encode_codes
from gpudeck.accel.search.contest import Effort
from gpudeck.accel.search.draws import draw
from gpudeck.accel.search.engine import Budget
from gpudeck.accel.search.journal import Entry, Journal, lessons
from gpudeck.accel.search.measures import compare
from gpudeck.accel.search.recurrence_tasks import activated
from gpudeck.accel.search.resources import code_of, compiled_resources
from gpudeck.accel.search.tasks import TASKS, task_of
from gpudeck.accel.search.templates import ATTENTION
from gpudeck.accel.search.worker import load
from gpudeck.app.cli.main import main

SIZES = {
    "attention": {"heads": 2, "tokens": 70, "width": 40},
    "attention_gradients": {"heads": 2, "tokens": 70, "width": 32},
    "decoding": {"sequences": 2, "keys": 150, "width": 64},
    "matmul": {"rows": 70, "inner": 100, "columns": 50},
    "retention": {"tokens": 150, "heads": 2, "width": 40},
    "rwkv7": {"tokens": 20, "heads": 2},
}
MODELS = {
    "attention": {"heads": 32, "tokens": 2048, "width": 128},
    "attention_gradients": {"heads": 32, "tokens": 2048, "width": 128},
    "decoding": {"sequences": 64, "keys": 4096, "width": 128},
    "matmul": {"rows": 4096, "inner": 4096, "columns": 4096},
    "retention": {"tokens": 4096, "heads": 32, "width": 128},
    "rwkv7": {"tokens": 256, "heads": 32},
}
DTYPES = {"retention": torch.bfloat16, "rwkv7": torch.float32}
"""Where a kernel does not take all. Triton's interpreter has no right products in bfloat16."""


def posed(name, sizes, dtype=torch.bfloat16):
    """Return a task, and its template on a GPU."""
    task = task_of(name, DTYPES.get(name, dtype), sizes[name])
    return task, template_for(task, "cuda")


def assert_right(name, dtype):
    """Compare the first and the last tile of a space, and the usual one, with float64."""
    _, template = posed(name, SIZES, dtype)
    task = task_of(name, dtype, SIZES[name])
    space = [*template.space.all()]
    random = torch.Generator().manual_seed(5)
    inputs = [draw("normal", shape, dtype, random) for shape in task.shapes(task.timed)]
    for config in (space[0], space[-1], *template.usual):
        with torch.no_grad():  # not for the whole process, which other tests share
            got = load(template.make(config))(*inputs)
        assert got.shape == task.result(task.timed)
        assert compare(task.reference, inputs, got).is_right, (name, config)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *((name, torch.float32) for name in OURS),
        *((name, torch.float16) for name in OURS if name not in DTYPES),
    ],
)
def test_every_tile_is_as_exact_as_plain_torch(name, dtype, interpreted):
    interpreted(assert_right, name, dtype)


@pytest.mark.parametrize("name", ATTENTION)
def test_the_alternative_of_the_library_computes_the_same(name):
    task = task_of(name, torch.float32, SIZES[name])
    random = torch.Generator().manual_seed(6)
    inputs = [draw("normal", s, torch.float32, random) for s in task.shapes(task.timed)]
    with torch.no_grad():
        got = load(task.alternatives["library"])(*inputs)
        assert compare(task.reference, inputs, got).is_right


@pytest.mark.parametrize("name", OURS)
def test_the_tile_that_a_kernel_chooses_itself_is_tried_first(name):
    _, template = posed(name, MODELS)
    assert len(template.usual) == 1 and template.space.holds(template.usual[0])


def test_a_product_of_few_rows_is_searched_with_parts_of_k():
    sizes = {"rows": 8, "inner": 8192, "columns": 4096}
    template = template_for(task_of("matmul", torch.bfloat16, sizes), "cuda")
    assert template.usual[0]["splits"] > 1 and template.space.holds(template.usual[0])
    assert {c["swapped"] for c in template.space.all()} == {1}
    first, then = load(template.launch(template.usual[0]))
    assert first.programs[2] == template.usual[0]["splits"] and then.kernel.__name__ == "finish"


@pytest.mark.parametrize("name", DTYPES)
def test_a_dtype_that_a_kernel_does_not_take_is_refused(name):
    task = task_of(name, torch.float16, SIZES[name])
    with pytest.raises(ValueError, match=f"{name} is searched in"):
        template_for(task, "cuda")


def test_retention_and_rwkv7_are_those_of_accel():
    torch.manual_seed(7)
    q, k, v = torch.randn(3, 30, 2, 16).double().unbind()
    wanted = accel.linear_attention(q[None], k[None], v[None], kind="retention", scale=0.25)
    torch.testing.assert_close(TASKS["retention"].reference(q, k, v), wanted.out[0])
    r, w, k, v, removal, rate = torch.randn(6, 20, 2, 64).double().unbind()
    decay, a, b = activated(w, removal, rate)
    wanted = accel.linear_attention(
        *(x[None] for x in (r, k, v)), kind="rwkv7", decay=decay.log()[None], a=a[None],
        b=b[None], scale=1.0,
    )  # fmt: skip
    got = TASKS["rwkv7"].reference(r, w, k, v, removal, rate)
    torch.testing.assert_close(got, wanted.out[0])


def test_the_reference_of_the_gradients_is_the_derivative_of_that_of_attention():
    q, k, v, dout = torch.randn(4, 2, 9, 8, dtype=torch.float64).unbind()
    wanted = torch.autograd.functional.vjp(TASKS["attention"].reference, (q, k, v), dout)[1]
    got = TASKS["attention_gradients"].reference(q, k, v, dout)
    torch.testing.assert_close(got, torch.stack(wanted, 1).flatten(2))


@pytest.mark.slow
@pytest.mark.parametrize("name", OURS)
def test_kernels_of_a_model_s_shape_are_compiled_for_an_h100_without_one(name):
    _, template = posed(name, MODELS)
    needs = compiled_resources(load(template.launch(template.usual[0])), 90)
    assert needs.registers > 30 and not needs.too_large(90)


@pytest.mark.slow
def test_what_is_compiled_of_decoding_is_what_a_gpu_launches():
    """Otherwise it is compiled again in the process that measures, one configuration at a time."""
    _, template = posed("decoding", MODELS)
    source = template.launch(template.usual[0])
    new, old = (code_of(load(source), capability)[0] for capability in (90, 80))
    assert "ACQBULK" in new.instructions and "ACQBULK" not in old.instructions


@pytest.mark.slow
def test_the_code_of_the_winner_and_of_what_was_tried_first_is_shown(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("GPUDECK_HOME", str(tmp_path))
    task = task_of("attention", torch.bfloat16, MODELS["attention"])
    template = template_for(task, "cuda")
    tiles = [{"queries": 64, "keys": n, "warps": 4, "stages": 2} for n in (32, 64)]
    with Journal(problem_of(task, template, find_device())) as journal:
        journal.add(Entry(tiles[0], "timed", 12.0))
        journal.add(Entry(tiles[1], "timed", 9.0))
        codes = show_code(template, journal, journal.timed[0][0], 90)
    state_files.replace(journal.problem.code_file, encode_codes(codes))
    assert (codes.first, codes.winner) == tuple(tiles)
    (first,), (winner,) = codes.first_code, codes.winner_code
    assert "def attention_forward" in winner.source and winner.source == first.source
    assert "HGMMA.64x64" in winner.instructions and "HGMMA.64x32" in first.instructions
    assert main(["search", "show", journal.problem.name, "--code"]) == 0
    said = capsys.readouterr().out
    assert "WINNER: queries=64 keys=64 warps=4 stages=2, compiled for sm_90" in said
    assert "HGMMA.64x64" in said


def test_a_search_of_a_near_shape_is_a_lesson(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUDECK_HOME", str(tmp_path))
    known = {}
    for tokens in (1024, 2048):
        sizes = {"heads": 32, "tokens": tokens, "width": 128}
        task = task_of("attention", torch.bfloat16, sizes)
        template = template_for(task, "cuda")
        known[tokens] = problem_of(task, template, find_device())
    tile = {"queries": 128, "keys": 64, "warps": 8, "stages": 3}
    with Journal(known[1024]) as journal:
        journal.add(Entry(tile, "timed", 12.0))
    assert [*lessons(known[2048])] == [tile]


def test_attention_is_searched_on_a_cpu_to_try_it(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUDECK_HOME", str(tmp_path))
    found = accel.optimize_kernel(
        "attention", sizes=SIZES["attention"], budget=Budget(configurations=2),
        effort=Effort(0.5, 30, 2), compiled=(),
    )  # fmt: skip
    assert found.verdict.accepted, [str(r.text) for r in found.verdict.refusals]
