"""What a request names, out of the model's sight: `cancel job 1234` becomes `cancel job {n1}`, and what the model says is filled in again.

So numbers and names pass the model unread: none can be garbled, and a job's name that reads like an order is no order.
"""

from __future__ import annotations

import re

_MASKED = re.compile(r"\"[^\"\n]{1,80}\"|'[^'\n]{1,80}'|`[^`\n]{1,80}`|[\w./-]*[A-Za-z][\w./-]*[\d_./-][\w./-]*\w|\d+(?:\.\d+)?")
_JOINED = re.compile(r"\b(gpu|job|card|device)[ #]*(\d+)\b", re.IGNORECASE)
_SLOT = re.compile(r"\{([nw]\d{1,2})\}")


def masked(request: str) -> tuple[str, dict[str, str]]:
    """The request with slots for numbers ({n1}, {n2}, ...) and for quoted words and identifiers ({w1}, ...), and what they stand for."""
    values: dict[str, str] = {}

    def slot(found: re.Match[str]) -> str:
        kind = "n" if found[0][0].isdigit() and found[0].replace(".", "").isdigit() else "w"
        name = f"{kind}{1 + sum(known[0] == kind for known in values)}"
        values[name] = found[0].strip("\"'`")
        return f"{{{name}}}"

    plain = _JOINED.sub(r"\1 \2", request.replace("{", "(").replace("}", ")"))
    return _MASKED.sub(slot, plain), values


def filled(text: str, values: dict[str, str]) -> str:
    """Slots replaced by what they stand for. Raises ValueError for one that stands for nothing."""

    def value(found: re.Match[str]) -> str:
        if found[1] not in values:
            raise ValueError(f"there is no {found[0]} in the request")
        return values[found[1]]

    return _SLOT.sub(value, text)
