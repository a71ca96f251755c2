"""Tell which state of the sources a measurement belongs to."""

from __future__ import annotations

import ast
import hashlib
import os
import subprocess
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = {
    "attention_zoo": ("accel/attention",),
    "attention_grid": ("accel/attention",),
    "attention_grid_peers": ("accel/attention",),
    "attention_flex": ("accel/attention",),
    "attention_flex_own": ("accel/attention",),
    "attention_fp8": ("accel/attention",),
    "attention_decoding": ("accel/attention",),
    "gemm": ("accel/primitives/gemm", "accel/primitives/tiles"),
    "gemm_auto": ("accel/primitives/gemm", "accel/primitives/tiles"),
    "grouped": ("accel/primitives/gemm", "accel/primitives/tiles"),
    "int4": ("accel/primitives/gemm", "accel/primitives/tiles"),
    "fp8_linear": ("accel/precision", "accel/primitives/gemm", "accel/primitives/quantize"),
    "fp8_linear_graphs": ("accel/precision", "accel/primitives/gemm", "accel/primitives/quantize"),
    "fp8_engine": ("accel/precision", "accel/primitives/gemm", "accel/primitives/quantize"),
    "linear_attention": ("accel/primitives/linear_attention", "accel/primitives/tiles"),
}
"""The folders of what is measured in each file of results."""


@lru_cache
def digest_sources(*folders: str) -> str:
    """Return eight hexadecimal digits that change when the code in these folders does.

    Comments, docstrings and the layout of Python do not count; every byte of CUDA C++ does.
    """
    hashed = hashlib.sha256()
    for folder in folders:
        for file in sorted((ROOT / folder).rglob("*")):
            if file.suffix == ".py":
                tree = ast.parse(file.read_text())
                _drop_docstrings(tree)
                hashed.update(f"{file.relative_to(ROOT)}\n{_outline(tree)}\n".encode())
            elif file.suffix == ".cu":
                hashed.update(f"{file.relative_to(ROOT)}\n".encode() + file.read_bytes())
    return hashed.hexdigest()[:8]


def _outline(node: object) -> str:
    """Return a syntax tree as text, the same in each version of Python.

    Later versions have fields that are empty unless their new syntax is used, so what is empty is
    left out.
    """
    if isinstance(node, list):
        return f"[{', '.join(map(_outline, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = (f"{n}={_outline(v)}" for n, v in ast.iter_fields(node) if v is not None and v != [])
    return f"{type(node).__name__}({', '.join(fields)})"


def _drop_docstrings(tree: ast.AST) -> None:
    """Remove the strings that stand alone as statements."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            body[:] = [
                each
                for each in body
                if not (
                    isinstance(each, ast.Expr)
                    and isinstance(each.value, ast.Constant)
                    and isinstance(each.value.value, str)
                )
            ]


@lru_cache
def find_commit() -> str:
    """Return the commit of the sources, with `+` behind it if they were changed since.

    Where there is no repository, as in a copy on another machine, it is the value of the
    environment variable `GPUDECK_COMMIT`, or empty.
    """
    told = os.environ.get("GPUDECK_COMMIT", "")
    if told or not (ROOT / ".git").exists():
        return told
    commit, changes = (
        subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for words in (("rev-parse", "--short=10", "HEAD"), ("status", "--porcelain", "-uno"))
    )
    return commit.strip() + ("+" if changes else "")
