"""The process that measures attention and products.

    python -m gpudeck.assistant.host.attention_tuner

The daemon starts it when programs have used shapes since it ran last
(`gpudeck.scheduler.services.helper_service`). It waits for idle devices without torch, leases a GPU
as the assistant does, measures, and ends: only the end of a process frees its GPU memory. It is
evicted like the assistant. Each measurement is kept as soon as it is made.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterator
from itertools import chain

from gpudeck.assistant.idle import Cancelled, wait_until_idle
from gpudeck.language.numbers import GIB
from gpudeck.language.text import Message
from gpudeck.scheduler.background.instance import run_alone
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.gpu_lease import GpuLease
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.snapshot import Snapshot

MEMORY = 4 * GIB
"""What must be free; shapes that would take more than a quarter of the free memory are left out."""

_LOG = logging.getLogger("attention tuner")


def measure_used_shapes() -> int:
    """Measure what programs used and nobody measured yet; return the number of measurements."""
    import torch

    from gpudeck.accel.attention import idle_lessons as attention
    from gpudeck.accel.primitives.gemm import idle_lessons as gemm
    from gpudeck.accel.runtime.capability import find_device

    device, count = find_device().torch_device, 0
    for text, direction, measure in chain(
        attention.find_pending(device), gemm.find_pending(device)
    ):
        with torch.no_grad():
            if measure():
                count += 1
                _LOG.info("measured: %s, %s", text, direction)
    return count


def work() -> int:
    """Wait for idle devices, lease a GPU, measure, and return the exit status."""
    begun = time.time()
    try:
        with Client(start=False) as daemon:
            wanted = [True]

            def with_settings() -> Iterator[Snapshot]:
                for snapshot in daemon.subscribe(live=False):
                    wanted[0] = snapshot.settings.tune_attention
                    yield snapshot

            wait_until_idle(with_settings(), lambda: not wanted[0])
        lease = GpuLease(_leave)
        lease.take(MEMORY)
    except Cancelled:
        return 0
    except UserError as e:  # also that the daemon is gone; it starts this process again
        _LOG.info("waits: %s", e)
        return 0
    _LOG.info("measured %d shapes", measure_used_shapes())
    file = paths.attention_tuned_file()
    file.touch(paths.PRIVATE_FILE)
    os.utime(file, (begun, begun))  # what was used meanwhile is gone through the next time
    return 0


def _leave(reason: Message) -> None:
    """End at once: the GPU is needed."""
    _LOG.info("evicted: %s", reason)
    os._exit(0)


def main() -> int:
    """Measure once; return the exit status."""
    lock = paths.home() / "attention_tuner.lock"
    return run_alone(lock, "another process measures attention", work)


if __name__ == "__main__":
    sys.exit(main())
