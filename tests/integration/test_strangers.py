"""Other users of the machine cannot lock the owner out of an endpoint, or flood its log."""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpudeck.app.cli.devices.metrics import MAX_CONNECTIONS, allowed_hosts, token_file
from gpudeck.scheduler.protocol import tcp_peers
from gpudeck.scheduler.protocol.tcp_peers import UNKNOWN, ConnectionLimits, party_of, user_of
from tests.integration.endpoint import serving
from tests.support import eventually

CROWD = 300
NOBODY = 65534
_CROWD = f"""if True:
    import os, socket, sys
    os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})
    kept = []
    for _ in range({CROWD}):
        kept.append(socket.socket())
        kept[-1].connect(("127.0.0.1", int(sys.argv[1])))
        if len(sys.argv) > 2:
            kept[-1].sendall(b"G")
    print("connected", flush=True)
    sys.stdin.read()"""
only_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")


@contextmanager
def crowd(port: int, *words: str) -> Iterator[None]:
    """Keep hundreds of idle connections of another user open."""
    command = [sys.executable, "-S", "-I", "-c", _CROWD, str(port), *words]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as stranger:
        assert stranger.stdout is not None
        assert stranger.stdout.readline() == "connected\n"
        yield
        stranger.communicate(timeout=20)


@contextmanager
def metrics(*options: str) -> Iterator[tuple[int, int, list[str]]]:
    """Run `gpudeck metrics`; yield its port, its pid, and a list for what it reported."""
    errors: list[str] = []
    command = [sys.executable, "-m", "gpudeck", "metrics", "--port", "0", *options]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        port = re.search(r":(\d+)/metrics", process.stdout.readline())
        assert port
        try:
            yield int(port[1]), process.pid, errors
        finally:
            process.send_signal(signal.SIGINT)
            errors.append(process.communicate(timeout=20)[1])


def get(port: int, path: str, **headers: str) -> int:
    """Return the status of a request."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path, headers=headers)
    status = connection.getresponse().status
    connection.close()
    return status


@only_root
def test_metrics_serve_their_owner_among_idle_connections_of_another(cpu_home: Path) -> None:
    with metrics() as (port, pid, errors):
        token = f"Bearer {token_file().read_text()}"
        with crowd(port), crowd(port, "half a request"):
            for _ in range(3):
                assert get(port, "/metrics", Authorization=token) == 200
            assert len(list(Path(f"/proc/{pid}/task").iterdir())) < 50
    (line,) = errors[0].splitlines()
    assert re.fullmatch(r"gpudeck: refused a connection of user nobody: .*", line)


@only_root
def test_the_endpoint_serves_its_owner_among_idle_connections_of_another(cpu_home: Path) -> None:
    serve = serving(cpu_home, stderr=subprocess.PIPE)
    with serve as served, crowd(served.port), crowd(served.port, "half a request"):
        for _ in range(3):
            assert served.ask("/v1/models")[0] == 200
    (line,) = serve.errors.splitlines()
    assert re.fullmatch(r"gpudeck: refused a connection of user nobody: .*", line)


@pytest.mark.slow
def test_a_stalled_client_is_cut_off_and_leaves_no_traceback(cpu_home: Path) -> None:
    with metrics() as (port, _, errors):
        stalled = [socket.create_connection(("127.0.0.1", port), timeout=40) for _ in range(5)]
        stalled[0].sendall(b"GET /metrics HTTP/1.1\r\nHost: loc")
        assert [one.recv(100) for one in stalled] == [b""] * 5
        for one in stalled:
            one.close()
    assert errors == [""]


def test_metrics_refuse_hosts_that_a_web_page_can_name(cpu_home: Path) -> None:
    with metrics("--no-token") as (port, *_):
        for host in ("evil.example", f"evil.example:{port}", "", "[", "127.0.0.1.evil.example"):
            assert get(port, "/metrics", Host=host) == 403, host
        for host in ("localhost", f"127.0.0.1:{port}", "[::1]"):
            assert get(port, "/metrics", Host=host) == 200, host
        for head in ("", "Host: localhost\r\nHost: evil.example\r\n", "Host: evil\x00.example\r\n"):
            with socket.create_connection(("127.0.0.1", port), timeout=30) as raw:
                raw.sendall(f"GET /metrics HTTP/1.1\r\n{head}Connection: close\r\n\r\n".encode())
                assert raw.makefile("rb").readline().split()[1] in (b"400", b"403"), head


def test_metrics_limit_the_threads_of_their_own_user(cpu_home: Path) -> None:
    with metrics() as (port, pid, errors):
        token = f"Bearer {token_file().read_text()}"
        idle = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(100)]
        assert [one.recv(1) for one in idle[MAX_CONNECTIONS:]] == [b""] * (100 - MAX_CONNECTIONS)
        assert len(list(Path(f"/proc/{pid}/task").iterdir())) <= MAX_CONNECTIONS + 1
        for one in idle:
            one.close()
        eventually(lambda: len(list(Path(f"/proc/{pid}/task").iterdir())) == 1)
        assert get(port, "/metrics", Authorization=token) == 200
    (line,) = errors[0].splitlines()
    assert re.fullmatch(r"gpudeck: refused a connection of user \w+: .*", line)


def test_metrics_for_other_machines_need_a_token_or_the_name_of_this_one() -> None:
    assert allowed_hosts("0.0.0.0", True) is None
    names = allowed_hosts("0.0.0.0", False)
    assert names is not None
    assert socket.gethostname().lower() in names
    assert allowed_hosts("127.0.0.1", True) == {"localhost"}


@pytest.mark.parametrize(("family", "address"), [("AF_INET", "127.0.0.1"), ("AF_INET6", "::1")])
def test_the_user_behind_a_connection_is_found(family: str, address: str) -> None:
    with socket.create_server((address, 0), family=getattr(socket, family)) as listening:
        near = socket.create_connection(listening.getsockname()[:2])
        far, _ = listening.accept()
        with far:
            assert user_of(far) == party_of(far) == os.getuid()
            near.close()
            assert party_of(far) == UNKNOWN


def test_connections_are_limited_by_party_and_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    users: list[int | str] = []
    monkeypatch.setattr(tcp_peers, "party_of", lambda sock: users.pop())
    lines: list[str] = []
    limits = ConnectionLimits(3, lines.append)

    def admitted(*parties: int | str) -> list[bool]:
        users.extend(reversed(parties))
        with socket.socket() as sock:
            return [limits.admit(sock) is not None for _ in parties]

    assert admitted(*[NOBODY] * 6) == [True] * 4 + [False] * 2
    assert len(lines) == 1
    limits.release(NOBODY)
    assert admitted(NOBODY, NOBODY) == [True, False]
    assert len(lines) == 1
    assert admitted(*[f"10.0.0.{i}" for i in range(14)]) == [True] * 12 + [False] * 2
    own = os.getuid()
    assert admitted(own, own, own, own) == [True, True, True, False]
    assert lines[-1].startswith("refused a connection of user ")
