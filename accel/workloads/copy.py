"""Measure a copy within the device's memory.

Run `python -P -m gpudeck.accel.workloads.copy --mib=2048 ...`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from gpudeck.accel.result import Check
from gpudeck.accel.workloads.harness import main, require
from gpudeck.accel.workloads.options import Values
from gpudeck.accel.workloads.task import Task
from gpudeck.language.text import phrase

if TYPE_CHECKING:
    from torch import Tensor

    from gpudeck.accel.runtime.capability import ComputeDevice

WORDS_AT_ONCE = 1 << 24


def prepare(values: Values, device: ComputeDevice) -> Task:
    """Copy a buffer of random bytes to another; each byte is read once and written once."""
    import torch

    size = values.integer("mib") * 2**20
    require(device, 2.0 * size)
    source = torch.empty(size // 8, dtype=torch.int64, device=device.torch_device).random_()
    target = torch.zeros_like(source)

    def call() -> Tensor:
        return target.copy_(source)

    return Task(
        "torch.Tensor.copy_",
        phrase("torch's own copy"),
        call,
        lambda: compare(call(), source),
        moved=2.0 * size,
    )


def compare(copied: Tensor, source: Tensor) -> tuple[Check, ...]:
    """Check that every word is the same."""
    import torch

    # In pieces: comparing all at once would take more memory than the two buffers.
    pairs = zip(torch.split(copied, WORDS_AT_ONCE), torch.split(source, WORDS_AT_ONCE), strict=True)
    wrong = sum(int((a != b).sum()) for a, b in pairs)
    return (Check(phrase("share of words that differ"), wrong / len(source), 0.0),)


if __name__ == "__main__":
    sys.exit(main("copy", prepare))
