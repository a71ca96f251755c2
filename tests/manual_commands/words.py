"""Find words of a command that the program does not know, without running the command."""

from __future__ import annotations

import re
import shlex
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO

from gpudeck.app.cli.main import make_parser

_EXAMPLES = {"JOB": "1", "NUMBER": "1", "N": "1", "PID": "1", "SIZE": "1GiB", "TIME": "1h"}
"""What stands for a word that people replace, where the parser wants a number or a size."""
_LACKS = re.compile(r"arguments? (?:is|are) required|one of the arguments|expected .*argument")


def wrong_words(command: str) -> str:
    """Return what the parser says of a command of ours; empty where its words are right.

    A command within a sentence may leave out what it needs ("see `gpudeck cancel`"), end in "...",
    and name alternatives ("install|remove"), of which the first one is parsed.
    """
    words = [word.partition("|")[0] for word in shlex.split(command, comments=True)[1:]]
    words = [_EXAMPLES.get(word, word) for word in words if word not in ("...", "…")]
    said = StringIO()
    with redirect_stderr(said), redirect_stdout(said):
        try:
            _, extra = make_parser().parse_known_args(words)
        except SystemExit as e:
            return "" if not e.code or _LACKS.search(said.getvalue()) else said.getvalue().strip()
    return f"unknown: {' '.join(extra)}" if extra else ""
