"""Shells and notebooks as jobs: opened, left, opened again, and ended when nobody uses them."""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpudeck.app.sessions import files, terminal
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.jobs import Running
from tests.integration.deck import kill_daemon, log_of, ready
from tests.integration.shell import Shell
from tests.support import eventually


class Window:
    """A terminal in which `gpudeck` runs."""

    def __init__(self, *words: str) -> None:
        self.seen = ""
        master, slave = pty.openpty()
        command = [sys.executable, "-m", "gpudeck", *words]
        self.process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave)
        os.close(slave)
        self.master = master

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def expect(self, text: str) -> None:
        end = time.monotonic() + 60
        while text not in self.seen:
            assert time.monotonic() < end, f"{text!r} did not appear in {self.seen!r}"
            if select.select([self.master], [], [], 0.1)[0]:
                try:
                    self.seen += os.read(self.master, 4096).decode(errors="replace")
                except OSError:  # the command has ended
                    assert text in self.seen, self.seen
        self.seen = self.seen.partition(text)[2]


@contextmanager
def window(*words: str) -> Iterator[Window]:
    made = Window(*words)
    try:
        yield made
    finally:
        made.process.kill()
        made.process.wait()
        os.close(made.master)


def shell_job() -> int:
    with Client() as deck:
        return next(job.id for job in deck.jobs(9, active=True) if "shell" in job.spec.tags)


def test_a_shell_survives_its_window_and_the_daemon(alone: Shell) -> None:
    with Client() as deck:
        ready(deck)
    with window("shell", "--", "/bin/sh") as first:
        first.expect("press Ctrl+]")
        first.type("X=kept; echo got-$((40 + 2)) gpu:$GPUDECK_JOB\n")
        first.expect("got-42 gpu:")
        first.type("\x1d")
        first.expect("To come back: gpudeck shell open")
        assert first.process.wait(60) == 0
    number = shell_job()
    (row,) = json.loads(alone("shell", "list", "--json"))
    assert (row["job"], row["kind"], len(row["holds"])) == (number, "shell", 1)
    assert "shell" in alone("notebook", "list")
    kill_daemon()
    with window("shell", "open", str(number)) as second:
        second.expect("got-42")  # what was shown before
        second.type("echo still-$X\n")
        second.expect("still-kept")
    with window("shell", "open", str(number)) as third:  # the second was killed
        third.expect("still-kept")
        third.type("exit 0\n")
        assert third.process.wait(60) == 0
    with Client() as deck:
        assert deck.wait(number).status == "done"
    assert "No notebook or shell" in alone("shell", "list")
    assert "is no session" in alone("shell", "open", str(number), status=1)


def test_a_shell_waits_for_its_turn_and_ends_when_nobody_uses_it(alone: Shell) -> None:
    with Client() as deck:
        blocker = ready(deck).submit(["sleep", "1000"], gpus=1)
        alone("shell", "--no-open", "--idle", "1s", "--name", "later", "--", "/bin/cat")
        number = shell_job()
        assert deck.job(number).status == "queued"
        deck.cancel(blocker.id)
        assert deck.wait(number).status == "done"
        assert "ends, as nobody used it for 1 s" in log_of(deck.job(number))


def test_a_cancelled_shell_ends_with_what_runs_in_it(alone: Shell, tmp_path: Path) -> None:
    with Client() as deck:
        ready(deck)
        alone(
            "shell",
            "--no-open",
            "--",
            "/bin/sh",
            "-c",
            f"trap '' HUP; echo $$ > {tmp_path}/pid; sleep 1000",
        )
        number = shell_job()
        eventually(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip())
        deck.cancel(number)
        assert deck.wait(number).status == "cancelled"
        pid = int((tmp_path / "pid").read_text())
        assert not Path(f"/proc/{pid}").exists()


