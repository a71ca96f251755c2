"""Modules are fused into kernels that compute the same; what no template takes is named."""

import os
import subprocess
import sys

import pytest
import torch
from torch import nn

from gpudeck import accel
from gpudeck.accel.search import installed, use
from gpudeck.accel.search.api import fused_template
from gpudeck.accel.search.fusion.capture import capture, graph_of
from gpudeck.accel.search.fusion.grouping import steps_of
from gpudeck.accel.search.fusion.kernel_text import write_kernel
from gpudeck.accel.search.fusion.template import library_operators
from tests.unit.accel.search.test_search import verdict

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUDECK_HOME", str(tmp_path / "home"))


class Function(nn.Module):
    def __init__(self, function, *parameters):
        super().__init__()
        self.function, self.given = function, nn.ParameterList(parameters)

    def forward(self, *inputs):
        return self.function(*inputs, *self.given)


def kinds(module, *shapes):
    _, template = fused_template(module.to("meta"), [torch.empty(s, device="meta") for s in shapes])
    return template.name


def test_a_product_takes_what_follows_it_element_by_element():
    net = nn.Sequential(nn.Linear(64, 32), nn.GELU(), nn.Hardtanh())
    assert kinds(net, (8, 64)) == "product"
    assert kinds(nn.Sequential(net, nn.Softmax(-1)), (8, 64)) == "product, rows"
    two = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 16))
    assert kinds(two, (8, 64)) == "product, product"


def test_a_value_that_is_used_twice_outside_ends_a_group():
    twice = Function(
        lambda x, w: torch.softmax(x @ w, 0) + (x @ w).relu(), nn.Parameter(torch.empty(64, 32))
    )
    assert kinds(twice, (8, 64)) == "product, library, product"


def test_what_no_template_computes_is_left_to_the_library_by_name():
    task, _ = fused_template(
        nn.Sequential(nn.Linear(64, 32), nn.GroupNorm(4, 32)).to("meta"),
        [torch.empty(8, 64, device="meta")],
    )
    assert library_operators(task) == ("aten.group_norm.default",)
    with pytest.raises(ValueError, match="no template computes a part"):
        fused_template(nn.MaxPool1d(2).to("meta"), [torch.empty(4, 8, 16, device="meta")])


def test_products_of_16_bits_are_not_split_and_other_types_are_refused():
    for dtype, ways in ((torch.float32, {0, 1}), (torch.bfloat16, {0})):
        net = nn.Linear(64, 32).to("meta", dtype)
        _, template = fused_template(net, [torch.empty(8, 64, dtype=dtype, device="meta")])
        assert {config["split"] for config in template.space.all()} == ways
        assert all(map(template.space.holds, template.usual)) and template.usual
    with pytest.raises(ValueError, match="must be float32, float16 or bfloat16"):
        fused_template(nn.ReLU(), [torch.empty(8, 64, dtype=torch.float64)])


@pytest.mark.parametrize(
    "module",
    [nn.Dropout(0.5), nn.BatchNorm1d(64), Function(lambda x: (x, x + 1))],
    ids=["random", "state", "two results"],
)
def test_a_module_that_is_no_function_of_its_inputs_is_refused(module, tmp_path):
    with pytest.raises(ValueError, match="the module"):
        capture(module.to("meta"), [torch.empty(8, 64, device="meta")], tmp_path)


def test_the_batch_is_free_unless_sizes_depend_on_it(tmp_path):
    fixed = Function(lambda x: x.view(8, 4, 16).relu().view(8, 64) + 1)
    for module, free in ((nn.Linear(64, 32), (2,)), (fixed, ())):
        found = capture(module.to("meta"), [torch.empty(8, 64, device="meta")], tmp_path)
        assert found.free == free


def test_a_captured_file_computes_what_the_module_computes(tmp_path):
    net = nn.Sequential(nn.Linear(16, 8), nn.LayerNorm(8), nn.Mish())
    x = torch.randn(3, 16)
    found = capture(net, [x], tmp_path)
    space = {}
    exec(found.source.text, space)
    assert torch.equal(space["reference"](*net.parameters(), x), net(x))


def test_an_installed_kernel_of_a_module_is_used_with_its_parameters_until_it_is_removed():
    net, x = nn.Sequential(nn.Linear(16, 8), nn.Mish()), torch.randn(3, 16)
    assert use.fused(net, x) == (net, "eager")
    task, _ = fused_template(net, [x])
    given = {"task": task.name, "sizes": task.timed, "candidate": task.written}
    kernel = installed.install(verdict(1.5, **given))
    function, name = use.fused(net, x)
    assert name == kernel.name and torch.equal(function(x), net(x))
    with torch.no_grad():
        net[0].bias += 1
    assert torch.equal(function(x), net(x))
    installed.remove(kernel.name)
    assert use.fused(net, x)[1] == "eager"


def test_modules_of_one_class_and_other_sizes_or_functions_are_told_apart():
    x = torch.empty(8, 64, device="meta")
    nets = (
        (nn.Linear(64, 32), nn.Linear(64, 16)),
        (nn.Sequential(nn.ReLU()), nn.Sequential(nn.GELU())),
    )
    for one, other in nets:
        first, second = (fused_template(net.to("meta"), [x])[0] for net in (one, other))
        assert first.name != second.name and first.source.place != second.source.place
        assert fused_template(one, [x])[0].name == first.name


