"""A session is over once no person, kernel, process or GPU used it for its time."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from gpudeck.app.sessions import files, idle, notebook
from gpudeck.app.sessions.files import Session


class World:
    """What a clock sees: the time, the GPUs, and the processor time of the session."""

    def __init__(self) -> None:
        self.now, self.busy, self.cpu, self.most = 1000.0, False, 0.0, 0.0


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(idle.time, "time", lambda: made.now)
    return made


def clock(world: World, limit: float = 60.0) -> idle.IdleClock:
    return idle.IdleClock(limit, lambda: idle.Seen(world.busy, world.most), lambda: world.cpu)


def test_a_session_ends_after_its_time_without_use(world: World) -> None:
    watched = clock(world)
    for now, active, over in ((1030, 1000, False), (1059, 1020, False), (1079, 1020, False),
                              (1080, 1020, True)):  # fmt: skip
        world.now = now
        assert watched.check(active) is over, now
    assert watched.active == 1020


def test_a_gpu_that_computes_and_processes_that_compute_are_use(world: World) -> None:
    watched = clock(world)
    world.now, world.busy = 1100, True
    assert not watched.check(1000)
    world.now, world.busy, world.cpu = 1200, False, 50.0
    assert not watched.check(1000)
    world.now, world.cpu = 1230, 51.0  # a process that polls
    assert not watched.check(1000)
    world.now = 1270
    assert watched.check(1000)


def test_time_in_which_a_session_was_suspended_is_not_idle_time(world: World) -> None:
    watched = clock(world, 90.0)
    world.now = 1050
    assert not watched.check(1000)
    world.now += 86_400
    assert not watched.check(1000), "it has just come back"
    assert watched.active == 1000 + 86_400
    world.now += 39
    assert not watched.check(1000)
    world.now += 1
    assert watched.check(1000), "what it was idle before still counts"


def test_without_a_limit_no_session_ends_and_a_wrong_clock_ends_none_later(world: World) -> None:
    watched = clock(world, 0.0)
    world.now = 1e9
    assert not watched.check(1000)
    watched = clock(world)
    world.now += 30
    assert not watched.check(world.now + 1e6), "a kernel's clock is ahead"
    world.now += 60
    assert watched.check(0.0)


def test_the_administrators_time_ends_sessions_that_name_none_or_a_longer_one(
    world: World,
) -> None:
    world.most = 30.0
    for limit, wanted in ((0.0, 30.0), (60.0, 30.0), (20.0, 20.0)):
        world.now = 1000.0
        watched = clock(world, limit)
        world.now += wanted - 1
        assert not watched.check(1000)
        world.now += 1
        assert watched.check(1000)
        assert watched.limit == wanted
    world.most = 0.0
    watched.check(1000)
    assert watched.limit == 20.0


def test_the_state_of_a_session_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUDECK_ARTEFACTS", str(tmp_path))
    assert files.read(tmp_path) is None
    session = Session("notebook", time.time(), 60.0, "http://127.0.0.1:8888/?token=s3cret")
    files.write(session)
    assert files.read(tmp_path) == session
    (file,) = tmp_path.rglob("session.json")
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    (file.parent / "session.new").symlink_to("/dev/full")
    files.write(Session("notebook", 0.0))
    assert files.read(tmp_path) == session, "a full disk ends no session"
    file.write_text("{")
    assert files.read(tmp_path) is None


@pytest.mark.parametrize(
    "answer",
    [
        b"no http",
        b"HTTP/1.0 200 OK\r\nContent-Length: 90\r\n\r\n[",
        b"HTTP/1.0 200 OK\r\n\r\n5",
        b"HTTP/1.0 200 OK\r\n\r\n{}",
        b'HTTP/1.0 200 OK\r\n\r\n[{"execution_state": "idle"}]',
        b"HTTP/1.0 200 OK\r\n\r\n" + b"[" * 10**5,
        b'HTTP/1.0 200 OK\r\n\r\n{"last_activity": "0001-01-01T00:00:00"}',
    ],
    ids=["no HTTP", "cut off", "a number", "empty", "unknown kernel", "deep", "long ago"],
)
def test_an_answer_that_says_nothing_ends_no_notebook(answer: bytes) -> None:
    """Take the notebook for used: its user would lose what it computed."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                client, _ = listening.accept()
                with client:
                    client.recv(65536)
                    client.sendall(answer)

    threading.Thread(target=serve, daemon=True).start()
    before = time.time()
    url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
    assert notebook._last_use(url, "token") >= before
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()


def test_a_pipe_in_place_of_what_a_session_says_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / ".session").mkdir()
    os.mkfifo(tmp_path / ".session" / "session.json")
    assert files.read(tmp_path) is None


def test_the_address_of_a_notebook_opens_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the server's token: without it, Jupyter asks for a password."""
    monkeypatch.setenv("GPUDECK_ARTEFACTS", str(tmp_path))
    monkeypatch.setattr(notebook, "CHECK_S", 0.01)
    server = (
        "import json, os, pathlib, time\n"
        "folder = pathlib.Path(os.environ['JUPYTER_RUNTIME_DIR'])\n"
        "(folder / 'token').write_text(os.environ['JUPYTER_TOKEN'])\n"
        "new, file = folder / 'new', folder / f'jpserver-{os.getpid()}.json'\n"
        "new.write_text(json.dumps({'url': 'http://127.0.0.1:1/'}))\n"
        "new.rename(file)\n"
        "while not (folder / 'session.json').exists():\n"
        "    time.sleep(0.01)"
    )
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert notebook.main(0.0, [sys.executable, "-c", server]) == 0
    finally:
        signal.signal(signal.SIGTERM, before)
    session = files.read(tmp_path)
    assert session is not None
    (token,) = (file.read_text() for file in tmp_path.rglob("token"))
    assert session.url == f"http://127.0.0.1:1/?token={token}"
