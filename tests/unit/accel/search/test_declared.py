"""A kernel of one's own is searched from the file that declares what may be searched of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from gpudeck import accel
from gpudeck.accel.search.contest import Effort
from gpudeck.accel.search.declared import read_declared
from gpudeck.accel.search.engine import Budget

TEXT = """
import torch

SIZES = {"rows": (64, 1, 20), "columns": (96, 16, 80)}
SPACE = {"block": (8, 16, 32), "wrong": (0, 1)}
USUAL = ({"block": 16, "wrong": 0},)


def fits(config):
    return config["block"] < 32 or not config["wrong"]


def shapes(rows, columns):
    return (rows, columns), (columns,)


def reference(x, weight):
    return torch.tanh(x) * weight


def make(config):
    def call(x, weight):
        parts = [torch.tanh(part) * weight for part in x.split(config["block"])]
        return torch.cat(parts) + config["wrong"]

    return call
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUDECK_HOME", str(tmp_path / "home"))
    found = tmp_path / "kernel.py"
    found.write_text(TEXT)
    return found


def test_a_file_declares_its_sizes_shapes_and_space(file):
    task, template = read_declared(file)
    assert task.timed == {"rows": 64, "columns": 96}
    assert task.shapes(task.timed) == ((64, 96), (96,)) and task.result(task.timed) == (64, 96)
    assert len(template.space) == 5 and template.usual[0]["block"] == 16


def test_the_winner_of_a_file_is_right_and_comes_back_as_a_function(file):
    found = accel.optimize_kernel(
        file, budget=Budget(configurations=5), effort=Effort(1.0, 30, 4), compiled=()
    )
    assert found.measured and found.config["wrong"] == 0
    assert found.verdict.task.startswith("kernel-") and len(found.verdict.trials) > 4
    x, weight = torch.randn(5, 7), torch.randn(7)
    torch.testing.assert_close(found.function(x, weight), torch.tanh(x) * weight)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("def make", "def other", "has no make"),
        ("import torch", "import torch.none", "cannot be loaded"),
        ("(64, 1, 20)", "(64, 30, 20)", "a least one above the most"),
        ("(64, 1, 20)", "64", "SIZES maps each name"),
        ('"wrong": (0, 1)', '"wrong": ("a",)', "SPACE maps each name to whole numbers"),
        ('{"block": 16, "wrong": 0}', '{"block": 17, "wrong": 0}', "which is not in SPACE"),
        ("return torch.tanh(x) * weight\n", "return weight @ x\n", "cannot compute"),
        ("SIZES =", "DTYPE = 'int8'\nSIZES =", "DTYPE is one of"),
    ],
)
def test_what_does_not_fit_together_is_refused_by_name(file, old, new, why):
    file.write_text(TEXT.replace(old, new, 1))
    with pytest.raises(ValueError, match=why):
        read_declared(file)


def test_the_example_of_the_manual_computes_what_it_declares(tmp_path):
    manual = Path(__file__).parents[4] / "docs" / "manual" / "search.md"
    example = next(
        block.partition("```")[0]
        for block in manual.read_text().split("```python\n")
        if "SPACE = " in block
    )
    file = tmp_path / "my_kernel.py"
    # read where kernels are interpreted, which Triton decides when it is imported
    file.write_text(example)
    check = (
        "import sys, torch; from pathlib import Path;"
        "from gpudeck.accel.search.declared import read_declared;"
        "from gpudeck.accel.search.worker import load;"
        "task, template = read_declared(Path(sys.argv[1]));"
        "xs = [torch.randn(3, 700) for _ in task.shapes(task.timed)];"
        "found = load(template.make(next(template.space.all())))(*xs);"
        "assert torch.equal(found, task.reference(*xs))"
    )
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    subprocess.run([sys.executable, "-c", check, str(file)], env=environment, check=True)
