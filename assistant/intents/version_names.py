"""Find which programs' versions a question names; these are names, as those of settings."""

from __future__ import annotations

import re

_NAMES = {
    "gpudeck": re.compile(r"(?i)\bgpu[ -]?deck\b"),
    "driver": re.compile(r"(?i)driver|treiber|\bpilotes?\b|controlador"),
    "cuda": re.compile(r"(?i)\b(?:cuda|nvcc)\b"),
    "torch": re.compile(r"(?i)\b(?:py)?torch\b"),
    "triton": re.compile(r"(?i)\btriton\b"),
}


def named_versions(text: str) -> list[str]:
    """Return the measures of the subject `versions` that a text names, in the table's order."""
    return [name for name, pattern in _NAMES.items() if pattern.search(text)]
