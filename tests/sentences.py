"""Judge the checker by sentences that people wrote about facts.

    python -m tests.sentences FILE [-v]
    python -m tests.sentences --facts [SITUATION]

FILE holds JSON, one object a line: a sentence with the name of its situation and whether it is true
of the facts of that situation, or a situation of the file's own.

    {"situation": "one_done", "sentence": "GPU 0 is idle.", "true": true}
    {"situation": "mine", "facts": [{"name": "gpu0.temp", "value": 71, "unit": "°C",
     "said": "71 °C", "text": "GPU 0 temperature: 71 °C"}, ...]}
    {"situation": "mine", "sentence": "GPU 0 is at 71 °C.", "true": true}

Each sentence stands alone. Situations that exist are those of tests/unit/assistant/situations.py;
with --facts they are listed, or the facts of one are printed as its authors are to read them. FILE
may add a text of several sentences as one sentence. Printed are, for true and for false ones, how
many passed and how many were refused; with -v those that were misjudged, too, with the reason.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from gpudeck.assistant.facts import Fact
from gpudeck.assistant.writing.verify import Refused, verify
from tests.unit.assistant.situations import NOW, SITUATIONS


class Judged(NamedTuple):
    """Hold a sentence, whether it is true, and why it was refused; empty if it passed."""

    situation: str
    sentence: str
    true: bool
    refusal: str

    @property
    def right(self) -> bool:
        """Return True if a true sentence passed, or a false one was refused."""
        return self.true is not bool(self.refusal)


def judge(file: Path) -> Iterator[Judged]:
    """Judge every sentence of a file."""
    known: dict[str, tuple[Fact, ...]] = {}
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        row: dict[str, Any] = json.loads(line)
        name = row["situation"]
        if "facts" in row:
            known[name] = tuple(_fact(fact) for fact in row["facts"])
            continue
        if name not in known:
            if name not in SITUATIONS:
                raise SystemExit(f"{file}:{number}: there is no situation {name!r}")
            known[name] = SITUATIONS[name]()
        yield Judged(name, row["sentence"], row["true"], _refusal(row["sentence"], known[name]))


def _fact(row: dict[str, Any]) -> Fact:
    return Fact(
        row["name"], row["value"], row.get("unit", ""), row["said"], "NVML", NOW, row["text"]
    )


def _refusal(sentence: str, facts: tuple[Fact, ...]) -> str:
    try:
        verify(sentence, facts)
    except Refused as e:
        return str(e)
    return ""


def main() -> int:
    """Judge a file, or print facts, and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.sentences",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", nargs="?", metavar="FILE")
    parser.add_argument("--facts", action="store_true", help="print the facts of a situation FILE")
    parser.add_argument("-v", "--verbose", action="store_true", help="print what was misjudged")
    args = parser.parse_args()
    os.environ["TZ"] = "UTC"
    time.tzset()
    if args.facts:
        for name in [args.file] if args.file else SITUATIONS:
            if name not in SITUATIONS:
                raise SystemExit(f"there is no situation {name!r}")
            print(f"{name}: {SITUATIONS[name].__doc__}")
            for fact in SITUATIONS[name]() if args.file else ():
                print(f"  {fact.text}")
        return 0
    if not args.file:
        parser.error("name a FILE of sentences")
    judged = list(judge(Path(args.file)))
    for one in judged if args.verbose else ():
        if not one.right:
            what = "true, refused" if one.true else "FALSE, PASSED"
            print(f"{what} | {one.situation} | {one.sentence} | {one.refusal}")
    counts = Counter((one.true, bool(one.refusal)) for one in judged)
    for true in (True, False):
        word = "true" if true else "false"
        print(f"{word} sentences: {counts[true, False]} passed, {counts[true, True]} refused")
    return 0


if __name__ == "__main__":
    sys.exit(main())
