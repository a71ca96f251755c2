"""Turn the bytes of a growing log into text that is safe to show. Free of Qt."""

from __future__ import annotations

import codecs

from gpudeck.scheduler.protocol.progress import MAX_LINE, parse, printable, unescaped


class LogTail:
    """Turn the bytes of a log into text. `offset` is where to read on, if a piece came."""

    def __init__(self, job: int, attempt: int | None = None) -> None:
        """Read the log of an attempt; None for the newest one."""
        self.job, self.attempt = job, attempt
        self.offset: int | None = None
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def feed(self, start: int, data: bytes, end: int) -> str:
        """Return the text of a piece of the log; one that does not follow the last one adds none.

        Args:
            start: Where the piece begins, in bytes.
            end: Where to read on.
        """
        if self.offset is not None and start != self.offset:
            return ""
        first = self.offset is None
        self.offset = end
        if first and start > 0:
            return "…\n" + self._lines(data[data.find(b"\n") + 1 :])  # begin with a whole line
        return self._lines(data)

    def _lines(self, data: bytes) -> str:
        """Return the text without progress reports; keep a line that may become a report."""
        *lines, rest = (self._rest + self._decoder.decode(data)).split("\n")
        self._rest = rest if rest.startswith("{") and len(rest) < MAX_LINE else ""
        kept = [line for line in lines if not (line.startswith("{") and parse(line.encode(), 0.0))]
        return _clean("".join(f"{line}\n" for line in kept) + ("" if self._rest else rest))


def _clean(text: str) -> str:
    lines = unescaped(text).replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return "\n".join(printable(line.replace("\t", "    ")) for line in lines)
