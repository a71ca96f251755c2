"""Count what ran at each place of the program where attention was linked."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import torch

_OURS = str(Path(__file__).parent)
_COUNTS: dict[tuple[str, int], Counter[str]] = {}


def ran(what: str) -> None:
    """Count `what` at the line of the program that is running; compiled code is not counted."""
    if torch.compiler.is_compiling():
        return
    frame = sys._getframe(1)
    while frame.f_back and (
        frame.f_code.co_filename.startswith(_OURS) or _of_torch(frame.f_code.co_filename)
    ):
        frame = frame.f_back
    _COUNTS.setdefault((frame.f_code.co_filename, frame.f_lineno), Counter())[what] += 1


def _of_torch(file: str) -> bool:
    return file.startswith(_TORCH)


_TORCH = str(Path(torch.__file__).parent)


def report() -> list[dict[str, str | int]]:
    """Return what ran where, and how often: `linked`, or `computed as written` and why."""
    return [
        {"file": file, "line": line, "what": what, "calls": calls}
        for (file, line), counts in sorted(_COUNTS.items())
        for what, calls in sorted(counts.items())
    ]


def clear() -> None:
    """Forget all counts."""
    _COUNTS.clear()
