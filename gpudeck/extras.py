"""Name the optional parts of GPU Deck, and how to install one that is missing."""

from __future__ import annotations

import os.path
import shlex
import sys
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from gpudeck.language.text import Text

EXTRAS = {
    "window": ("PySide6", "pyqtgraph", "jeepney"),
    "compute": ("torch", "safetensors", "triton"),
    "assistant": (
        "babel", "huggingface_hub", "jinja2", "llguidance", "markdown_it", "numba", "starlette",
        "tokenizers", "uvicorn",
    ),
    "web": ("babel", "starlette", "uvicorn"),
    "mcp": ("mcp",),
    "parquet": ("pyarrow",),
    "search": ("sklearn",),
    "jax": ("jax",),
    "rwkv": ("rwkv",),
}  # fmt: skip
"""The extras of the package, and the packages that each of them needs to be of use."""
PARTS = ("window", "compute", "assistant", "web", "mcp", "parquet", "search")
"""The extras that `all` brings."""


class Missing(NamedTuple):
    """Describe a package that is not installed."""

    package: str
    extra: str
    """The extra of GPU Deck that brings it."""

    @property
    def command(self) -> str:
        """Return the command that adds the extra to the environment of this process."""
        python = shlex.quote(sys.executable)
        if os.access(os.path.join(sys.prefix, "pipx_metadata.json"), os.F_OK):
            tool = "pipx inject gpudeck"
        else:
            pip = is_installed("pip")
            tool = f"{python} -m pip install" if pip else f"uv pip install -p {python}"
        return f"{tool} 'gpudeck[{self.extra}]'"

    @property
    def text(self) -> Text:
        """Return what is missing and the command that installs it."""
        from gpudeck.language.text import phrase  # environments without any package are looked at

        return phrase(
            "{package} is not installed. Install the part “{extra}” of GPU Deck with: {command}",
            package=self.package,
            extra=self.extra,
            command=self.command,
        )

    def __str__(self) -> str:
        return str(self.text)


@cache
def is_installed(package: str) -> bool:
    """Return whether a package can be imported, without importing it."""
    return find_spec(package) is not None


def missing_of(*extras: str) -> Missing | None:
    """Return the first package of these extras that is not installed; None if all are."""
    for extra in extras:
        for package in EXTRAS[extra]:
            needed = package != "triton" or sys.platform == "linux"
            if needed and not is_installed(package):
                return Missing(package, extra)
    return None


def missing_by(error: ModuleNotFoundError) -> Missing | None:
    """Return what an import failed for; None where no extra brings that package."""
    package = (error.name or "").partition(".")[0]
    extra = next((extra for extra, packages in EXTRAS.items() if package in packages), None)
    return None if extra is None else Missing(package, extra)
