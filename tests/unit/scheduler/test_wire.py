"""The socket: for its owner alone, at any path, and unmoved by what strangers and cut
connections send."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpudeck.scheduler.protocol import paths, wire
from gpudeck.scheduler.protocol.errors import DaemonGone, UserError


class Server:
    """Reply to each line with the line in capitals, in a thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.heard: list[bytes] = []
        self.loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        ready = threading.Event()
        sock = wire.listen(path)
        self._thread = threading.Thread(
            target=self.loop.run_until_complete, args=(self._serve(sock, ready),)
        )
        self._thread.start()
        assert ready.wait(10)

    async def _serve(self, sock: socket.socket, ready: threading.Event) -> None:
        server = await wire.serve(sock, self._handle)
        ready.set()
        await self._stop.wait()
        server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0)

    async def _handle(self, line: bytes, peer: wire.Peer) -> None:
        self.heard.append(line)
        if line == b"bug\n":
            raise ValueError("a bug of ours")
        await peer.send(line.strip().upper())

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)
        self.loop.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    found = Server(tmp_path / "door.sock")
    yield found
    found.stop()


def ask(path: Path, message: bytes) -> bytes:
    connection = wire.Connection(path, timeout=10.0)
    connection.send(message)
    try:
        return connection.receive()
    finally:
        connection.close()


def test_the_socket_is_readable_by_its_owner_only(server: Server) -> None:
    assert server.path.stat().st_mode & 0o777 == 0o600
    assert server.path.parent.stat().st_mode & 0o777 == 0o700


def test_messages_are_answered_in_order(server: Server) -> None:
    connection = wire.Connection(server.path)
    for word in (b"one", b"two", b"three"):
        connection.send(word)
    assert [connection.receive() for _ in range(3)] == [b"ONE\n", b"TWO\n", b"THREE\n"]
    connection.close()


def test_a_large_message_arrives_whole(server: Server) -> None:
    assert ask(server.path, b"x" * 5_000_000) == b"X" * 5_000_000 + b"\n"


@pytest.mark.parametrize(
    "folder", ["a" * 60 + "/" + "b" * 60, "with a blank", "ünïcödé-猫", "%s{}$HOME;'"]
)
def test_the_socket_works_at_any_path(tmp_path: Path, folder: str) -> None:
    found = Server(tmp_path / folder / "door.sock")
    assert ask(found.path, b"hello") == b"HELLO\n"
    found.stop()


def test_a_line_over_the_limit_ends_its_connection_and_no_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(wire, "MAX_MESSAGE", 1000)
    server = Server(tmp_path / "door.sock")
    other = wire.Connection(server.path, timeout=10.0)
    with pytest.raises(DaemonGone):
        ask(server.path, b"x" * 100_000)
    other.send(b"still here")
    assert other.receive() == b"STILL HERE\n"
    other.close()
    server.stop()
    assert server.heard == [b"still here\n"]


