"""Strangers and hostile words: the files and the door are the user's alone; a command is run,
not interpreted."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from gpudeck.app.cli.main import main
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Done, Failed
from tests.integration.deck import log_of, python
from tests.support import eventually

WAIT_S = 30.0


def test_all_files_are_private(shared: Client, shared_home: Path) -> None:
    """Only what the job makes has its submitter's umask, in folders that are private."""
    code = (
        "import os; [open(f, 'w').close() for f in (os.environ['GPUDECK_RESULT'],"
        " os.environ['GPUDECK_ARTEFACTS'] + '/a')]"
    )
    mask = os.umask(0)
    try:
        job = shared.submit(python(code), env={"TOKEN": "s3cr3t"})
    finally:
        os.umask(mask)
    assert isinstance(shared.wait(job.id, WAIT_S).state, Done)
    folder = paths.job_folder(job.id)
    found = {path: path.lstat().st_mode for path in [shared_home, *shared_home.rglob("*")]}
    own = {path for path, mode in found.items() if mode & 0o077}
    made = {folder / "result.json", folder / "artefacts" / "a"}
    assert own == made
    assert stat.S_ISSOCK(found[paths.daemon_socket()])
    assert found[paths.store_file()] & 0o777 == 0o600


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_is_refused_even_if_the_socket_is_open(
    shared: Client, shared_home: Path
) -> None:
    """The daemon checks the credentials of each peer."""
    before = [job.id for job in shared.jobs()]
    modes = {path: path.stat().st_mode for path in (shared_home, paths.daemon_socket())}
    try:
        for path in modes:
            path.chmod(0o777)
        stranger = """if True:
            import os, socket, sys
            os.chdir(sys.argv[1])
            os.setgroups([]); os.setgid(65534); os.setuid(65534)
            with socket.socket(socket.AF_UNIX) as door:
                door.settimeout(10)
                door.connect("daemon.sock")
                try:
                    door.sendall(b'{"type":"pause","paused":true}\\n{"type":"submit","spec":{"argv":["true"],"name":"x","cwd":"/"}}\\n')
                    heard = door.recv(1000)
                except ConnectionError:
                    heard = b""
            sys.exit(1 if heard else 0)"""
        assert (
            subprocess.run(
                [sys.executable, "-S", "-c", stranger, str(shared_home)], timeout=30, check=False
            ).returncode
            == 0
        )
    finally:
        for path, mode in modes.items():
            path.chmod(mode)
    assert [job.id for job in shared.jobs()] == before
    assert not shared.snapshot().paused


HOSTILE = [
    "; touch {mark}",
    "$(touch {mark})",
    "`touch {mark}`",
    "| touch {mark}",
    "&& touch {mark}",
    "\ntouch {mark}\n",
    "'; touch {mark}; '",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_no_shell_interprets_any_part_of_a_job(shared: Client, tmp_path: Path, text: str) -> None:
    """Test arguments, name, folder, and names and values of the environment."""
    mark = tmp_path / "mark"
    hostile = text.format(mark=mark)
    folder = tmp_path / hostile.replace("/", "_")
    folder.mkdir()
    code = (
        "import os, sys; print(ascii([sys.argv[1], os.getcwd(), os.environ['V'],"
        " os.environ[sys.argv[1]]]))"
    )
    job = shared.submit(
        python(code, hostile), name=hostile, cwd=folder, env={"V": hostile, hostile: "named"}
    )
    assert isinstance(shared.wait(job.id, WAIT_S).state, Done)
    assert log_of(job) == ascii([hostile, str(folder), hostile, "named"]) + "\n"
    assert not mark.exists()


@pytest.mark.parametrize("text", ["touch {mark}", *HOSTILE])
def test_a_command_of_one_word_is_the_name_of_a_program(
    shared: Client, tmp_path: Path, text: str
) -> None:
    """`submit -- "rm -rf x"` does not run rm."""
    job = shared.submit([text.format(mark=tmp_path / "mark")], cwd=tmp_path)
    state = shared.wait(job.id, WAIT_S).state
    assert isinstance(state, Failed)
    assert state.code is None
    assert "No such file" in str(state.reason)
    assert not (tmp_path / "mark").exists()


def test_a_log_that_is_a_link_is_not_followed(shared: Client, tmp_path: Path) -> None:
    """A job may do what it likes to its own folder; who reads its log is not led to somebody's
    keys."""
    (tmp_path / "key").write_text("private")
    code = """if True:
        import os, sys
        log = os.path.dirname(os.environ["GPUDECK_RESULT"]) + "/log"
        os.remove(log)
        os.symlink(sys.argv[1], log)
        sys.exit(3)"""
    job = shared.submit(python(code, tmp_path / "key"))
    state = shared.wait(job.id, WAIT_S).state
    assert isinstance(state, Failed)
    assert "private" not in str(state.reason)
    with pytest.raises(UserError, match="cannot be read"):
        shared.log(job.id)


@pytest.mark.parametrize(
    "words", ["\x1b]0;owned\x07", "\x1b[2J", "\r\n\x08", "\u202egnp.exe", "\x9b31m", "\u2028"]
)
def test_hostile_texts_of_a_job_are_printed_harmlessly(
    shared: Client, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    """Test name, note and last line, wherever the command line prints them."""
    code = """if True:
        import json, sys, time
        print(json.dumps({"gpudeck": "progress", "done": 1, "total": 2, "note": sys.argv[1]}), flush=True)
        time.sleep(0.5); print("bad " + sys.argv[1]); sys.exit(3)"""  # noqa: E501
    job = shared.submit(python(code, words), name=f"x{words}y")
    eventually(lambda: "progress" in log_of(job))
    shown = ""
    for command in (
        ["jobs"],
        ["jobs", "--active"],
        ["status"],
        ["wait", str(job.id)],
        ["jobs"],
        ["cancel", str(job.id)],
    ):
        main(command)
        shown += "".join(capsys.readouterr())
    assert "exit code 3; last line: bad" in shown
    assert not [c for c in shown if not c.isprintable() and c != "\n"]
