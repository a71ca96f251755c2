"""Find what Triton 3.4 to 3.7.0 compiles wrongly for Hopper, in the code between source and PTX.

A product (wgmma) leaves its sums in registers. Where they are transposed there and become a factor
of another product, wrong elements are multiplied (fla-org/flash-linear-attention, issues 640 and
984; triton-lang/triton, issue 6124).
"""

from __future__ import annotations

import re

_LINE = re.compile(
    r"^\s*(?:(?P<results>%[\w#:, %]+?)\s*=\s*)?(?P<name>[\w.]+|\"[\w.]+\")(?P<rest>.*)$"
)
_VALUE = re.compile(r"%[\w]+(?:#\d+)?")
_PRODUCT = "ttng.warp_group_dot"


def fed_by_transposed_sums(ttgir: str) -> list[str]:
    """Return the lines of products, one factor of which is a product's sums, transposed.

    Loops are followed from what they carry to where it begins and to what the step before gave.
    """
    sources, products = _sources(ttgir)
    return [line for line, factors in products if any(_is_fed(f, sources) for f in factors)]


def _sources(ttgir: str) -> tuple[dict[str, tuple[str, list[str]]], list[tuple[str, list[str]]]]:
    """Return the operation and the operands of every value, and the factors of every product."""
    sources: dict[str, tuple[str, list[str]]] = {}
    products: list[tuple[str, list[str]]] = []
    loops: list[tuple[list[str], list[str]]] = []
    for line in ttgir.splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        name, rest = match["name"].strip('"'), match["rest"].split(" loc(")[0]
        results = [r.split(":")[0] for r in _VALUE.findall(match["results"] or "")]
        operands = _VALUE.findall(rest)
        if name == "scf.for" and "iter_args(" in rest:
            carried = re.findall(r"(%\w+) = (%\w+(?:#\d+)?)", rest.partition("iter_args(")[2])
            for inside, before in carried:
                sources[inside] = ("carried", [before])
            loops.append(([inside for inside, _ in carried], results))
            continue
        if name == "scf.yield" and loops:
            inside, outside = loops.pop()
            for i, value in enumerate(operands[: len(inside)]):
                sources[inside[i]][1].append(value)
                for result in outside:
                    sources[f"{result}#{i}"] = ("carried", [value])
                    if len(inside) == 1:
                        sources[result] = ("carried", [value])
            continue
        if name == _PRODUCT:
            products.append((line.strip(), operands[:2]))
            operands = operands[2:3]
        for result in results:
            sources[result] = (name, operands)
    return sources, products


def _is_fed(value: str, sources: dict[str, tuple[str, list[str]]]) -> bool:
    """Return whether sums reach a factor through a transposition in registers."""
    seen: set[tuple[str, bool]] = set()
    left = [(value, False)]
    while left:
        at = left.pop()
        source = sources.get(at[0]) or sources.get(at[0].partition("#")[0])
        if at in seen or source is None:
            continue
        seen.add(at)
        name, operands = source
        if name == _PRODUCT and at[1]:
            return True
        turned = at[1] or name == "tt.trans"
        left += [(operand, turned) for operand in operands]
    return False
