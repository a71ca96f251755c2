"""Programs note which shapes they compute: counts only, of all processes together."""

import os
import subprocess
import sys

import pytest
import torch

from gpudeck import accel
from gpudeck.accel.attention import attention
from gpudeck.accel.attention.lessons import USAGE
from gpudeck.accel.lessons import usage
from gpudeck.accel.runtime.state_files import used_file

PROGRAM = """
import torch
from gpudeck import accel
from gpudeck.accel.attention import attention
from gpudeck.accel.lessons import usage
from gpudeck.accel.runtime.state_files import used_file
usage.DEVICES = ("cpu",)
q = torch.randn(1, 2, 24, 16, requires_grad=True)
for _ in range({calls}):
    attention(q, q, q, causal=True).sum().backward()
{end}
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUDECK_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(usage, "DEVICES", ("cpu", "cuda"))
    USAGE.forget()
    yield tmp_path / "home"
    accel.learning("once")
    USAGE.forget()


def run(calls, end=""):
    return subprocess.run(
        [sys.executable, "-c", PROGRAM.format(calls=calls, end=end)], check=False, env=os.environ
    )


@pytest.mark.slow
def test_programs_add_to_the_counts_when_they_end_and_not_if_learning_is_off(home):
    assert run(3).returncode == run(5, "raise SystemExit(0)").returncode == 0
    run(4, "accel.learning('off')")
    [used] = USAGE.read()
    assert (used.forward, used.backward) == (8, 8)
    assert used.text == "batch 1, heads 2, sequence 24, head size 16, float32, causal"
    assert used.spot == "float32 d16 heads4 queries18 keys18 causal square"
    assert (used.shape.seq_q, used.shape.right, used.shape.dtype) == (24, 0, "float32")
    assert used_file("attention").stat().st_mode & 0o777 == 0o600


def test_a_long_program_writes_now_and_then_and_counts_nothing_twice(home, monkeypatch):
    monkeypatch.setattr(usage, "EVERY_S", 0.0)
    x = torch.randn(1, 1, 8, 8)
    for _ in range(9):
        attention(x, x, x)
    assert USAGE.read()[0].forward == 8
    USAGE.note()
    USAGE.note()
    [used] = USAGE.read()
    assert used.forward == 9 and used.text == "batch 1, heads 1, sequence 8, head size 8, float32"
    assert used_file("attention").stat().st_mode & 0o777 == 0o600


def test_nothing_is_counted_while_learning_is_off(home, monkeypatch):
    monkeypatch.setattr(usage, "EVERY_S", 0.0)
    accel.learning("off")
    x = torch.randn(1, 1, 8, 8)
    for _ in range(9):
        attention(x, x, x)
    assert USAGE.read() == []


def test_a_damaged_file_is_begun_anew(home):
    home.mkdir()
    used_file("attention").write_text("{")
    assert USAGE.read() == []
    x = torch.randn(1, 1, 8, 8)
    attention(x, x, x)
    USAGE.note()
    assert len(USAGE.read()) == 1
