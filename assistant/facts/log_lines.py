"""A job's output as lines that can be quoted: foreign text, of which nothing steers a terminal or a page any more."""

from __future__ import annotations

from scheduler.protocol.progress import parse, parse_bar, printable, unescaped

_TAB = "    "


def lines(data: bytes) -> list[str]:
    """The lines of some output, one for each line feed, so that they can be counted; a progress report, or a bar, is an empty one.

    Of a line that was drawn anew (carriage returns) what stood there last is kept.
    """
    return [_line(raw) for raw in data.removesuffix(b"\n").split(b"\n")] if data else []


def clean(text: str) -> str:
    """One line without escape sequences and control characters."""
    return printable(unescaped(text).replace("\t", _TAB)).rstrip()


def _line(raw: bytes) -> str:
    shown = raw.rstrip(b"\r").rpartition(b"\r")[2]
    if parse(shown, 0.0) is not None or parse_bar(shown, 0.0) is not None:
        return ""
    return clean(shown.decode(errors="replace"))
