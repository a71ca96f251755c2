"""Changes of files can be undone, also after edits, and after a kill at any line."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from gpudeck.accel.inject import journal
from gpudeck.accel.inject.journal import Refused

BEFORE = b"one\ntwo\nthree\nfour\nfive\n"
AFTER = b"import x\none\ntwo\nTHREE\nfour\nfive\n"


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUDECK_HOME", str(tmp_path / "home"))
    path = tmp_path / "src" / "m.py"
    path.parent.mkdir()
    path.write_bytes(BEFORE)
    path.chmod(0o754)
    return path


def test_undo_restores_bytes_and_mode(file):
    journal.apply(file, BEFORE, AFTER)
    assert file.read_bytes() == AFTER
    assert file.stat().st_mode & 0o777 == 0o754
    assert journal.changed_files() == [file]
    file.chmod(0o600)
    assert str(journal.undo(file)) == "restored"
    assert file.read_bytes() == BEFORE
    assert file.stat().st_mode & 0o777 == 0o754
    assert journal.changed_files() == []
    assert [f.name for f in file.parent.iterdir()] == ["m.py"]


def test_later_edits_elsewhere_are_kept(file):
    journal.apply(file, BEFORE, AFTER)
    file.write_bytes(b"import x\nzero\none\ntwo\nTHREE\nfour\nFIVE\nsix\n")
    assert "later edits" in str(journal.undo(file))
    assert file.read_bytes() == b"zero\none\ntwo\nthree\nfour\nFIVE\nsix\n"


def test_an_edited_line_of_ours_is_refused_and_named(file):
    journal.apply(file, BEFORE, AFTER)
    edited = AFTER.replace(b"THREE", b"THREE = 3")
    file.write_bytes(edited)
    with pytest.raises(Refused, match="line 4"):
        journal.undo(file)
    assert file.read_bytes() == edited


def test_a_second_change_is_undone_together_with_the_first(file):
    journal.apply(file, BEFORE, AFTER)
    journal.apply(file, AFTER, AFTER + b"more\n")
    journal.undo(file)
    assert file.read_bytes() == BEFORE


def test_a_file_that_changed_since_the_scan_is_refused(file):
    with pytest.raises(Refused, match="changed meanwhile"):
        journal.apply(file, b"other", AFTER)
    assert file.read_bytes() == BEFORE


def test_links_and_files_without_write_permission_are_refused(file):
    link = file.with_name("link.py")
    link.symlink_to(file)
    with pytest.raises(Refused, match="symbolic link"):
        journal.apply(link, BEFORE, AFTER)
    file.chmod(0o444)
    with pytest.raises(Refused, match="no permission"):
        journal.apply(file, BEFORE, AFTER)
    assert file.read_bytes() == BEFORE
    assert link.is_symlink()


def test_undo_of_a_file_that_is_not_linked_is_refused(file):
    with pytest.raises(Refused, match="nothing in it is linked"):
        journal.undo(file)


FORKED = textwrap.dedent("""
    import os, signal, sys
    from pathlib import Path
    from gpudeck.accel.inject import journal

    path, action = Path(sys.argv[1]), sys.argv[2]
    before, after = (Path(name).read_bytes() for name in sys.argv[3:5])

    def reset():
        journal.record(path) is not None and path.write_bytes(after)
        if journal.record(path) is not None:
            journal.undo(path)
        path.write_bytes(before)
        if action == "undo":
            journal.apply(path, before, after)

    at = 0
    while True:
        at += 1
        reset()
        pid = os.fork()
        if pid == 0:
            count = 0

            def trace(frame, event, arg):
                global count
                if frame.f_code.co_filename != journal.__file__:
                    return None
                if event == "line":
                    count += 1
                    if count == at:
                        os.kill(os.getpid(), signal.SIGKILL)
                return trace

            sys.settrace(trace)
            journal.apply(path, before, after) if action == "apply" else journal.undo(path)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        now = path.read_bytes()
        assert now in (before, after), (at, now)
        linked = journal.record(path) is not None
        assert linked == (now == after), (at, linked, now)
        if linked:
            journal.undo(path)
            assert path.read_bytes() == before, at
        journal.apply(path, before, after)
        journal.undo(path)
        assert path.read_bytes() == before and os.listdir(path.parent) == [path.name], at
        if os.WIFEXITED(status):
            print(at)
            break
""")


@pytest.mark.parametrize("action", ["apply", "undo"])
def test_a_kill_at_any_line_leaves_the_old_file_or_the_new_one_and_undo_works(
    file, tmp_path, action
):
    (tmp_path / "before").write_bytes(BEFORE)
    (tmp_path / "after").write_bytes(AFTER)
    ended = subprocess.run(
        [sys.executable, "-c", FORKED, str(file), action, tmp_path / "before", tmp_path / "after"],
        capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) > 25  # kills
