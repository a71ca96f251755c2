"""The tail of a job's log: bytes as they come, text that cannot steer anything."""

from __future__ import annotations

import codecs

from scheduler.protocol.progress import MAX_LINE, parse, printable, unescaped


class LogTail:
    """Follows one job's log. `offset` is where to read on, None before the first piece."""

    def __init__(self, job: int) -> None:
        self.job = job
        self.offset: int | None = None
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def feed(self, start: int, data: bytes, end: int) -> str:
        """The text that `data` adds, found from `start` to `end`. A piece that does not begin where the last one ended is ignored."""
        if self.offset is not None and start != self.offset:
            return ""
        first = self.offset is None
        self.offset = end
        if first and start > 0:
            return "…\n" + self._lines(data[data.find(b"\n") + 1 :])  # begin with a whole line
        return self._lines(data)

    def _lines(self, data: bytes) -> str:
        """What `data` adds, progress reports left out; what may become one is held back until its line is whole."""
        *lines, rest = (self._rest + self._decoder.decode(data)).split("\n")
        self._rest = rest if rest.startswith("{") and len(rest) < MAX_LINE else ""
        kept = [line for line in lines if not (line.startswith("{") and parse(line.encode(), 0.0))]
        return _clean("".join(f"{line}\n" for line in kept) + ("" if self._rest else rest))


def _clean(text: str) -> str:
    lines = unescaped(text).replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return "\n".join(printable(line.replace("\t", "    ")) for line in lines)
