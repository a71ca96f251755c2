"""No fault while a file is changed loses its undo, an edit of somebody else, or its owner."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import textwrap

import pytest

from gpudeck.accel.inject import journal
from gpudeck.accel.inject.journal import Refused

BEFORE = b"one\ntwo\nthree\nfour\nfive\n"
FIRST = b"import x\none\ntwo\nTHREE\nfour\nfive\n"
SECOND = b"import x\none\nTWO\nTHREE\nfour\nfive\n"
LATER = b"# mine\n"
others = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of others")
LONGEST = "n" * 252 + ".py"
"""A name of as many bytes as a file system takes."""


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUDECK_HOME", str(tmp_path / "home"))
    path = tmp_path / "src" / "m.py"
    path.parent.mkdir()
    path.write_bytes(BEFORE)
    return path


def names(file):
    """Return the names in the folder of a file."""
    return sorted(path.name for path in file.parent.iterdir())


KILLED = textwrap.dedent("""
    import os, signal, sys
    from pathlib import Path
    from gpudeck.accel.inject import journal

    path, action = Path(sys.argv[1]), sys.argv[2]
    before, first, second, later = (Path(name).read_bytes() for name in sys.argv[3:7])
    code = Path(journal.__file__).parent
    files = {str(code / name) for name in ("journal.py", "staging.py")}

    def reset():
        for each in (first, before):
            path.write_bytes(each)
            if journal.record(path) is not None:
                journal.undo(path)
        path.write_bytes(before)
        journal.apply(path, before, first)
        if action == "edited undo":
            path.write_bytes(first + later)

    def act():
        if action == "second apply":
            journal.apply(path, first, second)
        else:
            journal.undo(path)

    at = 0
    while True:
        at += 1
        reset()
        pid = os.fork()
        if pid == 0:
            count = 0

            def trace(frame, event, arg):
                global count
                if frame.f_code.co_filename not in files:
                    return None
                if event == "line":
                    count += 1
                    if count == at:
                        os.kill(os.getpid(), signal.SIGKILL)
                return trace

            sys.settrace(trace)
            act()
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        now = path.read_bytes()
        renamed = first.replace(b"import x", b"import y")
        assert now in (before, first, second, renamed, first + later, before + later), (at, now)
        path.write_bytes(now + later)
        wanted = before + (later + later if action == "edited undo" else later)
        if now in (before, before + later):
            assert journal.record(path) is None or journal.undo(path), at
        else:
            journal.undo(path)
        assert path.read_bytes() == wanted, (at, path.read_bytes())
        assert journal.changed_files() == [], at
        path.write_bytes(before)
        journal.apply(path, before, first)
        journal.undo(path)
        assert os.listdir(path.parent) == [path.name], at
        if os.WIFEXITED(status):
            print(at)
            break
""")


@pytest.mark.parametrize("action", ["second apply", "edited undo"])
def test_a_kill_at_any_line_leaves_what_undo_takes_back_although_the_file_is_edited_then(
    file, tmp_path, action
):
    parts = {"before": BEFORE, "first": FIRST, "second": SECOND, "later": LATER}
    for name, content in parts.items():
        (tmp_path / name).write_bytes(content)
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, file, action, *(tmp_path / name for name in parts)],
        capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) > 25  # kills


@pytest.mark.parametrize("call", ["fdopen", "fsync", "replace"])
def test_a_full_disk_at_any_moment_of_a_second_apply_leaves_the_first_one_undoable(
    file, monkeypatch, call
):
    journal.apply(file, BEFORE, FIRST)
    for place in range(1, 20):
        with monkeypatch.context() as patch:
            struck = _let_fail(patch, call, place)
            try:
                journal.apply(file, FIRST, SECOND)
            except Refused as e:
                assert "No space left" in str(e)
        now = file.read_bytes()
        assert now in (FIRST, SECOND)
        assert str(journal.undo(file)) == "restored"
        assert file.read_bytes() == BEFORE
        assert names(file) == [file.name]
        if not struck:
            break
        journal.apply(file, BEFORE, FIRST)
    assert place > 2


def _let_fail(patch, name, place):
    """Let one call of a function of os fail, the one with the number `place`.

    Return a list that is no longer empty once it has failed.
    """
    real, calls, struck = getattr(os, name), [], []

    def failing(*args, **options):
        calls.append(args)
        if len(calls) == place:
            struck.append(args)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*args, **options)

    patch.setattr(os, name, failing)
    return struck


def test_an_edit_that_is_saved_while_a_change_is_written_is_kept(file, monkeypatch):
    edited = BEFORE + LATER
    for place in range(1, 10):
        file.write_bytes(BEFORE)
        real, calls = os.fsync, []

        def sync(handle, real=real, calls=calls, place=place):
            real(handle)
            calls.append(handle)
            if len(calls) == place and file.read_bytes() == BEFORE:
                file.write_bytes(edited)

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", sync)
            try:
                journal.apply(file, BEFORE, FIRST)
            except Refused as e:
                assert "changed meanwhile" in str(e)
                assert file.read_bytes() == edited
                assert journal.record(file) is None
                assert names(file) == [file.name]
                continue
        journal.undo(file)
        break
    assert place > 2


def test_the_longest_name_and_one_with_the_characters_of_a_pattern_are_changed(file):
    for name in (LONGEST, "m[1].py"):
        path = file.with_name(name)
        path.write_bytes(BEFORE)
        journal.apply(path, BEFORE, FIRST)
        assert path.read_bytes() == FIRST
        journal.undo(path)
        assert path.read_bytes() == BEFORE
    assert names(file) == sorted([LONGEST, "m.py", "m[1].py"])


def test_a_file_with_hard_links_is_left_and_the_reason_says_what_to_do(file):
    twin = file.with_name("twin.py")
    os.link(file, twin)
    with pytest.raises(Refused, match=r"2 hard links.*copy"):
        journal.apply(file, BEFORE, FIRST)
    assert file.samefile(twin)
    assert file.read_bytes() == BEFORE


@others
def test_root_keeps_the_owner_and_the_group(file):
    os.chown(file, 1234, 4321)
    file.chmod(0o2750)
    journal.apply(file, BEFORE, FIRST)
    journal.undo(file)
    found = file.stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o7777) == (1234, 4321, 0o2750)


def test_extended_attributes_are_kept(file):
    try:
        os.setxattr(file, "user.origin", b"a paper")
    except OSError:
        pytest.skip("this file system has no extended attributes")
    journal.apply(file, BEFORE, FIRST)
    assert os.getxattr(file, "user.origin") == b"a paper"


@others
def test_an_owner_that_cannot_be_kept_is_a_reason_to_leave_the_file(file, tmp_path):
    for folder in (*tmp_path.parents[:3], tmp_path):
        folder.chmod(0o711)
    (tmp_path / "home").mkdir()
    for folder in (tmp_path / "home", file.parent):
        folder.chmod(0o777)
    os.chown(file, 1234, 4321)
    file.chmod(0o666)
    pid = os.fork()
    if pid == 0:
        os.setresuid(5678, 5678, 5678)
        try:
            journal.apply(file, BEFORE, FIRST)
        except Refused as e:
            os._exit(7 if "keep its owner 1234" in str(e) else 8)
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    assert (file.read_bytes(), file.stat().st_uid) == (BEFORE, 1234)
    assert names(file) == [file.name]
