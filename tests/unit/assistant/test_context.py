"""Taking the context down where there is none. What it does to one is shown on a GPU (tests/gpu/test_assistant_gpu.py)."""

from __future__ import annotations

import subprocess
import sys


def test_who_has_nothing_on_a_gpu_has_nothing_to_take_down() -> None:
    code = (
        "import sys; from assistant.context import take_down; assert not take_down(); assert 'torch' not in sys.modules; "
        "import torch; print(take_down())"
    )
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "False\n"
