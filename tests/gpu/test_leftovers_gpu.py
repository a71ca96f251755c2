"""Answers do not hang on what shared memory and newly allocated tensors held before.

Both are full of NaN here. The emulator shows the same of the kernels that it runs; this shows it of
the machine code of all. The calls are those of `tests.gpu.sanitize`.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import pytest
import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from gpudeck.accel.runtime.call import KernelCall, Pointer
from gpudeck.accel.runtime.launch import Launch, prepare
from tests.gpu.sanitize import RUNS, most_error

if not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] != 9:
    pytest.skip("needs a Hopper GPU", allow_module_level=True)

NAN = 0x7FFF7FFF
"""NaN in float16, bfloat16, float32 and both types of FP8."""
PARTS = 7
"""Of 32 KiB each, which is nearly all shared memory of a multiprocessor."""


@gluon.jit
def fill_shared(out, pattern, parts: gl.constexpr):
    """Fill a multiprocessor's shared memory; reading it back keeps the compiler from leaving the
    writes out."""
    layout: gl.constexpr = gl.BlockedLayout([4], [32], [4], [0])
    memory = gl.allocate_shared_memory(
        gl.int32, [parts, 8192], gl.SwizzledSharedLayout(1, 1, 1, [0])
    )
    for i in gl.static_range(parts):
        memory.index(i).store(gl.full([8192], 0, gl.int32, layout) + pattern)
    held = gl.full([8192], 0, gl.int32, layout)
    for i in gl.static_range(parts):
        held = held | memory.index(i).load(layout)
    gl.store(out + gl.program_id(0) * 8192 + gl.arange(0, 8192, layout), held)


def fill():
    """Return a function that fills the shared memory of every multiprocessor."""
    device = torch.device("cuda", torch.cuda.current_device())
    programs = 2 * torch.cuda.get_device_properties(device).multi_processor_count
    out = torch.zeros(programs * 8192, dtype=torch.int32, device=device)
    arguments = {"out": Pointer(torch.int32), "pattern": NAN}
    filled = prepare(
        KernelCall(fill_shared, programs, arguments, {"parts": PARTS}, {"num_warps": 4}), device
    )

    def run():
        filled(out)
        torch.cuda.synchronize()

    run()
    assert (out == NAN).all()
    return run


@pytest.mark.parametrize("name", RUNS)
def test_what_memory_held_before_takes_no_part(name, monkeypatch):
    fill_all, launch = fill(), Launch.__call__

    def launched(self, *tensors):
        if self.call.kernel is not fill_shared:
            torch.cuda.synchronize()
            fill_all()
        launch(self, *tensors)

    def full_of_nan(make):
        def made(*given, **named):
            x = make(*given, **named)
            return x.fill_(float("nan")) if x.is_cuda and x.dtype.is_floating_point else x

        return made

    for allocate in ("empty", "empty_like"):
        monkeypatch.setattr(torch, allocate, full_of_nan(getattr(torch, allocate)))
    monkeypatch.setattr(Launch, "__call__", launched)
    assert RUNS[name]() <= most_error(name)
