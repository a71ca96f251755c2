"""Read machine code for compute capability 7.5: resources, and the main loop's instructions."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import triton

_TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
_INSTRUCTION = re.compile(
    r"^\s+/\*[0-9a-f]+\*/\s+(?P<guard>@!?U?P\d+ )?\s*(?P<name>[A-Z0-9_.]+)(?P<rest>[^;]*);"
)
_LABEL = re.compile(r"^(\.L_x_\d+):")
_TARGET = re.compile(r"`\((\.L_x_\d+)\)")
_MOVES = ("LDG", "STS")


class Block(NamedTuple):
    """Instructions without a branch between them."""

    names: tuple[str, ...]
    after: tuple[int, ...]
    """The numbers of the blocks that may come next."""


def main_loop(code: bytes) -> Counter[str]:
    """Return how often each instruction is executed in a turn of the main loop, by full name.

    It is the way through the loop that moves most tiles, which every turn but the last does, and
    then the shortest, without masks and without the ends of sequences.
    """
    blocks = _blocks(_run("nvdisasm", code, "-c"))
    loops = [(after, i) for i, b in enumerate(blocks) for after in b.after if after <= i]
    first, last = max(loops, key=lambda loop: _count(blocks[loop[0] : loop[1] + 1], "HMMA"))
    best: dict[int, tuple[int, int, tuple[int, ...]]] = {first: (0, 0, ())}
    for i in range(first, last + 1):
        if i not in best:
            continue
        moves, steps, way = best[i]
        block = blocks[i]
        here = (moves - _count([block], *_MOVES), steps + len(block.names), (*way, i))
        if i == last:
            return Counter(name for at in here[2] for name in blocks[at].names)
        for after in block.after:
            if i < after <= last and (after not in best or here[:2] < best[after][:2]):
                best[after] = here
    raise AssertionError("the loop has no end")


def _count(blocks: list[Block], *names: str) -> int:
    return sum(name.partition(".")[0] in names for block in blocks for name in block.names)


def _blocks(text: str) -> list[Block]:
    """Cut a disassembly into blocks; labels are numbered by the block that they begin."""
    names: list[list[str]] = [[]]
    targets: dict[int, str] = {}
    ends: set[int] = set()
    begins: dict[str, int] = {}
    for line in text.splitlines():
        if label := _LABEL.match(line):
            names.append([])
            begins[label[1]] = len(names) - 1
        elif found := _INSTRUCTION.match(line):
            names[-1].append(found["name"])
            kind = found["name"].partition(".")[0]
            if kind not in ("BRA", "EXIT", "RET"):
                continue
            at = len(names) - 1
            if target := _TARGET.search(found["rest"]):
                targets[at] = target[1]
            # a branch depends on a predicate before it, or on one among its operands
            if not found["guard"] and "P" not in found["rest"].partition("`")[0]:
                ends.add(at)
            names.append([])
    return [Block(tuple(of), tuple(_after(i, targets, ends, begins))) for i, of in enumerate(names)]


def _after(
    i: int, targets: dict[int, str], ends: set[int], begins: dict[str, int]
) -> Iterator[int]:
    if i in targets:
        yield begins[targets[i]]
    if i not in ends:
        yield i + 1


@cache
def _run(tool: str, code: bytes, *options: str) -> str:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(code)
        file.flush()
        told = [str(_TOOLS / tool), *options, file.name]
        return subprocess.run(told, capture_output=True, text=True, check=True).stdout
