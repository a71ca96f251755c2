"""Run a measurement without a GPU, to see that it works: its times mean nothing.

    python -m tests.benchmarks.suspension.stand_in MODULE ARGUMENT…

The stand-ins of NVML and of the driver that the tests use take the GPU's place, and every program
is one that only counts and holds a 64th of its memory.
"""

from __future__ import annotations

import os
import runpy
import sys
import tempfile
from pathlib import Path

from tests.integration.fake_gpu import sitecustomize
from tests.integration.test_suspend import HERE, ROOT
from tests.unit.scheduler.stub_cuda import build_library

SMI = """#!/bin/sh
total=0
for file in $FAKE_GPU/*.size; do
  pid=$(basename $file .size)
  test -d /proc/$pid || continue
  state=$(cat $FAKE_GPU/$pid.state 2>/dev/null || echo 0)
  test "$state" = 2 || total=$((total + $(cat $file) / 1048576))
done
echo $total
"""


def main() -> None:
    """Replace the GPU, and run the measurement in this process."""
    with tempfile.TemporaryDirectory(prefix="stand-in-") as name:
        folder = Path(name)
        folder.chmod(0o777)
        smi = folder / "bin" / "nvidia-smi"
        smi.parent.mkdir()
        smi.write_text(SMI)
        smi.chmod(0o755)
        build_library(folder)
        os.environ |= {
            "FAKE_GPU": name,
            "STUB_CUDA": name,
            "LD_LIBRARY_PATH": name,
            "PATH": f"{smi.parent}:{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join([str(HERE), str(ROOT), *sys.path[1:]]),
        }
        sitecustomize.FOLDER = folder
        sitecustomize.install()
        import pynvml

        uuid = str(pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(0)))
        (folder / "total").write_text(f"{sitecustomize.TOTAL // 64}\n")
        (folder / "uuid").write_text(uuid.removeprefix("GPU-").replace("-", ""))
        sys.argv = sys.argv[1:]
        runpy.run_module(f"tests.benchmarks.suspension.{sys.argv[0]}", run_name="__main__")


if __name__ == "__main__":
    main()
