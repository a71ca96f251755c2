"""Walk from a program's first call of `attention` to the launch of the kernel."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import replace
from tempfile import TemporaryDirectory
from unittest.mock import patch

from tests.walks.noting import Way, noted


def first_attention_on_hopper() -> dict[str, Way]:
    """Walk from a program's first call of `attention` to the launch of the kernel.

    The tensors are on the CPU, the driver does nothing, and the problem says that it is on an H100,
    at a shape that no table holds.
    """
    import torch

    from gpudeck.accel.attention import BACKENDS, attention, inputs, table
    from gpudeck.accel.attention.backends.own import Hopper
    from gpudeck.accel.attention.lessons import STORE
    from tests.stub_driver import stub_driver

    describe, rules = inputs.Problem, Hopper.rules
    on_hopper = {"device": torch.device("cuda", 0), "capability": (9, 0)}
    BACKENDS["hopper"].load()
    x = [torch.empty(3, 12, 3000, 128, dtype=torch.bfloat16) for _ in range(3)]
    with ExitStack() as stack:
        home = stack.enter_context(TemporaryDirectory())
        stack.enter_context(patch.dict(os.environ, GPUDECK_HOME=home))
        stack.enter_context(stub_driver())
        for name, value in {
            "is_available": lambda: True,
            "get_device_name": lambda _=None: "NVIDIA H100 80GB HBM3",
        }.items():
            stack.enter_context(patch.object(torch.cuda, name, value))
        stack.enter_context(patch.object(Hopper, "rules", rules))
        stack.enter_context(
            patch.object(inputs, "Problem", lambda **given: replace(describe(**given), **on_hopper))
        )
        STORE.forget()
        table.forget()
        with noted() as way:
            attention(*x, causal=True)
    return {"": way}
