"""A proof runs the code, and catches what a wrong change would do."""

from __future__ import annotations

import dataclasses
import json
import textwrap

import pytest

from gpudeck.accel.inject import guesses
from gpudeck.accel.inject import prove as parent
from gpudeck.accel.inject.proving import prove
from gpudeck.accel.inject.rewrite import changes

MODEL = textwrap.dedent("""
    import torch
    from torch import nn

    class Attention(nn.Module):
        def __init__(self, dim, num_heads=2):
            super().__init__()
            self.num_heads = num_heads
            self.scale = (dim // num_heads) ** -0.5
            self.qkv = nn.Linear(dim, dim * 3)
            self.bias = nn.Parameter(torch.randn(num_heads, 1, 1) * torch.randn(64, 64))

        def forward(self, x):
            B, N, C = x.shape
            qkv = self.qkv(x).reshape(B, N, 3, self.num_heads, C // self.num_heads)
            q, k, v = qkv.permute(2, 0, 3, 1, 4)
            a = q @ k.transpose(-2, -1)
            a = a * self.scale
            a = a + self.bias[:, :N, :N]
            a = a.masked_fill(torch.ones(N, N).tril(0) == 0, float("-inf"))
            a = a.softmax(dim=-1)
            return (a @ v).transpose(1, 2).reshape(B, N, C)
""")


def change(tmp_path, text=MODEL):
    (tmp_path / "model.py").write_text(text)
    (made,), _ = changes([tmp_path / "model.py"])
    return made


def test_a_right_change_is_proved_by_the_module_itself(tmp_path):
    (proof,) = prove(change(tmp_path))
    assert proof.proved, proof.verdict
    assert proof.ran.startswith("Attention(dim=")
    assert {t.dtype for t in proof.trials if t.linked} == {"float32", "bfloat16"}


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("tril(0) == 0", "tril(0) != 0"),
        ("a = a * self.scale", "pass"),
        ("tril(0)", "tril(1)"),
        ("a = a + self.bias[:, :N, :N]", "pass"),
    ],
    ids=["mask inverted", "scale lost", "causal offset", "bias dropped"],
)
def test_planted_defects_are_caught(tmp_path, right, wrong):
    made = change(tmp_path)
    assert right in made.text_after
    sabotaged = dataclasses.replace(made, text_after=made.text_after.replace(right, wrong))
    (proof,) = prove(sabotaged)
    assert proof.outcome == "wrong", proof.verdict


@pytest.mark.slow
def test_a_file_whose_process_hangs_or_dies_has_no_proof(tmp_path):
    made = change(tmp_path, MODEL + "\nimport os\nos._exit(3)\n")
    assert parent.prove(made.path) == []
    made = change(tmp_path, MODEL + "\nwhile True: pass\n")
    assert parent.prove(made.path, timeout=8.0) == []


def test_a_function_in_one_line_is_proved(tmp_path):
    text = "import torch\n\ndef attend(q, k, v): return (q @ k.mT / 3).softmax(-1) @ v\n"
    (proof,) = prove(change(tmp_path, text))
    assert proof.proved, proof.verdict


def test_what_a_file_prints_is_no_proof(tmp_path):
    text = MODEL.replace("import torch\n", "import torch\nprint('{}')\n", 1)
    (proof,) = parent.prove(change(tmp_path, text).path)
    assert proof.proved


def test_a_notebook_with_lines_that_only_jupyter_reads_is_proved(tmp_path):
    cells = ["%matplotlib inline\nimport torch\n!nvidia-smi", "%%bash\nls",
             "def attend(q, k, v):\n    return (q @ k.mT / 3).softmax(-1) @ v"]  # fmt: skip
    book = {"cells": [{"cell_type": "code", "source": cell} for cell in cells]}
    (tmp_path / "book.ipynb").write_text(json.dumps(book))
    (made,), _ = changes([tmp_path / "book.ipynb"])
    (proof,) = prove(made)
    assert proof.proved, proof.verdict
    assert "%matplotlib inline" in made.text_after, "the change shows the lines as they are"


def test_no_input_is_tried_that_takes_minutes_to_draw(monkeypatch):
    monkeypatch.setattr(guesses, "MOST_VALUES", 5000)
    tried = [inputs["x"] for inputs in guesses.calls(lambda x: x, guesses.Sizes(2, 4, 16, 8))]
    assert tried
    assert max(x.numel() for x in tried) <= 5000
