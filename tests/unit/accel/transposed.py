"""Find what Triton 3.4 to 3.7.0 compiles wrongly for Hopper, in the code between source and PTX.

A product (wgmma) leaves its sums in registers. Where they are transposed there and become a factor
of another product, wrong elements are multiplied (fla-org/flash-linear-attention, issues 640 and
984; triton-lang/triton, issue 6124).
"""

from __future__ import annotations

import re

_LINE = re.compile(
    r"^\s*(?:(?P<results>%[\w#:, %-]+?)\s*=\s*)?(?P<name>[\w.]+|\"[\w.]+\")(?P<rest>.*)$"
)
_VALUE = re.compile(r"%[\w-]+(?:#\d+)?")
_PRODUCT = "ttng.warp_group_dot"
_TRANSPOSITION = "order = array<i32: 1, 0>"


def fed_by_transposed_sums(ttgir: str) -> list[str]:
    """Return the lines of products, one factor of which is a product's sums, transposed.

    Loops are followed from what they carry to where it begins and to what the step before gave.
    """
    sources, products = _sources(ttgir)
    return [line for line, factors in products if any(_is_fed(f, sources) for f in factors)]


class _Names:
    """Tell apart values of one name: after a region its numbers are given again."""

    def __init__(self) -> None:
        self._scopes: list[dict[str, str]] = [{}]
        self._count = 0

    def define(self, name: str) -> str:
        """Return a name of its own for a value of this region."""
        self._count += 1
        self._scopes[-1][name] = f"{name}@{self._count}"
        return self._scopes[-1][name]

    def find(self, use: str) -> str:
        """Return the own name of a value that is used, with its place among several results."""
        name, _, place = use.partition("#")
        own = next((s[name] for s in reversed(self._scopes) if name in s), name)
        return f"{own}#{place or 0}"

    def enter(self) -> None:
        """Begin a region."""
        self._scopes.append({})

    def leave(self) -> None:
        """End a region."""
        self._scopes.pop()


def _sources(ttgir: str) -> tuple[dict[str, tuple[str, list[str]]], list[tuple[str, list[str]]]]:
    """Return the operation and the operands of every value, and the factors of every product."""
    sources: dict[str, tuple[str, list[str]]] = {}
    products: list[tuple[str, list[str]]] = []
    names, open_regions = _Names(), []
    for whole in ttgir.splitlines():
        line = whole.split(" loc(")[0].rstrip()
        if line.lstrip().startswith("}") and open_regions:
            names.leave()
            region = open_regions.pop()
            if line.endswith("{"):  # the other branch
                names.enter()
                open_regions.append(region)
            continue
        match = _LINE.match(line)
        if match is None:
            continue
        name, rest = match["name"].strip('"'), match["rest"]
        if name == "tt.trans" and _TRANSPOSITION not in rest:
            name = "permutation"  # of more dimensions, within a thread
        operands = [names.find(use) for use in _VALUE.findall(rest)]
        told = [r.partition(":") for r in re.findall(r"%[\w-]+(?::\d+)?", match["results"] or "")]
        results = []
        for text, _, count in told:
            own = names.define(text)
            results += [f"{own}#{i}" for i in range(int(count or 1))]
        for result in results:
            sources[result] = (name, list(operands))
        if name == _PRODUCT:
            products.append((line.strip(), operands[:2]))
            sources[results[0]] = (name, operands[2:3])
        elif name == _PRODUCT + "_wait":  # it hands on what it is given, one by one
            sources |= {r: (name, [o]) for r, o in zip(results, operands, strict=False)}
        elif name == "scf.yield" and open_regions:
            inside, outside = open_regions[-1]
            for held in (inside, outside):
                for value, given in zip(held, operands, strict=False):
                    sources[value][1].append(given)
        if line.endswith("{"):
            begun = [names.find(v) for v in re.findall(r"= (%[\w-]+(?:#\d+)?)", rest)]
            names.enter()
            inside = []
            if "iter_args(" in rest:
                carried = re.findall(r"(%[\w-]+) = ", rest.partition("iter_args(")[2])
                inside = [f"{names.define(value)}#0" for value in carried]
                begun = begun[-len(carried) :]
                sources |= {v: ("carried", [o]) for v, o in zip(inside, begun, strict=True)}
            for result in results:
                sources[result] = ("carried", [])
            open_regions.append((inside, results))
    return sources, products


def _is_fed(value: str, sources: dict[str, tuple[str, list[str]]]) -> bool:
    """Return whether sums reach a factor through a transposition in registers."""
    seen: set[tuple[str, bool]] = set()
    left = [(value, False)]
    while left:
        at = left.pop()
        source = sources.get(at[0])
        if at in seen or source is None:
            continue
        seen.add(at)
        name, operands = source
        if name == _PRODUCT and at[1]:
            return True
        turned = at[1] or name == "tt.trans"
        left += [(operand, turned) for operand in operands]
    return False
