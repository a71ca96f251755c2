"""Files that GPU Deck 0.1 linked import the package by its present name, and can be undone."""

import json
import os
import subprocess
import sys

import pytest

from gpudeck.accel.inject import journal, renaming

BEFORE = b"import torch\n\ny = torch.softmax(x, -1)\n"
AFTER = b"from accel.inject import link as _gpudeck\nimport torch\n\ny = _gpudeck.softmax(x, -1)\n"
RENAMED = AFTER.replace(b"accel", b"gpudeck.accel")


@pytest.fixture
def linked(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUDECK_HOME", str(tmp_path / "home"))
    file = tmp_path / "model.py"
    file.write_bytes(BEFORE)
    file.chmod(0o640)
    journal.apply(file, BEFORE, AFTER)
    return file


def test_the_import_is_renamed_once_and_undone_as_before(linked):
    (line,) = renaming.rename_imports()
    assert str(linked) in line
    assert linked.read_bytes() == RENAMED
    assert linked.stat().st_mode & 0o777 == 0o640
    assert renaming.rename_imports() == []
    assert journal.undo(linked) == "restored"
    assert linked.read_bytes() == BEFORE


def test_later_edits_are_kept(linked):
    linked.write_bytes(AFTER + b"print(y)\n")
    renaming.rename_imports()
    assert linked.read_bytes() == RENAMED + b"print(y)\n"
    journal.undo(linked)
    assert linked.read_bytes() == BEFORE + b"print(y)\n"


def test_an_interruption_between_the_record_and_the_file_is_made_up_for(linked, monkeypatch):
    rename = os.replace

    def interrupted(old, new):
        if new == linked:
            raise KeyboardInterrupt
        rename(old, new)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "replace", interrupted)
        renaming.rename_imports()
    assert linked.read_bytes() == AFTER
    renaming.rename_imports()
    assert linked.read_bytes() == RENAMED
    assert journal.undo(linked) == "restored"


def test_a_notebook_is_renamed(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUDECK_HOME", str(tmp_path / "home"))
    file = tmp_path / "model.ipynb"
    cells = [json.dumps({"cells": [{"source": [text.decode()]}]}) for text in (BEFORE, AFTER)]
    file.write_text(cells[0])
    journal.apply(file, cells[0].encode(), cells[1].encode())
    renaming.rename_imports()
    (cell,) = json.loads(file.read_text())["cells"]
    assert cell["source"] == [RENAMED.decode()]


def test_a_file_that_may_not_be_changed_is_named_and_left(linked):
    target = linked.rename(linked.with_name("real.py"))
    linked.symlink_to(target)
    (line,) = renaming.rename_imports()
    assert "was not renamed: it is a symbolic link" in line
    assert target.read_bytes() == AFTER


def test_the_process_of_the_daemon_notes_that_it_has_run(linked):
    done = subprocess.run(
        [sys.executable, "-P", "-m", "gpudeck.accel.inject.renaming"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert str(linked) in done.stderr
    assert linked.read_bytes() == RENAMED
    assert (journal.state_folder() / "inject" / "renamed").exists()
