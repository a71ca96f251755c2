"""Count the statements of the program by room and folder: `python -m tests.statements`.

A statement is an `ast.stmt` node. Bare strings are not counted: they are documentation.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROOMS = ("app", "accel", "assistant", "scheduler", "language")


def is_bare_string(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def count_statements(path: Path) -> int:
    """Return how many statements the Python file `path` has, without its bare strings."""
    nodes = ast.walk(ast.parse(path.read_text("utf-8")))
    return sum(isinstance(node, ast.stmt) and not is_bare_string(node) for node in nodes)


def count_folders(room: Path) -> Counter[str]:
    """Return the statements of each folder directly below `room`, and of its own files as "."."""
    folders: Counter[str] = Counter()
    for path in room.rglob("*.py"):
        parts = path.relative_to(room).parts
        folders[parts[0] if len(parts) > 1 else "."] += count_statements(path)
    return folders


def table() -> Iterator[str]:
    """Return a line for each room and each of its folders, the largest first, and the total."""
    total = 0
    for name in ROOMS:
        folders = count_folders(ROOT / name)
        total += folders.total()
        yield f"{folders.total():>7,}  {name}"
        yield from (f"{count:>7,}    {name}/{folder}" for folder, count in folders.most_common())
    yield f"{total:>7,}  total"


if __name__ == "__main__":
    print("\n".join(table()))
