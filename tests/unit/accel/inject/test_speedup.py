"""A speed-up is predicted from the sizes that a file names and from measurements, or is unknown."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpudeck.accel.attention import table
from gpudeck.accel.inject import speedup
from gpudeck.accel.inject.finding import Shape
from gpudeck.accel.inject.scan import scan
from gpudeck.accel.inject.speedup import GPU, LEAST, predicted

FILE = Path(speedup.__file__).parent / "measured" / "h200.csv"
GPT = """
import torch
from dataclasses import dataclass

@dataclass
class Config:
    {sizes}

class Attention(torch.nn.Module):
    def forward(self, q, k, v, mask):
        {mask}
        a = q @ k.transpose(-2, -1)
        {hide}
        return a.softmax(-1) @ v
"""
SIZES = "block_size: int = 2048; n_head: int = 16; n_embd: int = 1024; batch_size: int = 8"


def found(tmp_path, sizes=SIZES, mask="", hide=""):
    (tmp_path / "m.py").write_text(
        GPT.format(sizes=sizes.replace("; ", "\n    "), mask=mask or "pass", hide=hide or "pass")
    )
    (finding,) = scan([tmp_path / "m.py"])
    assert finding.action == "link"
    return finding.speedup


def test_the_sizes_of_a_file_decide(tmp_path):
    plain = found(tmp_path)
    assert plain.shape == Shape(8, 16, 2048, 2048, 64, False)
    hide = "a = a.masked_fill(mask, float('-inf'))"
    causal = found(tmp_path, mask="mask = torch.ones(9, 9).triu(1).bool()", hide=hide)
    assert causal.shape == Shape(8, 16, 2048, 2048, 64, True)
    assert plain.gpu == causal.gpu == GPU
    assert plain.training > 1 and causal.training > plain.training
    text = str(causal.text)
    assert (
        f"predicted on an {GPU}" in text and "16 heads, 2,048 tokens, head size 64, causal" in text
    )


def test_a_batch_that_is_not_named_fills_the_gpu(tmp_path):
    assert found(tmp_path, "block_size: int = 1024; n_head: int = 12; head_dim: int = 64"
                 ).shape.batch == 16  # fmt: skip
    assert found(tmp_path, "seq_len: int = 8192; heads: int = 64; dim_head: int = 128"
                 ).shape.batch == 1  # fmt: skip


@pytest.mark.parametrize(
    "sizes",
    [
        "n_head: int = 16; n_embd: int = 1024",  # no tokens
        "block_size: int = 2048; n_embd: int = 1024",  # no heads
        "block_size: int = 2048; n_head: int = 16",  # no head size
        "block_size: int = 2048; n_head: int = 16; n_embd: int = 1000",  # which is no whole number
        "block_size: int = 2048; n_head: int = 1; n_embd: int = 4096",  # one that is too large
        "block_size: int = 900000; n_head: int = 16; n_embd: int = 1024",  # far from all measured
        "block_size: int = 256; n_head: int = 8; n_embd: int = 512; batch_size: int = 2",  # small
    ],
)
def test_what_is_not_named_or_not_measured_is_unknown(tmp_path, sizes):
    assert found(tmp_path, sizes) is None


def test_masks_that_are_not_causal_are_unknown(tmp_path):
    assert found(tmp_path, hide="a = a.masked_fill(mask == 0, float('-inf'))") is None
    assert found(tmp_path, hide="a = a + mask") is None


def test_at_a_measured_shape_the_prediction_is_the_measured_ratio():
    rows = {(r.direction, r.head_dim, r.causal, r.batch, r.heads, r.seq_q, r.backend): r
            for r in table.read(FILE)}  # fmt: skip
    assert rows
    checked = 0
    for (direction, dim, causal, batch, heads, seq, name), row in rows.items():
        after = {"by hand": "linked", "sdpa": "sdpa linked"}.get(name)
        key = (dim, causal, batch, heads, seq)
        if direction != "forward" or after is None or ("forward", *key, after) not in rows:
            continue
        found = predicted(Shape(batch, heads, seq, seq, dim, causal), name)
        if batch * heads * seq * seq <= LEAST[name]:
            assert found is None
            continue
        new, back, new_back = (
            rows[key_of] for key_of in (("forward", *key, after), ("backward", *key, name),
                                        ("backward", *key, after)))  # fmt: skip
        assert found.forward == pytest.approx(row.microseconds / new.microseconds, rel=2e-3)
        total = row.microseconds + back.microseconds
        ours = new.microseconds + new_back.microseconds
        assert found.training == pytest.approx(total / ours, rel=2e-3)
        checked += 1
    assert checked >= 16


BRANCHES = """
import torch
import torch.nn.functional as F

block_size, n_head, n_embd, batch_size = 2048, 16, 1024, 8

class Attention(torch.nn.Module):
    def __init__(self, block_size=2048, n_head=16, n_embd=1024, batch_size=8):
        self.flash = hasattr(F, "scaled_dot_product_attention")

    def forward(self, q, k, v):
        if {test}:
            return {first}
        return (q @ k.transpose(-2, -1)).softmax(-1) @ v
"""


@pytest.mark.parametrize(
    "first", ["F.scaled_dot_product_attention(q, k, v)", "flash_attn_func(q, k, v)"]
)
def test_attention_by_hand_beside_a_fused_call_is_linked_without_a_prediction(tmp_path, first):
    text = BRANCHES.format(test="self.flash", first=first)
    (tmp_path / "m.py").write_text("from flash_attn import flash_attn_func" + text)
    by_hand = scan([tmp_path / "m.py"])[-1]
    assert (by_hand.kind, by_hand.action, by_hand.speedup) == ("by hand", "link", None)
    alone = BRANCHES.format(test="self.flash", first="v")
    (tmp_path / "m.py").write_text(alone)
    (by_hand,) = scan([tmp_path / "m.py"])
    assert by_hand.speedup is not None


def test_a_branch_that_never_runs_is_not_listed(tmp_path):
    text = BRANCHES.format(test="False", first="(q @ k.mT).softmax(-1) @ v")
    (tmp_path / "m.py").write_text(text)
    (only,) = scan([tmp_path / "m.py"])
    assert only.line == text[: text.index("(q @ k.transpose")].count("\n") + 1
