"""Build the stand-in of the driver's library that suspends processes (see stub_cuda.c)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("stub_cuda.c")


def build_library(folder: Path) -> Path:
    """Build `libcuda.so.1` in a folder, and return the folder."""
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    command = ("cc", "-shared", "-fPIC", "-O1", "-o", folder / "libcuda.so.1", SOURCE)
    subprocess.run(command, check=True)
    return folder
