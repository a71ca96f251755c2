"""The process that measures attention, on a CPU instead of the fake GPU: python tuner.py FAKE_GPU.

Only the device is another one: the lease, the wait, the backends and the files are the real ones.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch

from gpudeck.accel.attention import idle_lessons
from gpudeck.accel.lessons import usage
from gpudeck.accel.runtime import capability
from gpudeck.assistant.host import attention_tuner

GPU, SLOWLY = Path(sys.argv[1]), "slowly" in sys.argv
HELD = 3 * 2**30
usage.DEVICES = ("cpu",)
idle_lessons.contenders = lambda *_: ("flash", "math")
cpu = capability.ComputeDevice(torch.device("cpu"), "CPU", 1, 1, None)
torch.set_num_threads(1)
original = idle_lessons.tune


def tune(problem, direction):
    print("measures", flush=True)
    if SLOWLY and direction == "backward":
        time.sleep(600)
    return original(problem, direction)


def on_gpu():
    (GPU / "new").write_text(str(HELD))
    (GPU / "new").rename(GPU / str(os.getpid()))
    return cpu


idle_lessons.tune = tune
capability.find_device = on_gpu
sys.exit(attention_tuner.main())
