"""Read the zoo: attention of 60 published models that no measured table may contain.

`auto` is tuned on other shapes, so its choices here are what a user gets. Heads and head sizes are
those of the models, whose configuration is named in the column `source` of attention_zoo.csv.
Lengths are what a prompt, a packed batch or an image leaves, mostly no multiple of a tile. The
rows stand in such an order that the first n of them are a fair sample of all groups.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from gpudeck.accel.attention.kernels.geometry import MLA_KEYS, MLA_VALUES
from gpudeck.accel.attention.problem import Problem, default_scale
from gpudeck.accel.attention.table import Place, place

Mask = Literal["none", "padding", "alibi", "learned"]
"""`padding` is a bool mask of the keys; `alibi` is added and fixed; `learned` needs a gradient."""

FILE = Path(__file__).with_name("attention_zoo.csv")
GPUS = ("NVIDIA H100 80GB HBM3", "NVIDIA H200")


@dataclass(frozen=True)
class ModelShape:
    """Describe one attention problem of a published model."""

    group: str
    """What the shape stands for."""
    name: str
    batch: int
    heads: int
    kv_heads: int
    seq_q: int
    seq_k: int
    head_dim: int
    causal: bool = False
    left: int | None = None
    softcap: float = 0.0
    mask: Mask = "none"
    lengths: tuple[int, ...] = ()
    """Of the sequences of a ragged batch."""
    trained: bool = True
    """False if only the forward pass is of use, as in decoding."""
    source: str = ""
    """The model's configuration, by the name of its repository."""
    value_dim: int = 0
    """The size of a value, where it differs from `head_dim`; 0 where it does not."""

    @property
    def absorbed(self) -> bool:
        """Return whether the values are a part of the keys, as in MLA's absorbed form."""
        return self.head_dim == MLA_KEYS and self.value_dim == MLA_VALUES

    @property
    def place(self) -> Place:
        """Return where dispatch looks it up in a table."""
        return place(self.batch * self.heads, self.seq_q, self.seq_k)

    def problem(self, device: torch.device, dtype: torch.dtype = torch.bfloat16) -> Problem:
        """Return the problem as dispatch sees it."""
        return Problem(
            self.batch,
            self.heads,
            self.kv_heads,
            self.seq_q,
            self.seq_k,
            self.head_dim,
            dtype,
            device,
            (9, 0),
            default_scale(self.head_dim),
            left=self.left,
            right=0 if self.causal else None,
            softcap=self.softcap,
            bias={"none": "none", "padding": "bool"}.get(self.mask, "float"),
            bias_grad=self.mask == "learned",
            ragged=bool(self.lengths),
        )

    @property
    def flops(self) -> float:
        """Return the operations of the forward pass, of unmasked elements only."""
        pairs = self.batch * self.problem(torch.device("cuda")).pairs
        if self.lengths:
            pairs = sum(n * (n + 1) // 2 if self.causal else n * n for n in self.lengths)
        return 2.0 * self.heads * pairs * (self.head_dim + (self.value_dim or self.head_dim))


def read(file: Path) -> tuple[ModelShape, ...]:
    """Return the shapes of a file."""
    with file.open(newline="") as f:
        return tuple(map(_shape, csv.DictReader(f)))


def _shape(row: dict[str, str]) -> ModelShape:
    sizes = ("batch", "heads", "kv_heads", "seq_q", "seq_k", "head_dim")
    value_dim = int(row["value_dim"])
    return ModelShape(
        row["group"],
        row["name"],
        *(int(row[name]) for name in sizes),
        causal=row["causal"] == "yes",
        left=int(row["left"]) if row["left"] else None,
        softcap=float(row["softcap"] or 0.0),
        mask=row["mask"],  # type: ignore[arg-type]
        lengths=tuple(map(int, row["lengths"].split("+"))) if row["lengths"] else (),
        trained=row["trained"] == "yes",
        source=row["source"],
        value_dim=0 if value_dim == int(row["head_dim"]) else value_dim,
    )


SHAPES = read(FILE)
