"""What workloads there are and what can be asked of each. Torch-free: forms and command lines are built from it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Literal

import msgspec


class Param(msgspec.Struct, frozen=True):
    """One parameter of a workload, enough to build a form field or a command-line option from."""

    name: str
    label: str
    kind: Literal["int", "float", "choice", "flag"]
    default: str
    """As typed by a user; flags are "yes" or "no"."""
    help: str
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    cpu_default: str | None = None
    """The default on a machine without a GPU, where it differs."""

    def default_for(self, device_kind: str) -> str:
        """The default on a device of this kind (`nvidia`, `cpu`, `replay`)."""
        return self.cpu_default if device_kind == "cpu" and self.cpu_default is not None else self.default

    def check(self, value: str) -> None:
        """Raises ValueError, naming the parameter and what it takes."""
        if self.kind == "choice" and value not in self.choices:
            raise ValueError(f"{self.name} is one of {', '.join(self.choices)}; got {value!r}")
        if self.kind == "flag" and value not in ("yes", "no"):
            raise ValueError(f"{self.name} is yes or no; got {value!r}")
        if self.kind in ("int", "float"):
            self._check_number(value)

    def _check_number(self, value: str) -> None:
        word = "a whole number" if self.kind == "int" else "a number"
        try:
            number = int(value) if self.kind == "int" else float(value)
        except ValueError as e:
            raise ValueError(f"{self.name} is {word}; got {value!r}") from e
        low, high = self.minimum, self.maximum
        if (low is not None and not number >= low) or (high is not None and not number <= high):
            form = ".0f" if self.kind == "int" else "g"
            raise ValueError(f"{self.name} is {word} from {low:{form}} to {high:{form}}; got {value}")


class Workload(msgspec.Struct, frozen=True):
    name: str
    title: str
    summary: str
    module: str
    params: tuple[Param, ...]

    def complete(self, given: Mapping[str, str], device_kind: str) -> dict[str, str]:
        """`given` with the defaults filled in, all checked. Raises ValueError naming what is wrong."""
        known = {p.name: p for p in self.params}
        for name in given:
            if name not in known:
                raise ValueError(f"{self.name} has no parameter {name!r}. It has: {', '.join(known)}")
        values = {name: given.get(name, p.default_for(device_kind)) for name, p in known.items()}
        for name, value in values.items():
            known[name].check(value)
        return values

    def argv(self, values: Mapping[str, str]) -> list[str]:
        """The command that runs it, with this interpreter."""
        # -P: a folder called `accel` in the job's working directory must not stand in for ours.
        return [sys.executable, "-P", "-m", self.module, *(f"--{k.replace('_', '-')}={v}" for k, v in values.items())]


_SECONDS = Param("seconds", "Seconds", "float", "10", "how long the timed loop runs", minimum=0.1, maximum=3600, cpu_default="4")
_DTYPE = Param("dtype", "Data type", "choice", "bfloat16", "of the inputs", ("bfloat16", "float16", "float32"), cpu_default="float32")

WORKLOADS: tuple[Workload, ...] = (
    Workload(
        "attention",
        "Attention",
        "Scaled dot-product attention: checked against a float64 reference, then measured",
        "accel.workloads.attention",
        (
            Param("batch", "Batch", "int", "1", "sequences", minimum=1, maximum=4096),
            Param("heads", "Heads", "int", "16", "query heads", minimum=1, maximum=1024, cpu_default="4"),
            Param(
                "kv_heads",
                "K/V heads",
                "int",
                "0",
                "key/value heads (grouped-query attention); 0: as many as query heads",
                minimum=0,
                maximum=1024,
            ),
            Param("seq", "Sequence", "int", "16384", "tokens a sequence", minimum=1, maximum=1048576, cpu_default="1024"),
            Param("head_dim", "Head size", "int", "128", "elements a head", minimum=1, maximum=512, cpu_default="64"),
            Param("causal", "Causal", "flag", "no", "each token sees only those before it"),
            _DTYPE,
            Param(
                "backend", "Backend", "choice", "auto", "which implementation", ("auto", "flash", "cudnn", "efficient", "math", "reference")
            ),
            _SECONDS,
        ),
    ),
    Workload(
        "gemm",
        "Matrix product",
        "A square matrix product: the rate the tensor cores can reach here",
        "accel.workloads.gemm",
        (Param("size", "Size", "int", "8192", "rows and columns", minimum=16, maximum=65536, cpu_default="1024"), _DTYPE, _SECONDS),
    ),
    Workload(
        "copy",
        "Memory copy",
        "A large copy within the device: the bandwidth its memory can reach here",
        "accel.workloads.copy",
        (Param("mib", "MiB", "int", "2048", "size of the buffer", minimum=1, maximum=65536, cpu_default="256"), _SECONDS),
    ),
)


def find(name: str) -> Workload:
    """Raises ValueError naming the workloads there are."""
    for workload in WORKLOADS:
        if workload.name == name:
            return workload
    raise ValueError(f"no workload is called {name!r}. There are: {', '.join(w.name for w in WORKLOADS)}")
