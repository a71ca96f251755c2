"""Between call and launch: inputs like those before take a short way, which ends at the same
launch. With a driver that does nothing."""

import pytest
import torch

from gpudeck.accel.attention import attention, explain
from gpudeck.accel.runtime import launch
from tests.stub_driver import stub_driver

SHAPE = (2, 4, 48, 64)


class Seen:
    """Record launched kernels with the addresses of their tensors, and the number of plans."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.launched: list[tuple[launch.Launch, tuple[torch.Tensor, ...]]] = []
        original = launch.Launch.__call__

        def noted(kernel: launch.Launch, *tensors: torch.Tensor) -> None:
            self.launched.append((kernel, tensors))
            original(kernel, *tensors)

        patch.setattr(launch.Launch, "__call__", noted)

    def last(self) -> tuple[launch.Launch, tuple[torch.Tensor, ...]]:
        return self.launched[-1]


@pytest.fixture
def seen(monkeypatch):
    with stub_driver():
        yield Seen(monkeypatch)


def tensors(shape=SHAPE, dtype=torch.float16):
    return tuple(torch.randn(shape, dtype=dtype) for _ in range(3))


def sliced(offset):
    """Tensors that begin `offset` elements after a multiple of 16 bytes."""
    size = torch.Size(SHAPE).numel()
    return tuple(
        torch.randn(size + 64, dtype=torch.float16)[offset : offset + size].view(SHAPE)
        for _ in range(3)
    )


@pytest.mark.parametrize("backend", ["triton", "hopper"])
@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_the_second_call_launches_the_same_kernel_on_its_own_tensors(seen, backend, layout):
    shown = [
        (x, attention(*x, backend=backend, layout=layout, return_lse=True))
        for x in (tensors(), tensors())
    ]
    (first, _), (second, launched) = seen.launched
    assert first is second
    (q, k, v), (out, lse) = shown[1]
    assert [t.data_ptr() for t in launched[:5]] == [t.data_ptr() for t in (q, k, v, out, lse)]
    assert out.shape == q.shape and out.stride() == q.stride() and out.dtype == q.dtype
    assert lse.shape == (
        SHAPE[0],
        *((SHAPE[1], SHAPE[2]) if layout == "bhsd" else (SHAPE[2], SHAPE[1])),
    )
    assert lse.dtype == torch.float32 and lse.is_contiguous()


def test_what_a_kernel_depends_on_is_never_taken_from_another_call(seen):
    """Strides, alignment, dtype, rules: each has a plan of its own, however often the others came
    before."""
    q, k, v = tensors()
    turned = tuple(t.transpose(1, 2).contiguous().transpose(1, 2) for t in (q, k, v))
    calls = {
        "plain": lambda: attention(q, k, v, backend="triton"),
        "other strides": lambda: attention(*turned, backend="triton"),
        "unaligned": lambda: attention(*sliced(3), backend="triton"),
        "aligned slices": lambda: attention(*sliced(8), backend="triton"),
        "causal": lambda: attention(q, k, v, causal=True, backend="triton"),
        "scale": lambda: attention(q, k, v, scale=0.5, backend="triton"),
        "window": lambda: attention(q, k, v, window=(3, 2), backend="triton"),
        "softcap": lambda: attention(q, k, v, softcap=3.0, backend="triton"),
        "bfloat16": lambda: attention(*tensors(dtype=torch.bfloat16), backend="triton"),
        "hopper": lambda: attention(q, k, v, backend="hopper"),
    }
    kernels = {}
    for _ in range(2):
        for name, call in calls.items():
            call()
            assert kernels.setdefault(name, seen.last()[0]) is seen.last()[0], name
    assert kernels.pop("aligned slices") is kernels["plain"], "they begin at multiples of 16 bytes"
    assert len({id(kernel) for kernel in kernels.values()}) == len(kernels)
    arguments = {name: kernel.call.arguments for name, kernel in kernels.items()}
    assert [arguments[name]["q_ptr"].aligned for name in ("plain", "unaligned")] == [True, False]
    assert (
        arguments["other strides"]["q_strides"].head
        == turned[0].stride(1)
        != arguments["plain"]["q_strides"].head
    )


@pytest.mark.parametrize("backend", ["triton", "hopper"])
def test_what_has_to_be_copied_first_is_copied_at_every_call(seen, backend):
    """Scattered elements for both; for the copy engine also rows that begin anywhere, and head
    sizes that are no multiple of 8."""
    scattered = tuple(t.transpose(2, 3) for t in tensors((2, 4, 64, 48)))
    cases = [scattered] if backend == "triton" else [scattered, sliced(3), tensors((2, 4, 48, 20))]
    for x in cases:
        for _ in range(2):
            out = attention(*x, backend=backend)
            launched = seen.last()[1]
            assert launched[0].data_ptr() != x[0].data_ptr()
            assert out.shape == x[0].shape


def test_gradients_take_the_short_way_too_and_leave_with_the_shapes_of_the_inputs(seen):
    x = [t.requires_grad_() for t in tensors()]
    for _ in range(2):
        attention(*x, backend="triton").sum().backward()
    forwards = [
        kernel for kernel, _ in seen.launched if kernel.call.kernel.__name__ == "attention_short"
    ]
    assert len(forwards) == 2 and forwards[0] is forwards[1]
    assert all(t.grad is not None and t.grad.shape == t.shape for t in x)
    with torch.no_grad():
        assert attention(*x, backend="triton").grad_fn is None


def test_it_is_the_choice_that_is_explained(seen):
    q, k, v = tensors()
    for _ in range(2):
        _, chosen = attention(q, k, v, backend="hopper", return_choice=True)
        assert chosen == explain(q, k, v, backend="hopper")[0]


def test_tensors_without_strides_are_refused_after_dense_ones_like_them():
    q, k, v = tensors(dtype=torch.float32)
    attention(q, k, v, backend="math")
    for _ in range(2):
        with pytest.raises(ValueError, match="q must be an ordinary dense tensor"):
            attention(q.to_sparse(), k, v, backend="math")
