"""Take the picture of the page Your code: the change of a file, and its proof on a GPU.

    python -m tests.benchmarks.injection_picture

Reads results/injection.csv and writes docs/pictures/your-code.png. The scan and the change are made
anew; the proof is the one that `tests.benchmarks.injection` measured of the same file.
"""

from __future__ import annotations

import csv
import os
import tempfile
from pathlib import Path

from accel.inject.prove import Proof, Trial
from tests.benchmarks.injection import SAMPLES
from tests.benchmarks.rows import RESULTS

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


def measured(file: Path) -> Proof:
    """Return the proof that the rows hold."""
    with file.open(newline="") as f:
        rows = [row for row in csv.DictReader(f) if row["part"] == f"prove {FILE}"]
    return Proof(FILE, 0, "proved", "", tuple(map(_trial, rows)), device="cuda")


def _trial(row: dict[str, str]) -> Trial:
    ran = tuple(row["ran"].split("; "))
    numbers = (float(row[name]) for name in ("error_before", "error_after", "ms_before",
               "ms_after", "mib_kept_before", "mib_kept_after"))  # fmt: skip
    before, after, ms_before, ms_after, kept_before, kept_after = numbers
    linked = any(what.startswith("linked") for what in ran)
    kept = (int(kept_before * 2**20), int(kept_after * 2**20))
    passed = row["passed"] == "True"
    return Trial(row["case"], row["dtype"], linked, before, after, passed, ran, ms_before, ms_after,
                 *kept)  # fmt: skip


def main() -> None:
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    from app.code.requests import ScanCode
    from app.widgets import theme

    app = theme.application()
    theme.apply(app, "light")
    from PySide6.QtWidgets import QWidget

    from app.code.page import CodePage
    from app.link.link import Link
    from app.widgets.controls import row

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
        page._show_proof((measured(RESULTS / "injection.csv"),))
        app.processEvents()
        frame.grab().save(str(PICTURE))
        frame.close()


if __name__ == "__main__":
    main()
