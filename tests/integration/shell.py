"""The command line, run in the test's own process."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.cli.main import main


class Shell:
    """Runs commands in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: str, status: int = 0) -> str:
        """What the command printed. Fails where its exit status is another, or where it failed in more than one line."""
        self._capsys.readouterr()
        try:
            got = main(words)
        except SystemExit as e:  # argparse
            got = int(e.code or 0)
        out, err = self._capsys.readouterr()
        assert got == status, (out, err)
        if status:
            assert out == "" or status == 1
            assert "Traceback" not in err
            return err
        assert err == ""
        return out

    def fails(self, *words: str, status: int = 1) -> str:
        """The one line that says what is wrong."""
        line = self(*words, status=status)
        assert line.startswith("gpudeck: ")
        assert line.count("\n") == 1
        return line

    def json(self, *words: str) -> Any:
        return json.loads(self(words[0], "--json", *words[1:]))
