"""gpudeck inject lists, changes and restores files, and refuses hostile ones in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpudeck.app.cli.main import main

GOOD = (
    "import torch\n\ndef attend(q, k, v):\n    return (q @ k.mT).softmax(-1) @ v\n"
    "\ndef kept(q, k, v):\n    a = (q @ k.mT).softmax(-1)\n    return a @ v, a\n"
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUDECK_HOME", str(tmp_path / "home"))
    source = tmp_path / "source"
    source.mkdir()
    (source / "m.py").write_text(GOOD)
    return source


def run(capsys, *args) -> tuple[int, str, str]:
    try:
        code = main(["inject", *map(str, args)])
    except SystemExit as e:
        code = e.code
    out = capsys.readouterr()
    return int(code or 0), out.out, out.err


def test_scan_prints_a_list_with_the_promised_fields(capsys, folder):
    code, out, _ = run(capsys, "scan", folder, "--json")
    rows = json.loads(out)
    assert code == 0
    assert [set(row) for row in rows] == [
        {"file", "line", "action", "form", "reason", "speedup", "kind", "steps", "saved"}
    ] * 2
    assert [row["speedup"] for row in rows] == [None, None], "no sizes are named"
    assert [(row["line"], row["action"]) for row in rows] == [(4, "link"), (7, "leave")]
    assert "returned (line 8)" in rows[1]["reason"]


def test_apply_and_undo_ask_nothing_and_keep_bytes_and_mode(capsys, folder):
    path = folder / "m.py"
    path.chmod(0o640)
    code, out, _ = run(capsys, "apply", path, "--yes")
    assert code == 0 and "linked 1" in out
    assert "1 left alone" in out
    assert "_gpudeck.scores(q, k.mT)" in path.read_text()
    assert "1 file is linked already" in run(capsys, "scan", folder)[1]
    assert path.stat().st_mode & 0o777 == 0o640
    assert run(capsys, "undo", path, "--yes")[0] == 0
    assert path.read_text() == GOOD
    assert path.stat().st_mode & 0o777 == 0o640


def test_without_a_terminal_nothing_is_run_or_changed(capsys, folder):
    for action in ("apply", "prove"):
        code, out, err = run(capsys, action, folder)
        assert code == 1
        assert "code of 1 of these files is run" in out
        assert "Nothing was run. There is no terminal to ask on" in err
    assert (folder / "m.py").read_text() == GOOD


def test_a_symlink_and_a_file_without_write_permission_are_named_and_left(capsys, folder):
    (folder / "link.py").symlink_to(folder / "m.py")
    code, out, _ = run(capsys, "apply", folder / "link.py", "--yes")
    assert code == 1 and "symbolic link" in out
    (folder / "m.py").chmod(0o444)
    code, out, _ = run(capsys, "apply", folder / "m.py", "--yes")
    assert code == 1 and "no permission to write it" in out
    assert (folder / "m.py").read_text() == GOOD
    assert (folder / "link.py").is_symlink()


def test_files_that_are_no_python_3_are_one_line_each(capsys, folder):
    (folder / "old.py").write_text("print 'attention'\n")
    (folder / "broken.py").write_text("def attention(:\n")
    (folder / "bytes.py").write_bytes(b"# attention\n\xff\xfe\n")
    (folder / "made.py").write_text("# @generated\n" + GOOD)
    before = {f.name: f.read_bytes() for f in folder.iterdir()}
    code, out, _ = run(capsys, "scan", folder, "--json")
    reasons = {Path(r["file"]).name: r["reason"] for r in json.loads(out)}
    assert code == 0
    assert "not Python 3" in reasons["old.py"] and "not Python 3" in reasons["broken.py"]
    assert "encoding" in reasons["bytes.py"]
    assert "a program wrote this file" in reasons["made.py"]
    assert not any("\n" in reason for reason in reasons.values())
    run(capsys, "apply", folder / "made.py", folder / "old.py", folder / "bytes.py", "--yes")
    assert {f.name: f.read_bytes() for f in folder.iterdir()} == before


@pytest.mark.slow
def test_50_000_lines_are_read(capsys, folder):
    many = "".join(GOOD.replace("attend", f"attend_{n}").replace("kept", f"kept_{n}")
                   for n in range(6300))  # fmt: skip
    assert many.count("\n") > 50_000
    (folder / "m.py").write_text(many)
    code, out, _ = run(capsys, "scan", folder, "--json")
    assert code == 0 and len(json.loads(out)) == 2 * 6300


def test_a_script_that_only_uses_a_library_is_told_of_install(capsys, folder):
    (folder / "m.py").write_text("from transformers import AutoModel\nAutoModel.from_config(c)\n")
    for action in ("scan", "diff"):
        code, out, _ = run(capsys, action, folder)
        assert code == 0 and "There is no attention in it." in out
        assert "It imports transformers" in out and "accel.install()" in out
    (folder / "m.py").write_text("import os\n")
    assert "install()" not in run(capsys, "scan", folder)[1]
