"""A backend that fails when it runs is passed over where `auto` chose it, and named."""

import subprocess
import sys
import warnings

import pytest
import torch

from gpudeck.accel.attention import attention, dispatch, explain
from gpudeck.accel.attention.backends.torch_kernels import Flash
from gpudeck.accel.lessons.store import forget_choices


@pytest.fixture
def flash_fails(monkeypatch):
    """Let the backend that `auto` prefers on a CPU fail, in one of its passes."""

    def fail(name, error):
        def raise_it(*_):
            raise error

        monkeypatch.setattr(Flash, name, raise_it)
        monkeypatch.setattr(dispatch, "_FAILED", {})
        forget_choices()

    yield fail
    forget_choices()


def inputs(length=9):
    torch.manual_seed(0)
    return [torch.randn(1, 2, length, 8, requires_grad=True) for _ in range(3)]


@pytest.mark.parametrize("grad", [False, True])
def test_the_next_backend_answers_and_one_warning_says_why(flash_fails, grad):
    q, k, v = inputs()
    with torch.set_grad_enabled(grad):
        due = attention(q, k, v, backend="math")
        flash_fails("forward", TypeError("'NoneType' object is not callable\nand more"))
        with pytest.warns(
            UserWarning,
            match="^attention goes on without flash, which failed in the forward pass at batch 1,"
            " heads 2, .*: TypeError: 'NoneType' object is not callable$",
        ):
            out, choice = attention(q, k, v, return_choice=True)
        assert torch.equal(out, due) and choice.backend == "math"
        why = "it failed when it ran: TypeError: 'NoneType' object is not callable"
        assert f"not flash: {why}" in str(choice.reason) and f"no: {why}" in str(
            explain(q, k, v)[0]
        )
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert torch.equal(attention(q, k, v), due)
    assert explain(*inputs(300))[0].backend == "flash"  # other shapes may be computed


def test_gradients_come_from_the_next_backend(flash_fails):
    q, k, v = inputs()
    due = torch.autograd.grad(attention(q, k, v, backend="math").sum(), (q, k, v))
    flash_fails("backward", RuntimeError("no such kernel"))
    out, choice = attention(q, k, v, return_choice=True)
    with pytest.warns(UserWarning, match="flash, which failed in the backward pass"):
        grads = torch.autograd.grad(out.sum(), (q, k, v))
    assert choice.backend == "flash" and explain(q, k, v)[1].backend == "math"
    for ours, exact in zip(grads, due, strict=True):
        torch.testing.assert_close(ours, exact, rtol=1e-5, atol=1e-6)


def test_one_that_was_named_is_not_replaced_and_lacking_memory_is_not_its_fault(flash_fails):
    q, k, v = inputs()
    flash_fails("forward", torch.OutOfMemoryError("16 GiB"))
    for backend in ("flash", "auto"):
        with pytest.raises(torch.OutOfMemoryError):
            attention(q, k, v, backend=backend)
    flash_fails("forward", RuntimeError("no such kernel"))
    with pytest.raises(RuntimeError, match="no such kernel"):
        attention(q, k, v, backend="flash")
    assert not dispatch._FAILED


def test_if_every_backend_fails_the_error_says_so_and_the_next_call_why():
    """In a process of its own, in which no backend is prepared that other tests have used."""
    code = """if True:
        import torch
        from gpudeck.accel.attention import BACKENDS, attention, choose, describe
        def fail(*_):
            raise RuntimeError("first")
        for backend in BACKENDS.values():
            type(backend).forward = fail
        q, k, v = (torch.randn(1, 2, 9, 8) for _ in range(3))
        for call in (lambda: attention(q, k, v), lambda: choose(describe(q, k, v))):
            try:
                call()
            except (RuntimeError, ValueError) as e:
                print(type(e).__name__, e)"""
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=100
    )
    first, second = done.stdout.splitlines()
    assert first.startswith("RuntimeError") and "first" in first
    assert second.startswith("ValueError no backend can compute")
    assert "flash: it failed when it ran" in second
    assert "attention goes on without flash" in done.stderr
