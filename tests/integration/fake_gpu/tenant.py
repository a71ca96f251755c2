"""A tenant as the assistant is one, with a lease and memory on the fake GPU: python tenant.py
FAKE_GPU MANNER.

MANNER: `obeys` ends when it is told to, `ignores` goes on; `insists` asks until it has the GPU.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

from gpudeck.scheduler.gpu_lease import GpuLease
from gpudeck.scheduler.protocol.errors import UserError

GPU, MANNER = Path(sys.argv[1]), sys.argv[2]
HELD = 3 * 2**30
told = threading.Event()
why: list[str] = []


def hear(reason: str) -> None:
    why.append(reason)
    told.set()


while True:
    try:
        GpuLease(hear).take(HELD)
        break
    except UserError:
        if MANNER != "insists":
            raise
        time.sleep(0.05)
(GPU / "new").write_text(str(HELD))
(GPU / "new").rename(GPU / str(os.getpid()))
print("leased", os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
told.wait()
print(why[0], flush=True)
if MANNER == "ignores":
    time.sleep(600)
os._exit(0)