def test_a_bug_in_the_handler_is_logged_and_ends_one_connection(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(DaemonGone, match="closed the connection"):
        ask(server.path, b"bug")
    assert ask(server.path, b"hello") == b"HELLO\n"
    assert "ValueError: a bug of ours" in caplog.text


def test_a_client_that_leaves_during_a_request_does_no_harm(server: Server) -> None:
    for message in (b"", b"half a message", b"whole\n"):
        with socket.socket(socket.AF_UNIX) as rude:
            with paths.short(server.path) as name:
                rude.connect(name)
            rude.sendall(message)
    assert ask(server.path, b"hello") == b"HELLO\n"


def test_a_silent_server_and_a_missing_one_have_different_errors(tmp_path: Path) -> None:
    listening = wire.listen(tmp_path / "door.sock")
    connection = wire.Connection(tmp_path / "door.sock", timeout=0.05)
    connection.send(b"hello")
    with pytest.raises(DaemonGone, match="no answer"):
        connection.receive()
    connection.close()
    listening.close()
    with pytest.raises(DaemonGone, match="nobody answers"):
        wire.Connection(tmp_path / "door.sock")
    with pytest.raises(DaemonGone, match="nobody answers"):
        wire.Connection(tmp_path / "no" / "folder" / "door.sock")


def test_close_from_another_thread_ends_a_blocked_receive(server: Server) -> None:
    connection = wire.Connection(server.path, timeout=None)
    connection.send(b"up")
    assert connection.receive() == b"UP\n"
    ended: list[Exception] = []
    waits = threading.Event()

    def receive() -> None:
        waits.set()
        try:
            connection.receive()
        except DaemonGone as e:
            ended.append(e)

    thread = threading.Thread(target=receive)
    thread.start()
    assert waits.wait(10)
    connection.close()
    thread.join(10)
    assert not thread.is_alive()
    assert len(ended) == 1


def test_a_truncated_reply_is_an_error(tmp_path: Path) -> None:
    listening = wire.listen(tmp_path / "door.sock")
    connection = wire.Connection(tmp_path / "door.sock", timeout=10.0)
    peer, _ = listening.accept()
    peer.sendall(b'{"type":"ok"')
    peer.close()
    with pytest.raises(DaemonGone, match="closed the connection"):
        connection.receive()
    with pytest.raises(DaemonGone):
        for _ in range(100):  # the kernel may take the first bytes
            connection.send(b"x" * 100_000)
    connection.close()
    listening.close()


def test_a_socket_left_by_a_crash_is_replaced(tmp_path: Path) -> None:
    wire.listen(tmp_path / "door.sock").close()
    server = Server(tmp_path / "door.sock")
    assert ask(server.path, b"hello") == b"HELLO\n"
    server.stop()


def test_no_client_is_refused_while_a_server_starts(tmp_path: Path) -> None:
    """asyncio asks for a line of one as it begins to serve; who comes in that moment waits all
    the same."""
    with wire.listen(tmp_path / "door.sock") as listening:
        listening.listen(1)
        clients = [wire.Connection(tmp_path / "door.sock") for _ in range(50)]
        for client in clients:
            client.close()


def test_clients_wait_for_a_busy_server(server: Server) -> None:
    clients: list[wire.Connection] = []
    busy = threading.Event()
    server.loop.call_soon_threadsafe(busy.wait, 30.0)
    try:
        for _ in range(300):
            clients.append(wire.Connection(server.path, timeout=30.0))
        busy.set()
        clients[-1].send(b"late")
        assert clients[-1].receive() == b"LATE\n"
    finally:
        busy.set()
        for client in clients:
            client.close()


def test_a_server_without_descriptors_serves_the_others_later(
    server: Server,
) -> None:
    """A failure to accept is logged once a second and does not flood the loop."""
    told: list[object] = []
    server.loop.set_exception_handler(lambda loop, context: told.append(context))
    known = wire.Connection(server.path, timeout=10.0)
    known.send(b"a")
    assert known.receive() == b"A\n"
    busy, limits = threading.Event(), resource.getrlimit(resource.RLIMIT_NOFILE)
    server.loop.call_soon_threadsafe(busy.wait, 30.0)
    late = wire.Connection(server.path, timeout=10.0)
    free = os.dup(0)
    os.close(free)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
        busy.set()
        late.send(b"b")
        known.send(b"c")
        assert known.receive() == b"C\n"
    finally:
        busy.set()
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert late.receive() == b"B\n"
    assert 0 < len(told) < 10
    known.close()
    late.close()


def test_a_folder_at_the_path_is_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "door.sock").mkdir()
    with pytest.raises(UserError, match="no socket can be opened") as caught:
        wire.listen(tmp_path / "door.sock")
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_is_refused_even_if_the_mode_permits_it(server: Server) -> None:
    server.path.parent.chmod(0o755)
    server.path.chmod(0o777)
    child = os.fork()
    if not child:
        status = 9
        try:
            os.chdir(server.path.parent)  # while we may: the folders above are closed to others
            os.setgid(65534)
            os.setuid(65534)
            with socket.socket(socket.AF_UNIX) as stranger:
                stranger.settimeout(10)
                stranger.connect("door.sock")
                stranger.sendall(b"let me in\n")
                status = 1 if stranger.recv(100) else 0
        except (ConnectionError, BrokenPipeError):
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert server.heard == []
    assert ask(server.path, b"hello") == b"HELLO\n"


@pytest.mark.parametrize(
    ("sent", "pause"), [(b"x", 0.05), (b"x" * 100_000, 0.0)], ids=["slow", "fast"]
)
def test_a_message_without_end_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes, pause: float
) -> None:
    """A byte now and then never lets the timeout pass, and a flood would fill the memory."""
    monkeypatch.setattr(wire, "REPLY_S", 0.5)
    monkeypatch.setattr(wire, "MAX_REPLY", 10_000_000)
    listening = wire.listen(tmp_path / "door.sock")
    connection = wire.Connection(tmp_path / "door.sock", timeout=10.0)
    peer, _ = listening.accept()

    def send() -> None:
        try:
            for _ in range(1000):
                peer.sendall(sent)
                time.sleep(pause)
        except OSError:
            pass  # the client has left

    sender = threading.Thread(target=send)
    sender.start()
    with pytest.raises(DaemonGone, match="without end"):
        connection.receive()
    assert connection.lost
    connection.close()
    sender.join(10)
    assert not sender.is_alive()
    peer.close()
    listening.close()


def test_a_slow_line_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "REPLY_S", 0.1)
    listening = wire.listen(tmp_path / "door.sock")
    connection = wire.Connection(tmp_path / "door.sock", timeout=10.0)
    peer, _ = listening.accept()

    def send() -> None:
        for part in (b"x" * 20_000,) * 5 + (b"\ny\n",):
            peer.sendall(part)
            time.sleep(0.1)

    sender = threading.Thread(target=send)
    sender.start()
    assert len(connection.receive()) == 100_001
    assert connection.receive() == b"y\n"
    sender.join(10)
    connection.close()
    peer.close()
    listening.close()
