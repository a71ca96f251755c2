"""A CUDA graph is never disturbed by `auto` that learns.

python -m pytest tests/gpu/test_learning_gpu.py -n 0
"""

import pytest
import torch

from gpudeck import accel
from gpudeck.accel.attention import attention
from gpudeck.accel.runtime import brief_timing
from tests.unit.accel.attention_lessons import forget, kept

if not torch.cuda.is_available() or torch.cuda.get_device_capability() < (8, 0):
    pytest.skip("needs a GPU since Ampere", allow_module_level=True)

SHAPE = (1, 6, 333, 72)
"""A shape without a measurement nearby."""


@pytest.fixture(autouse=True)
def own(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUDECK_HOME", str(tmp_path / "home"))
    forget()
    accel.learning("once")
    yield
    accel.learning("once")
    forget()


def tensors(grad=False):
    return [
        torch.randn(SHAPE, device="cuda", dtype=torch.bfloat16).requires_grad_(grad)
        for _ in range(3)
    ]


def forward(q, k, v):
    return attention(q, k, v, causal=True, return_choice=True)


def test_calls_within_a_capture_are_not_measured_and_the_next_outside_is(monkeypatch):
    """The first call is made before: outside of a capture the second would be measured."""
    q, k, v = tensors()
    due, first = forward(q, k, v)
    assert not first.is_measured
    calls = []
    original = brief_timing.medians
    monkeypatch.setattr(
        brief_timing, "medians", lambda *given, **more: calls.append(1) or original(*given, **more)
    )
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outs = [forward(q, k, v) for _ in range(4)]
    assert not calls and kept() == []
    for out, choice in outs:
        assert choice.backend == first.backend
        out.fill_(torch.nan)
    graph.replay()
    for out, _ in outs:
        assert torch.equal(out, due)

    taught, second = forward(q, k, v)
    assert calls == [1] and second.is_measured
    [lesson] = kept()
    assert len(lesson.microseconds) > 1
    torch.testing.assert_close(taught, due, atol=2e-2, rtol=2e-2)


def test_a_lesson_between_replays_leaves_the_graph_as_it_is():
    q, k, v = tensors()
    due, _ = forward(q, k, v)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out, _ = forward(q, k, v)
    forward(q, k, v)
    assert len(kept()) == 1
    for t in (q, k, v):
        t.copy_(torch.randn_like(t))
    graph.replay()
    accel.learning("off")
    again, _ = forward(q, k, v)
    torch.testing.assert_close(out, again, atol=2e-2, rtol=2e-2)
    assert not torch.equal(out, due)


def test_a_captured_training_step_is_not_measured_either():
    q, k, v = tensors(grad=True)

    def step():
        for t in (q, k, v):
            t.grad = None
        out, _ = forward(q, k, v)
        out.float().square().sum().backward()

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    accel.learning("off")
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    due = [t.grad.clone() for t in (q, k, v)]
    accel.learning("once")
    graph = torch.cuda.CUDAGraph()
    for t in (q, k, v):
        t.grad = None
    with torch.cuda.graph(graph):
        for _ in range(3):
            step()
    assert kept() == []
    graph.replay()
    for t, want in zip((q, k, v), due, strict=True):
        torch.testing.assert_close(t.grad, want, atol=5e-2, rtol=5e-2)
