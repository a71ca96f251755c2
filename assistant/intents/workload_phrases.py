"""Find the parameters of a workload in a request, such as `gemm with size 4096, seconds=2`."""

from __future__ import annotations

import re

from gpudeck.accel.workloads.catalog import Workload

_VALUE = r"(?:\s*[=:]\s*|\s+(?:of|is|to)?\s*)([\w.,-]*\w)"


def read_parameters(workload: Workload, request: str) -> tuple[dict[str, str], str]:
    """Return the parameters that a request names, and the request without them.

    Names and labels match in any case; values are returned as they were typed, unchecked.
    """
    found: dict[str, str] = {}
    for param in workload.params:
        spellings = {param.name, param.name.replace("_", "-"), param.label.lower()}
        names = "|".join(re.escape(name) for name in spellings)
        match = re.search(rf"(?<![\w-])(?:{names})\b{_VALUE}", request, re.IGNORECASE)
        if match is None:
            continue
        value = match[1].lower()
        if not any(character.isdigit() for character in value) and value not in param.choices:
            continue  # a word that only follows the name, as in: with causal attention
        found[param.name] = value
        request = f"{request[: match.start()]} , {request[match.end() :]}"
    return found, request
