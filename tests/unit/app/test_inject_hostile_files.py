"""A hostile file or name is one line of `gpudeck inject`, which goes on with the other files."""

from __future__ import annotations

import json
import os

import pytest

from gpudeck.app.cli.main import main
from gpudeck.app.code import linking
from gpudeck.scheduler.protocol.errors import UserError

GOOD = "import torch\n\ndef attend(q, k, v):\n    return (q @ k.mT).softmax(-1) @ v\n"
ATTENTION = b"# attention\n"
NAMED = "import torch\nblock_size = {}\n" + GOOD.removeprefix("import torch\n")


def notebook(code: str) -> bytes:
    return json.dumps({"cells": [{"cell_type": "code", "source": code}]}).encode()


def sum_of(terms: int) -> bytes:
    body = " + ".join(["q"] * terms)
    return f"import torch\ndef attention(q, k, v):\n    return ({body}) @ v\n".encode()


LARGE = b"0x" + b"f" * 5000
HOSTILE = {
    "long_import.py": b"from " + b"a" * 300 + b" import attend\n" + b"x = attend(softmax)\n",
    "sum.py": sum_of(2500),
    "calls.py": ATTENTION + b"x = y" + b".softmax(-1)" * 900 + b"\n",
    "branches.py": ATTENTION + b"if x: pass\n" + b"elif x: pass\n" * 900,
    "number.py": ATTENTION + b"x = q @ k\nself[" + LARGE + b"].a = x.softmax(-1)\n",
    "size.py": NAMED.format(LARGE.decode()).encode(),
    "one_line.py": b'"attention"; import torch; y = (q @ k.mT).softmax(-1) @ v',
    "deep.ipynb": b'{"cells": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "surrogate.ipynb": notebook("x = '\ud800 attention'\n"),
    "cells.ipynb": b'{"cells": {"a": 1}}',
    "returns.ipynb": notebook("# attention\rx = 1\n"),
    "rot13.py": b"# coding: rot13\n" + ATTENTION,
    "utf7.py": b"# coding: utf-7\nx = '+AGEAYg-' # attention\n" + GOOD.encode(),
    "null.py": ATTENTION + b"\0",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUDECK_HOME", str(tmp_path / "home"))
    source = tmp_path / "source"
    source.mkdir()
    (source / "zz_good.py").write_text(GOOD)
    return source


def run(capsys, *args) -> tuple[int, str, str]:
    code = main(["inject", *map(str, args)])
    out = capsys.readouterr()
    return code, out.out, out.err


@pytest.mark.parametrize("action", ["scan", "diff"])
@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_other_files_are_found_beside_it(capsys, folder, name, action):
    (folder / name).write_bytes(HOSTILE[name])
    code, out, _ = run(capsys, action, folder, "--json")
    assert code == 0
    rows = json.loads(out)
    assert str(folder / "zz_good.py") in {row["file"] for row in rows}
    assert all("\n" not in row.get("reason", "") for row in rows)


def test_a_name_that_is_not_utf_8_is_one_line(capsys, folder):
    hostile = folder / os.fsdecode(b"\xff.py")
    hostile.write_text(GOOD)
    code, out, _ = run(capsys, "scan", folder, "--json")
    second, first = json.loads(out)
    assert (code, first["action"]) == (0, "leave")
    assert first["file"].endswith("\\xff.py") and "not UTF-8" in first["reason"]
    assert second["action"] == "link"
    assert run(capsys, "scan", folder)[0] == 0
    code, out, _ = run(capsys, "apply", folder, "--yes")
    assert code == 0 and "linked 1" in out
    assert hostile.read_text() == GOOD
    assert run(capsys, "undo", folder)[0] == 0


def test_the_longest_name_is_linked_and_restored(capsys, folder):
    path = folder / ("n" * 252 + ".py")
    path.write_text(GOOD)
    assert run(capsys, "apply", path, "--yes")[0] == 0
    assert path.read_text() != GOOD
    assert run(capsys, "undo", path)[0] == 0
    assert path.read_text() == GOOD


def test_a_pipe_and_a_device_are_not_read(capsys, folder):
    os.mkfifo(folder / "pipe.py")
    code, out, _ = run(capsys, "scan", folder, "--json")
    assert code == 0
    assert json.loads(out)[0]["reason"] == "it is no regular file"
    assert "it is no regular file" in run(capsys, "scan", "/dev/zero")[1]


def test_a_name_that_is_too_long_is_not_there(capsys, folder):
    code, _, err = run(capsys, "scan", folder / ("n" * 300))
    assert code == 1 and "there is no file or folder" in err


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_what_was_changed_is_listed_although_a_later_file_stops_the_command(
    capsys, folder, monkeypatch, options
):
    (folder / "aa_first.py").write_text(GOOD)
    real = linking.prove_change

    def stopped(each, *args):
        if each.path.name == "zz_good.py":
            raise UserError("no GPU was free")
        return real(each, *args)

    monkeypatch.setattr(linking, "prove_change", stopped)
    code, out, err = run(capsys, "apply", folder, "--yes", *options)
    assert code == 1 and "no GPU was free" in err
    assert "aa_first.py" in out and "linked 1" in out
    if options:
        assert [row["linked"] for row in json.loads(out)] == [[4]]
