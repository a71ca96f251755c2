"""Test the GPU's kernels without a GPU: interpreted against the CPU's, and compiled for Hopper."""

from __future__ import annotations

import re

import pytest
import torch
import triton.language as tl

from gpudeck.accel.runtime.call import compile_kernel, source
from gpudeck.accel.rwkv import gpu, prompt
from gpudeck.accel.rwkv.model import RWKV7, State
from gpudeck.accel.rwkv.prompt import Prompt
from gpudeck.accel.rwkv.weights.names import canonical
from tests.unit.accel.compiled import SHARED_KIB, needs
from tests.unit.accel.rwkv.rwkv_models import Tensors, random_model

pytestmark = pytest.mark.xdist_group("interpreted")


def tensors(channels: int = 64) -> Tensors:
    w = canonical(random_model(layers=2, channels=channels, vocabulary=80))
    return {name: t.flatten() if t.numel() == max(t.shape) else t for name, t in w.items()} | {
        f"blocks.{i}.att.r_k": w[f"blocks.{i}.att.r_k"] for i in range(2)
    }


def step_error(dtype: torch.dtype, batch: int) -> float:
    """Return the relative error of logits and states after two tokens."""
    model = RWKV7(tensors(), dtype=dtype)
    state = State.join(model.forward([5, 7, i])[1] for i in range(batch))
    step = gpu.Step(model.weights, batch)
    _, ours = step(list(range(batch)), state)
    logits, ours = step([9] * batch, ours)
    _, known = model.step(list(range(batch)), state)
    known_logits, known = model.step([9] * batch, known)
    pairs = ((logits, known_logits), (ours.wkv, known.wkv), (ours.shift, known.shift))
    return max(float((a - b).float().norm() / b.float().norm()) for a, b in pairs)


@pytest.mark.parametrize(
    ("dtype", "batch"),
    [
        (torch.int8, 3),
        *(
            pytest.param(dtype, n, marks=pytest.mark.matrix)
            for dtype, n in ((torch.float32, 1), (torch.float16, 3), (torch.int8, 1))
        ),
    ],
)
def test_a_step_on_the_gpu_equals_the_step_on_the_cpu(interpreted, dtype, batch) -> None:
    assert interpreted(step_error, dtype, batch) < (5e-3 if dtype == torch.float16 else 1e-5)


def prompt_error(dtype: torch.dtype, length: int) -> float:
    """Return the relative error of the last layer's output for the last token, and of
    the states.
    """
    model = RWKV7(tensors(), dtype=dtype)
    _, state = model.forward([5, 7, 3])
    ids = [(37 * i) % 80 for i in range(length)]
    x, ours = Prompt(model.weights, length)(ids, state)
    known_x, known = model.last_layer([ids], state, lambda: None)
    pairs = ((x, known_x), (ours.wkv, known.wkv), (ours.shift, known.shift))
    return max(float((a - b).float().norm() / b.float().norm()) for a, b in pairs)


@pytest.mark.parametrize(
    ("dtype", "length"),
    [
        (torch.float32, 17),
        *(
            pytest.param(dtype, n, marks=pytest.mark.matrix)
            for dtype, n in ((torch.float32, 1), (torch.int8, 9))
        ),
    ],
)
def test_a_prompt_on_the_gpu_equals_the_prompt_on_the_cpu(interpreted, dtype, length) -> None:
    assert interpreted(prompt_error, dtype, length) < 1e-5


def error_in_chunks(length: int) -> float:
    """Return the error in float16, which the interpreter can multiply, unlike bfloat16."""
    prompt.CHUNKED, prompt.CHUNKS_FROM = (torch.float16,), 8
    return prompt_error(torch.float16, length)


@pytest.mark.parametrize("length", [9, pytest.param(130, marks=pytest.mark.matrix)])
def test_a_prompt_in_chunks_equals_the_prompt_on_the_cpu(interpreted, length) -> None:
    assert interpreted(error_in_chunks, length) < 5e-3


@pytest.mark.matrix
@pytest.mark.parametrize("batch", [1, 32, 128])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int8])
def test_every_kernel_compiles_for_hopper_with_few_register_spills(
    monkeypatch, dtype, batch
) -> None:
    monkeypatch.setattr(gpu, "prepare", lambda call, device: lambda *tensors: None)
    monkeypatch.setattr(gpu, "overlaps", lambda device: True)
    monkeypatch.setitem(gpu.COMPUTE, torch.float32, tl.bfloat16)  # A GPU computes int8 like this.
    calls = {
        source(call).hash(): call
        for call in gpu.Step(RWKV7(tensors(768), dtype=dtype).weights, batch).calls
    }
    kernels = {
        (call.kernel.__name__, *call.constants.values()): needs(compile_kernel(call, 90))
        for call in calls.values()
    }
    assert all(
        found.spilled <= 8 and found.shared <= SHARED_KIB[90] * 1024 for found in kernels.values()
    )
    assert all(
        "griddepcontrol.wait" in found.ptx
        for (_, *constants), found in kernels.items()
        if constants[-1]
    )
    narrow = [
        key
        for key, found in kernels.items()
        if key[0] in ("multiply", "project") and re.search(r"ld\.global\.b(8|16)\b", found.ptx)
    ]
    assert not narrow, "weights are loaded 16 bytes at a time"
    uses = [
        "mma.sync" in found.ptx or "wgmma" in found.ptx
        for (name, *_), found in kernels.items()
        if name == "project"
    ]
    assert all(uses) if batch > 1 else not any(uses)


@pytest.mark.matrix
@pytest.mark.parametrize("dtype", [torch.float32, torch.int8])
def test_every_prompt_kernel_compiles_for_hopper_with_wide_loads(monkeypatch, dtype) -> None:
    monkeypatch.setattr(prompt, "prepare", lambda call, device: lambda *tensors: None)
    model = RWKV7(tensors(768), dtype=dtype)
    planned = Prompt(model.weights, 512)
    planned([1] * 512, model.fresh())
    found = {
        (call.kernel.__name__, *call.constants.values()): needs(compile_kernel(call, 90))
        for call in planned.calls
    }
    assert {name for name, *_ in found} >= {
        "mix_rows",
        "prepare_recurrence",
        "scan",
        "finish_recurrence",
    }
    assert all(each.spilled == 0 for each in found.values())
    assert not [key for key, each in found.items() if re.search(r"ld\.global\.b(8|16)\b", each.ptx)]
    scans = [each.ptx for (name, *_), each in found.items() if name == "scan"]
    assert all(len(re.findall(r"cp\.async\.c[ag]", ptx)) >= 12 for ptx in scans), (
        "tokens are on their way before they are wanted"
    )
