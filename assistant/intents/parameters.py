"""The parameters of a workload that a request names: `gemm with size 4096, seconds=2`. Read by code, whoever found the tool."""

from __future__ import annotations

import re
from collections.abc import Mapping

from accel.workloads import catalog

_VALUE = r"(?:\s*[=:]\s*|\s+(?:of|is|to)?\s*)([\w.,-]*\w)"


def parameters(workload: catalog.Workload, request: str) -> Mapping[str, str]:
    """By their names or labels, in any case; as they were said, unchecked."""
    found = {}
    for param in workload.params:
        names = "|".join(
            re.escape(name)
            for name in {param.name, param.name.replace("_", "-"), param.label.lower()}
        )
        if said := re.search(rf"(?<![\w-])(?:{names})\b{_VALUE}", request, re.IGNORECASE):
            value = said[1].lower()
            if not any(character.isdigit() for character in value) and value not in param.choices:
                continue  # a word that only follows the name, as in: with causal attention
            found[param.name] = value
    return found
