"""Take one change back out of a file that may have been edited since."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

from gpudeck.accel.inject.refused import Refused
from gpudeck.language.text import phrase


def reverted(before: bytes, after: bytes, now: bytes) -> bytes:
    """Return the bytes of `now` without the change from `before` to `after`. Raises Refused."""
    if now == after:
        return before
    return b"".join(_without(*(text.splitlines(keepends=True) for text in (before, after, now))))


def _without(before: list[bytes], after: list[bytes], now: list[bytes]) -> list[bytes]:
    """Return the lines of `now` in which what differs from before to after is reverted.

    Raises Refused where such a line was edited.
    """
    blocks = SequenceMatcher(None, after, now, autojunk=False).get_matching_blocks()
    result, at = list[bytes](), 0
    for tag, first, last, a, b in SequenceMatcher(
        None, after, before, autojunk=False
    ).get_opcodes():
        if tag == "equal":
            continue
        shift = _shift(blocks, first, last, len(after))
        if shift is None:
            raise Refused(
                phrase(
                    "line {line} of the linked file was edited since; undo that edit first, or"
                    " restore the file from your version control",
                    line=first + 1,
                )
            )
        result += now[at : first + shift] + before[a:b]
        at = last + shift
    return result + now[at:]


def _shift(blocks: Sequence[tuple[int, int, int]], first: int, last: int, end: int) -> int | None:
    """Return by how much lines have moved; None if one of them, or a neighbour of an empty range,
    was edited."""
    low, high = (first, last) if first < last else (max(0, first - 1), min(end, last + 1))
    for start, there, size in blocks:
        if start <= low and high <= start + size:
            return there - start
    return None
