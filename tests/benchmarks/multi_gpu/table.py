"""Write the table of the manual's page about several GPUs from the measured rows.

    python -m tests.benchmarks.multi_gpu.table

It stands between `<!-- shares of the ideal -->` and `<!-- end of shares -->`; a test compares it.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path

from tests.benchmarks.rows import RESULTS

PAGE = Path(__file__).parents[3] / "docs" / "manual" / "distributed.md"
_MARKED = re.compile(r"(<!-- shares of the ideal -->\n).*?(<!-- end of shares -->)", re.S)
_HEAD = """\
| 128 elements a head, bf16 | cards | forward: ours | best peer | both passes: ours | best peer |
|---|---|---|---|---|---|"""
RUNS = ("7", "6", "5")
"""The last run that measured a cell counts."""
SETTINGS = ("", "two kinds of slots, two at a time", "two kinds of slots, three at a time")
"""The first one that was measured in a cell's run counts; the program has it."""
_NAMES = ("documents", "causal", "heads", "kv_heads", "tokens")
Row = dict[str, str]
Cell = tuple[str, ...]


def read() -> list[Row]:
    """Return the rows of each cell's last run."""
    with (RESULTS / "distributed.csv").open(newline="") as f:
        rows = list(csv.DictReader(f))
    found: list[Row] = []
    for run in RUNS:
        known = {_cell(row) for row in found}
        found += [row for row in rows if row["run"] == run and _cell(row) not in known]
    return found


def _cell(row: Row) -> Cell:
    return tuple(row[name] for name in _NAMES)


def table() -> str:
    """Return the table as Markdown: shares of the ideal, with what reached them."""
    rows = read()
    cells = sorted(set(map(_cell, rows)), key=_place)
    lines = [_line(cell, rows) for cell in cells]
    return "\n".join([_HEAD, *lines, ""])


def _place(cell: Cell) -> tuple[bool, str, int, int]:
    """Return what cells are sorted by: causal ones first, documents after them."""
    documents, causal, heads, _, tokens = cell
    return causal != "True", documents, int(tokens), -int(heads)


def _line(cell: Cell, rows: list[Row]) -> str:
    mine = [row for row in rows if _cell(row) == cell]
    columns = [_problem(cell), mine[0]["device"].split()[1]]
    for part in ("forward", "both"):
        every = [row for row in mine if row["pass"] == part]
        ours = [row for row in every if row["contender"] == "ours"]
        columns.append(_best(_counting(ours), "strategy"))
        others = [row for row in every if row["contender"] not in ("ours", "ideal")]
        columns.append(_best(others, "contender"))
    return f"| {' | '.join(columns)} |"


def _counting(ours: list[Row]) -> list[Row]:
    """Return the rows of the setting that counts, or all of a run with only one."""
    for setting in SETTINGS:
        if found := [row for row in ours if row["setting"] == setting]:
            return found
    return ours


def _problem(cell: Cell) -> str:
    documents, causal, heads, kv_heads, tokens = cell
    what = f"{heads}/{kv_heads} heads, {int(tokens) // 1024}k"
    if documents:
        return f"{what}, {documents} documents"
    return what if causal == "True" else f"{what}, not causal"


def _best(rows: list[Row], named: str) -> str:
    if not rows:
        return "not measured"
    best = max(rows, key=lambda row: float(row["share"]))
    return f"{float(best['share']):.2f} {best[named].replace('+', ' and ')}"


def filled(text: str) -> str:
    """Return a page with its table anew."""
    return _MARKED.sub(lambda m: m[1] + table() + m[2], text)


def main() -> None:
    """Write the page."""
    PAGE.write_text(filled(PAGE.read_text()))


if __name__ == "__main__":
    main()