def test_a_program_that_does_not_read_stops_no_window(tmp_path: Path) -> None:
    script = (
        "stty raw -echo; echo begun; until [ \"$(stty size)\" = '33 77' ]; do sleep 0.05; done; "
        f"echo resized; until [ -e {tmp_path}/go ]; do sleep 0.05; done; "
        f"head -c {(most := 3 * 2**20)} | wc -c; echo counted; read end"
    )
    command = [sys.executable, "-m", "gpudeck.app.sessions.terminal", "0", "sh", "-c", script]
    env = {**os.environ, "GPUDECK_ARTEFACTS": str(tmp_path), "GPUDECK_JOB": "1"}
    process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL)
    try:
        first = eventually(lambda: connected(tmp_path))
        read_until(first, b"begun")
        frame = terminal.HEAD.pack(terminal.INPUT, 2**16) + b"x" * 2**16
        size = terminal.WINDOW.pack(33, 77)
        first.sendall(frame + terminal.HEAD.pack(terminal.SIZE, len(size)) + size)
        read_until(first, b"resized")  # after more was typed than the kernel holds
        # more than the socket and the session hold
        frames = frame * (most // 2**16 - 1)
        typing = threading.Thread(target=first.sendall, args=(frames,), daemon=True)
        typing.start()
        second = eventually(lambda: connected(tmp_path))
        read_until(second, b"begun")
        assert typing.is_alive(), "what waits for the program is bounded"
        (tmp_path / "go").touch()
        assert str(most).encode() in read_until(second, b"counted")
        typing.join(60)
        first.close()
        second.sendall(terminal.HEAD.pack(terminal.INPUT, 1) + b"\n")
        assert process.wait(60) == 0
        second.close()
    finally:
        process.kill()
        process.wait()


def connected(folder: Path) -> socket.socket | None:
    """Return a window of the session in this folder; None where it has not begun."""
    made = socket.socket(socket.AF_UNIX)
    made.settimeout(60)
    try:
        with paths.short(files.socket_of(folder)) as name:
            made.connect(name)
    except OSError:
        made.close()
        return None
    return made


def read_until(window: socket.socket, text: bytes) -> bytes:
    seen = b""
    while text not in seen:
        data = window.recv(4096)
        assert data, f"the session ended: {seen!r}"
        seen += data
    return seen


def test_what_cannot_be_is_refused(alone: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "open takes the number" in alone("notebook", "open", status=2)
    assert "without a container" in alone("shell", "--container", "podman:x", status=2)
    monkeypatch.setenv("PATH", "/nowhere")
    assert "pip install jupyterlab" in alone("notebook", status=1)


@pytest.mark.slow
def test_a_notebook_of_a_real_jupyter_ends_without_activity(
    alone: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("jupyter-server") is None:
        pytest.skip("jupyter-server is not in PATH")
    monkeypatch.setenv("BROWSER", "true")
    with Client() as deck:
        ready(deck)
        alone("notebook", "--idle", "8s", "--no-open")
        (number,) = (job.id for job in deck.jobs(9, active=True))
        folder = deck.artefact_folder(number)
        session = eventually(lambda: files.read(folder), 120)
        base, _, token = session.url.partition("?token=")
        headers = {"Authorization": f"token {token}", "Content-Type": "application/json"}

        def ask(what: str, data: bytes | None = None, known: bool = True) -> object:
            request = urllib.request.Request(base + what, data, headers if known else {})
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.load(answer)

        with pytest.raises(urllib.error.HTTPError):
            ask("api/kernels", known=False)
        ask("api/kernels", b'{"name": "python3"}')
        (row,) = json.loads(alone("notebook", "list", "--json"))
        assert (row["kind"], row["idle"]) == ("notebook", 8.0)
        assert token not in alone("notebook", "list", "--json")
        assert token not in log_of(deck.job(number))
        assert deck.wait(number).status == "done"
        assert "ends, as nobody used it for 8 s" in log_of(deck.job(number))
        assert not isinstance(deck.job(number).state, Running)
