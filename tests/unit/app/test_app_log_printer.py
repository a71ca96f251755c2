"""Test that the log printer drops progress reports and prints everything else."""

from __future__ import annotations

import io
import itertools
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudeck.app.cli.queue.logs import LogPrinter

PROGRESS = b'{"gpudeck": "progress", "done": 1, "total": 2}\n'
LINES = st.sampled_from(
    [
        b"plain\n",
        PROGRESS,
        b'{"loss": 1}\n',
        b"\xff\x00\n",
        b"50%\r",
        b"\n",
        b'x {"gpudeck": "progress", "done": 1, "total": 2}\n',
    ]
)


def printed(pieces: list[bytes]) -> bytes:
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    before, sys.stdout = sys.stdout, out
    try:
        printer = LogPrinter()
        for piece in pieces:
            printer.feed(piece)
        printer.close()
    finally:
        sys.stdout = before
    return out.buffer.getvalue()  # type: ignore[attr-defined]


@given(lines=st.lists(LINES), cuts=st.lists(st.integers(0, 400)))
def test_output_does_not_depend_on_how_it_is_cut(lines: list[bytes], cuts: list[int]) -> None:
    whole = b"".join(lines)
    edges = sorted({min(c, len(whole)) for c in cuts} | {0, len(whole)})
    pieces = [whole[a:b] for a, b in itertools.pairwise(edges)]
    assert printed(pieces) == printed([whole])


def test_progress_reports_are_dropped_and_partial_lines_are_printed() -> None:
    assert printed([b"a\n" + PROGRESS + b"b"]) == b"a\nb"
    printer, out = LogPrinter(), io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    before, sys.stdout = sys.stdout, out
    try:
        printer.feed(b" 10%|#   \r")
        assert out.buffer.getvalue() == b" 10%|#   \r"  # type: ignore[attr-defined]
    finally:
        sys.stdout = before


def test_control_characters_do_not_reach_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    printer = LogPrinter()
    for piece in (b"gr\xc3", b"\xbcn \x1b[31mred\x07\n"):  # a character cut in two
        printer.feed(piece)
    assert screen.getvalue() == "grün  [31mred \n"
