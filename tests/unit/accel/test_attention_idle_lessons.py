"""What programs used is measured later, on tensors like theirs. On a CPU that learns."""

import msgspec
import pytest
import torch

from gpudeck import accel
from gpudeck.accel.attention import (
    Problem,
    attention,
    choose,
    describe,
    idle_lessons,
    passes,
)
from gpudeck.accel.attention.lessons import USAGE
from gpudeck.accel.lessons import usage
from gpudeck.accel.runtime.state_files import used_file
from tests.unit.accel.attention_lessons import forget, kept

CPU = torch.device("cpu")


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUDECK_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(usage, "DEVICES", ("cpu",))
    for module in (passes, idle_lessons):
        monkeypatch.setattr(module, "contenders", lambda *_: ("flash", "math"))
    forget()
    accel.learning("idle")
    yield tmp_path / "home"
    accel.learning("once")
    forget()


def use():
    q, k = torch.randn(1, 4, 24, 16, requires_grad=True), torch.randn(1, 2, 40, 16)
    bias = torch.zeros(1, 1, 24, 40)
    for _ in range(3):
        attention(q, k, k, causal=True).sum().backward()
        with torch.no_grad():
            attention(q, k, k, window=(7, 0), softcap=3.0)
            attention(q, k, k, bias=bias)
            attention(q, k, k, bias=bias)
    lengths = accel.Ragged.of([10, 14], device="cpu")
    attention(*(torch.randn(24, 2, 16) for _ in range(3)), seqlens=lengths)
    USAGE.note()


def test_every_dense_shape_that_was_used_is_measured_once_in_the_passes_that_were_used(home):
    use()
    told = [(text, direction) for text, direction, _ in idle_lessons.find_pending(CPU)]
    assert told == [
        ("batch 1, heads 4 over 2, sequence 24 over 40, head size 16, float32, causal", "forward"),
        ("batch 1, heads 4 over 2, sequence 24 over 40, head size 16, float32, causal", "backward"),
        ("batch 1, heads 4 over 2, sequence 24 over 40, head size 16, float32, bias", "forward"),
        (
            "batch 1, heads 4 over 2, sequence 24 over 40, head size 16, float32, window (7, 0),"
            " softcap 3",
            "forward",
        ),
    ]
    accel.learning("once")
    for _, _, measure in idle_lessons.find_pending(CPU):
        assert measure()
    assert list(idle_lessons.find_pending(CPU)) == [] and len(kept()) == 4
    q, k = torch.randn(1, 4, 24, 16), torch.randn(1, 2, 40, 16)
    assert choose(describe(q, k, k, causal=True)).basis == "measured here"


def test_shapes_of_other_cards_and_unknown_wishes_are_left_alone(home):
    use()
    changed = [
        msgspec.structs.replace(USAGE.read()[0], gpu="another card"),
        msgspec.structs.replace(USAGE.read()[1], spot="float32 d16 something=new"),
    ]
    used_file("attention").write_bytes(msgspec.json.encode({"format": 1, "used": changed}))
    assert list(idle_lessons.find_pending(CPU)) == []


@pytest.mark.parametrize("bias", ["none", "bool", "float"])
def test_the_tensors_pose_the_problem_again(bias):
    asked = Problem(2, 4, 2, 24, 40, 16, torch.float32, CPU, None, 0.25, left=7, right=0,
                    bias=bias)  # fmt: skip
    x = idle_lessons.tensors(asked)
    found = describe(x.q, x.k, x.v, bias=x.bias, window=(7, 0))
    assert found == asked and x.q.transpose(1, 2).is_contiguous()
