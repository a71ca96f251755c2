"""Take the picture of the page Your code: the change of a file, and its proof.

    python -m tests.benchmarks.injection_picture

Scans, changes and proves a file anew, on a GPU if there is one, and writes
docs/pictures/your-code.png. On a CPU the second input is as long as those of programs are, so that
its time means something.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import msgspec
import torch

from gpudeck.accel.inject import proving
from gpudeck.accel.inject.guesses import Sizes
from gpudeck.accel.inject.rewrite import changes
from tests.benchmarks.injection import SAMPLES

PICTURE = Path(__file__).parents[2] / "docs" / "pictures" / "your-code.png"
SIZE = (1280, 640)
FILE = "causal.py"
CONFIG = """

class Config:
    block_size = 2048
    n_head = 16
    n_embd = 1024
"""
LEFT = """

def attention_map(q, k, v):
    weights = (q @ k.transpose(-2, -1)).softmax(-1)
    return weights @ v, weights
"""


def proved(file: Path) -> tuple[proving.Proof, ...]:
    """Prove the change of a file in this process."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    proving.SIZES["cpu"] = (Sizes(), Sizes(1, 8, 1024, 64))
    (change,), _ = changes([file])
    return tuple(msgspec.structs.replace(p, device=device) for p in proving.prove(change, device))


def main() -> None:
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    from gpudeck.app.code.requests import ScanCode
    from gpudeck.app.widgets import theme

    app = theme.application()
    theme.apply(app, "light")
    from PySide6.QtWidgets import QWidget

    from gpudeck.app.code.page import CodePage
    from gpudeck.app.link.link import Link
    from gpudeck.app.widgets.controls import row

    with tempfile.TemporaryDirectory() as folder:
        os.environ["GPUDECK_HOME"] = f"{folder}/home"
        root = Path(folder, "gpt")
        root.mkdir()
        (root / "model.py").write_text(SAMPLES[FILE].lstrip() + CONFIG + LEFT)
        page, frame = CodePage(Link()), QWidget()
        layout = row(page)
        layout.setContentsMargins(theme.L, theme.L, theme.L, theme.L)
        frame.setLayout(layout)
        frame.resize(*SIZE)
        frame.show()
        page.path.setText("~/gpt")
        page._show_found(ScanCode(str(root)).carry_out(None))  # type: ignore[arg-type]
        page._show_proof(proved(root / "model.py"))
        app.processEvents()
        frame.grab().save(str(PICTURE))
        frame.close()


if __name__ == "__main__":
    main()
