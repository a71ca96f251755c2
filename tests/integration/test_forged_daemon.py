"""Test that nothing is sent to a socket that another user made where the daemon's is expected."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from gpudeck.app.cli.connection import daemon_status
from gpudeck.scheduler.aio import AsyncClient, _replies
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.hosts.reader import deck_socket
from gpudeck.scheduler.hosts.tunnel import tunnel
from gpudeck.scheduler.protocol import mounts, paths, wire
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.settings import HostSettings
from gpudeck.scheduler.verbs.jobs import Wait
from tests.integration.sshd import serving
from tests.support import eventually

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
NOBODY = 65534
LISTEN = """if True:
    import os, socket, sys
    folder, when = sys.argv[1:]
    door = socket.socket(socket.AF_UNIX)
    os.umask(0)
    if when == "before":
        os.setgid(65534), os.setuid(65534)
    door.bind(folder + "/daemon.sock")
    if when == "after":
        os.setgid(65534), os.setuid(65534)
    door.listen()
    print("listens", flush=True)
    while True:
        print(door.accept()[0].recv(4096), flush=True)"""


class Stranger:
    """A process that listens in a folder, and writes down what it is sent."""

    def __init__(self, folder: Path, when: str) -> None:
        """Listen; `when` it becomes another user: before it makes the socket, after, or never."""
        self.heard = folder.parent / "heard"
        with self.heard.open("w") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-S", "-c", LISTEN, str(folder), when], stdout=out
            )
        eventually(lambda: "listens" in self.heard.read_text())

    def sent(self) -> str:
        """Everything that was sent, once the process has ended."""
        self._process.kill()
        self._process.wait()
        lines = self.heard.read_text().splitlines()  # the last one may lack its end
        return "\n".join(line for line in lines if line not in ("listens", "b''"))


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a state folder that another user could make, as in /var/tmp."""
    with tempfile.TemporaryDirectory(dir="/tmp") as outer:
        Path(outer).chmod(0o1777)
        folder = Path(outer) / f"gpudeck-{os.getuid()}"
        folder.mkdir()
        folder.chmod(0o755)
        monkeypatch.setenv("GPUDECK_HOME", str(folder))
        yield folder


PARTS = ["all is another user's", "the folder", "open to others"]
"""What is wrong; a socket whose process alone is another user's is one that root gave away."""


@pytest.fixture(params=[*PARTS, "the process"])
def forged(request: pytest.FixtureRequest, place: Path) -> Iterator[Stranger]:
    """Return what listens in that folder: a part of it is another user's."""
    what = request.param
    if what in ("all is another user's", "the folder"):
        os.chown(place, NOBODY, NOBODY)
    if what == "open to others":
        place.chmod(0o777)
    own = what in ("the folder", "open to others")
    stranger = Stranger(place, "never" if own else "after" if "process" in what else "before")
    try:
        yield stranger
    finally:
        stranger.sent()


async def wait_for_a_job() -> None:
    async with asyncio.timeout(3.0), aclosing(_replies(Wait(1, 1.0))) as replies:
        await anext(replies)


async def subscribe() -> None:
    async with asyncio.timeout(3.0):
        await anext(AsyncClient(start=False).subscribe())


def test_no_client_sends_anything_to_it(forged: Stranger) -> None:
    for ask in (
        lambda: Client(timeout=3.0).submit(["true"], env={"TOKEN": "secret"}),
        lambda: Client(start=False, timeout=3.0).snapshot(),
        lambda: asyncio.run(subscribe()),
        lambda: asyncio.run(wait_for_a_job()),
        daemon_status,
    ):
        with pytest.raises(UserError, match=r"nothing was sent to .* not root's alone"):
            ask()
    assert forged.sent() == ""


@pytest.mark.parametrize("forged", PARTS, indirect=True)
def test_no_tunnel_leads_to_it(forged: Stranger, place: Path, tmp_path: Path) -> None:
    with serving(tmp_path / "sshd") as sshd:
        host = HostSettings("lab", str(sshd.config), str(place))
        with (
            pytest.raises(UserError, match="GPU Deck does not run on lab1"),
            tunnel("lab1", host) as there,
            Client(place=there, timeout=3.0) as deck,
        ):
            deck.submit(["true"], env={"TOKEN": "secret"})
    assert forged.sent() == ""


def test_a_link_in_place_of_the_folder_is_not_followed_by_a_tunnel(
    place: Path, tmp_path: Path
) -> None:
    link = place.parent / "link"
    with serving(tmp_path / "sshd") as sshd:
        listening = wire.listen(place / "daemon.sock")
        host = HostSettings("lab", str(sshd.config), str(link))
        link.symlink_to(place)
        with tunnel("lab1", host):
            pass  # it is this user's own
        os.chown(link, NOBODY, NOBODY, follow_symlinks=False)
        with pytest.raises(UserError, match="GPU Deck does not run"), tunnel("lab1", host):
            pass
        listening.close()


def test_a_machine_is_not_said_to_run_gpu_deck_where_the_folder_is_anothers(place: Path) -> None:
    listening = wire.listen(place / "daemon.sock")
    assert deck_socket(str(place)) == str(place / "daemon.sock")
    os.chown(place, NOBODY, NOBODY)
    assert deck_socket(str(place)) == ""
    listening.close()


def test_a_local_folder_that_another_user_made_is_not_the_state_folder(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = tmp_path / "mountinfo"
    recorded.write_text(f"92 27 0:51 / {tmp_path} rw,relatime - nfs4 filer:/vol rw,vers=4.2\n")
    monkeypatch.setattr(mounts, "MOUNTS", recorded)
    monkeypatch.setattr(paths, "LOCAL", place.parent)
    monkeypatch.delenv("GPUDECK_HOME")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "ours"))
    assert paths.home() == place
    os.chown(place, NOBODY, NOBODY)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "theirs"))
    assert paths.home() == tmp_path / "theirs" / "gpudeck"
