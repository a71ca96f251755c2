"""Code that Numba compiles is kept where it can be written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]


@pytest.mark.slow
def test_compiled_code_is_kept_in_the_state_folder_if_no_cache_is_writable(tmp_path) -> None:
    ignored, accel = shutil.ignore_patterns("__pycache__"), tmp_path / "gpudeck" / "accel"
    shutil.copytree(REPOSITORY / "gpudeck", tmp_path / "gpudeck", ignore=ignored)
    shutil.copytree(REPOSITORY / "accel", accel, ignore=ignored)
    (accel / "rwkv" / "__pycache__").write_text(
        "a file: nobody, not even root, makes a folder of it"
    )
    blocked = {
        name: str(accel / "result.py") for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "HOME")
    }
    run = subprocess.run(
        [
            sys.executable,
            "-P",
            "-c",
            "from gpudeck.accel.rwkv.cpu_kernels import matmul_int8 as kernel; "
            "print(kernel.stats.cache_path)",
        ],
        env={
            **os.environ,
            **blocked,
            "PYTHONPATH": str(tmp_path),
            "GPUDECK_HOME": str(tmp_path / "home"),
        },
        capture_output=True,
        check=True,
        text=True,
    )
    assert run.stdout.startswith(str(tmp_path / "home" / "compiled"))