def test_a_row_is_masked_where_the_result_is_one_of_a_row(tmp_path):
    total = Function(lambda x: x.sum(-1, keepdim=True).tanh())
    found = capture(total.to("meta"), [torch.empty(5, 7, device="meta")], tmp_path)
    (step,) = steps_of(graph_of(found.source, found.shapes, torch.float32).nodes)
    assert "out_at + row[:, None]" in write_kernel(step) and "def tanh" in write_kernel(step)


def test_what_a_row_was_reduced_to_is_not_reduced_as_a_row_again(tmp_path):
    """A tile repeats it along the columns, so that a sum would count it often."""
    twice = Function(lambda x: x + torch.logsumexp(x.mean(1, keepdim=True), 1, keepdim=True))
    found = capture(twice.to("meta"), [torch.empty(5, 7, device="meta")], tmp_path)
    steps = steps_of(graph_of(found.source, found.shapes, torch.float32).nodes)
    assert [(s.kind, s.shape) for s in steps] == [
        ("rows", (5, 7)), ("rows", (5, 1)), ("flat", (5, 7))
    ]  # fmt: skip


@pytest.mark.slow
def test_a_module_for_a_gpu_that_is_not_here_is_compiled_and_ranked():
    found = accel.optimize_kernel(
        nn.Sequential(nn.Softmax(-1)), "h100", inputs=[torch.empty(512, 500)]
    )
    assert not found.measured and found.verdict is None
    assert len(found.predictions) > 3 and found.predictions[0].occupancy > 0.5
    with pytest.raises(ValueError, match="modules are fused for GPUs"):
        accel.optimize_kernel(nn.Softmax(-1), inputs=[torch.empty(512, 500)])


_INTERPRETED = """
import sys
from pathlib import Path
import torch
import torch.nn.functional as F
from torch import nn
from gpudeck.accel.search.fusion.capture import capture
from gpudeck.accel.search.fusion.template import fused, task_of_module
from gpudeck.accel.search.measures import compare
from tests.unit.accel.search.test_fusion import Function

def empty(*shape):
    return nn.Parameter(torch.empty(*shape))

def many(x, y):
    z = x * torch.sigmoid(y) + F.mish(x) - F.softplus(y) + F.selu(x) + F.elu(y, 0.7) + torch.tanh(x)
    w = F.gelu(x) + F.gelu(y, approximate="tanh") + F.leaky_relu(x) + F.hardsigmoid(y)
    return F.hardtanh(z) + w + torch.abs(x) ** 3 - torch.clamp(y, -0.5, 0.25)

CASES = [
    (lambda x, w, b: F.leaky_relu(F.linear(x, w, b) * 2.0), (70, 50), [empty(90, 50), empty(90)]),
    (lambda x, w: torch.triu(x @ w) + 1, (70, 130), [empty(130, 90)]),
    (lambda x, w: x.T @ w.T, (70, 130), [empty(90, 70)]),
    (lambda x, w: torch.bmm(x, w), (3, 40, 130), [empty(3, 130, 33)]),
    (lambda x, w: torch.matmul(x, w).relu(), (3, 40, 33), [empty(33, 65)]),
    (lambda x, w: torch.logsumexp(x @ w.mT, 1, keepdim=True).abs(), (70, 50), [empty(90, 50)]),
    (lambda x: torch.softmax(x * 2, -1) * 3, (7, 50), []),
    (lambda x: torch.log_softmax(x, -1), (7, 50), []),
    (lambda x, w, b: F.layer_norm(x, (50,), w, b), (3, 7, 50), [empty(50), empty(50)]),
    (lambda x: x / torch.norm(x, p=2, dim=1, keepdim=True), (7, 50), []),
    (lambda x: x + torch.logsumexp(x.mean(1, keepdim=True), 1, keepdim=True), (7, 50), []),
    (lambda x: x / torch.mean(torch.abs(x), dim=1, keepdim=True), (7, 50), []),
    (many, (9, 33), [empty(9, 33)]),
    (lambda x, w: x.unsqueeze(1) * w, (9,), [empty(9, 33)]),
]
PRODUCTS = [{"split": s, "m": 64, "n": 64, "k": 32, "warps": 4, "stages": 2} for s in (0, 1)]
for number, (function, shape, parameters) in enumerate(CASES[: int(sys.argv[2])]):
    module = Function(function, *parameters)
    found = capture(module, [torch.empty(shape)], Path(sys.argv[1]))
    task = task_of_module("case", found, torch.float32)
    products = task.product and PRODUCTS
    for scale in (1.0, 1e-3):
        inputs = [torch.randn(s) * scale for s in found.shapes]
        for config in products or [{"rows": 2, "elements": 1, "warps": 1}]:
            got = fused(found.source.place, config)(*inputs)
            found_error = compare(task.reference, inputs, got)
            assert found_error.is_right, (number, scale, config, found_error)
"""


@pytest.mark.parametrize("cases", [1, pytest.param(100, marks=pytest.mark.slow)])
def test_fused_kernels_compute_what_they_should_as_interpreted(tmp_path, cases):
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _INTERPRETED, str(tmp_path), str(cases)],
        env={**os.environ, "TRITON_INTERPRET": "1"}, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
