"""Write and read meanings as symbols: a subject or a verb, and its parts in a fixed order.

`devices m=temp a=max who dev: n1` asks which of some GPUs is the hottest; `do:cancel group: g1
exc: n1` cancels a group but for some jobs. A part that ends in a colon is followed by a slot of the
request, or by `prev`, which is what the last request was about.
"""

from __future__ import annotations

from collections.abc import Sequence

Part = tuple[str, str]
"""A kind and its value, such as `("m", "temp")` or `("dev:", "n1")`."""
ORDER = (
    "m", "set", "guide", "how", "what", "a", "by", "who", "when", "s", "one", "vs", "sort",
    "cost", "ahead", "workload", "command:", "group:", "tag:", "job:", "o1", "o2", "o3", "o-1",
    "first:", "last:", "notfirst:", "notlast:", "exc:", "dev:", "step", "above:", "below:",
    "limit:", "number:", "gpus:", "amount:", "mem:", "name:", "time:", "since", "place",
    "beside:", "text:", "value:", "value", "to", "pdf",
)  # fmt: skip
_RANK = {name: rank for rank, name in enumerate(ORDER)}
AND = "&"
"""Stands between two questions that are asked at once."""
PLAN = "plan"
"""Stands before an order whose effect is asked for, which is not to be carried out."""


def parts(side: str) -> list[Part]:
    """Return the parts of a meaning behind its subject."""
    symbols, found, i = side.split()[1:], list[Part](), 0
    while i < len(symbols):
        if symbols[i].endswith(":"):
            found.append((symbols[i], symbols[i + 1] if i + 1 < len(symbols) else ""))
            i += 2
        else:
            kind, _, value = symbols[i].partition("=")
            found.append((kind, value))
            i += 1
    return found


def joined(subject: str, *groups: Sequence[Part]) -> str:
    """Return a meaning with its parts in order."""
    found = sorted((part for group in groups for part in group), key=lambda part: _RANK[part[0]])
    words = [
        kind + (f" {value}" if value else "") if kind.endswith(":")
        else f"{kind}={value}" if value else kind
        for kind, value in found
    ]  # fmt: skip
    return " ".join([subject, *words])


def canonical(meaning: str) -> str:
    """Return a meaning with the parts of each side in order."""
    sides = []
    for side in meaning.split(f" {AND} "):
        plan = side.startswith(f"{PLAN} ")
        rest = side.removeprefix(f"{PLAN} ")
        sides.append(f"{PLAN} " * plan + joined(rest.split()[0], parts(rest)))
    return f" {AND} ".join(sides)
