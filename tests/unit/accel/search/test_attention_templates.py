"""Our attention kernels are searched as any other kernel is."""

import pytest
import torch

from gpudeck import accel
from gpudeck.accel.runtime import state_files
from gpudeck.accel.runtime.capability import find_device
from gpudeck.accel.search.api import problem_of, show_code
from gpudeck.accel.search.attention_templates import attention_template
from gpudeck.accel.search.code import encode_codes
from gpudeck.accel.search.contest import Effort
from gpudeck.accel.search.draws import draw
from gpudeck.accel.search.engine import Budget
from gpudeck.accel.search.journal import Entry, Journal, lessons
from gpudeck.accel.search.measures import compare
from gpudeck.accel.search.resources import compiled_resources
from gpudeck.accel.search.tasks import TASKS, task_of
from gpudeck.accel.search.templates import ATTENTION
from gpudeck.accel.search.worker import load
from gpudeck.app.cli.main import main

SIZES = {
    "attention": {"heads": 2, "tokens": 70, "width": 40},
    "attention_gradients": {"heads": 2, "tokens": 70, "width": 32},
    "decoding": {"sequences": 2, "keys": 150, "width": 64},
}
MODELS = {
    "attention": {"heads": 32, "tokens": 2048, "width": 128},
    "attention_gradients": {"heads": 32, "tokens": 2048, "width": 128},
    "decoding": {"sequences": 64, "keys": 4096, "width": 128},
}


def assert_right(name, dtype):
    """Compare the first and the last tile of a space, and the usual one, with float64."""
    torch.set_grad_enabled(False)
    task = task_of(name, dtype, SIZES[name])
    template = attention_template(name, dtype, SIZES[name])
    space = [*template.space.all()]
    random = torch.Generator().manual_seed(5)
    inputs = [draw("normal", shape, dtype, random) for shape in task.shapes(task.timed)]
    for config in (space[0], space[-1], *template.usual):
        got = load(template.make(config))(*inputs)
        assert got.shape == task.result(task.timed)
        assert compare(task.reference, inputs, got).is_right, (name, config)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("name", ATTENTION)
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


@pytest.mark.parametrize("name", ATTENTION)
def test_the_tile_that_a_kernel_chooses_itself_is_tried_first(name):
    template = attention_template(name, torch.bfloat16, MODELS[name])
    assert len(template.usual) == 1 and template.space.holds(template.usual[0])


def test_the_reference_of_the_gradients_is_the_derivative_of_that_of_attention():
    q, k, v, dout = torch.randn(4, 2, 9, 8, dtype=torch.float64).unbind()
    wanted = torch.autograd.functional.vjp(TASKS["attention"].reference, (q, k, v), dout)[1]
    got = TASKS["attention_gradients"].reference(q, k, v, dout)
    torch.testing.assert_close(got, torch.stack(wanted, 1).flatten(2))


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTENTION)
def test_kernels_of_a_model_s_shape_are_compiled_for_an_h100_without_one(name):
    template = attention_template(name, torch.bfloat16, MODELS[name])
    needs = compiled_resources(load(template.launch(template.usual[0])), 90)
    assert needs.registers > 100 and not needs.too_large(90)


@pytest.mark.slow
def test_the_code_of_the_winner_and_of_what_was_tried_first_is_shown(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("GPUDECK_HOME", str(tmp_path))
    task = task_of("attention", torch.bfloat16, MODELS["attention"])
    template = attention_template("attention", torch.bfloat16, MODELS["attention"])
    tiles = [{"queries": 64, "keys": n, "warps": 4, "stages": 2} for n in (32, 64)]
    with Journal(problem_of(task, template, find_device())) as journal:
        journal.add(Entry(tiles[0], "timed", 12.0))
        journal.add(Entry(tiles[1], "timed", 9.0))
        codes = show_code(template, journal, 90)
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
        template = attention_template("attention", torch.bfloat16, sizes)
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
