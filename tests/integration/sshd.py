"""A real sshd on loopback, as an ordinary process on a high port, with keys of its own."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from gpudeck.scheduler.protocol.settings import HostSettings
from tests.support import LACKS, eventually


class Sshd:
    """Serve this user on loopback, and change what a client meets there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(mode=0o700)
        # start-up files of the user are not run: a session that is killed would leave their locks
        self.home = folder / "login"
        self.home.mkdir()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        for name in ("host_key", "other_host_key", "key", "other_key"):
            words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
            subprocess.run(words, check=True)
        self.known_hosts = folder / "known_hosts"
        self.know("host_key")
        self.accept("key")
        config = folder / "sshd_config"
        config.write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {folder}/host_key\n"
            f"PidFile none\nAuthorizedKeysFile {folder}/authorized_keys\nStrictModes no\n"
            "PermitRootLogin yes\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
            "UsePAM no\nPrintMotd no\nMaxStartups 100\n"
            f"SetEnv HOME={self.home}\n"
        )
        self.config = folder / "ssh_config"
        self.write_config("key")
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)  # its privilege separation needs it
        program = shutil.which("sshd", path=os.environ["PATH"] + ":/usr/sbin")
        self.process = subprocess.Popen(
            [program, "-D", "-E", str(folder / "sshd.log"), "-f", str(config)],
            stdin=subprocess.DEVNULL,
        )
        eventually(self._listens)

    @property
    def settings(self) -> HostSettings:
        """How GPU Deck reaches it."""
        return HostSettings("lab", str(self.config))

    def write_config(self, key: str) -> None:
        """Have clients use a key."""
        self.config.write_text(
            f"Host lab\n HostName 127.0.0.1\n Port {self.port}\n IdentityFile {self.folder}/{key}\n"
            f" IdentitiesOnly yes\n IdentityAgent none\n UserKnownHostsFile {self.known_hosts}\n"
            " GlobalKnownHostsFile none\n StrictHostKeyChecking yes\n"
        )

    def know(self, key: str | None) -> None:
        """Have clients know this host key, or none."""
        kind, text, *_ = (self.folder / f"{key or 'host_key'}.pub").read_text().split()
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {kind} {text}\n" if key else "")

    def accept(self, key: str, command: str = "") -> None:
        """Accept a key alone, and run a command in place of what is asked for."""
        forced = f'restrict,command="{command}" ' if command else ""
        public = (self.folder / f"{key}.pub").read_text()
        (self.folder / "authorized_keys").write_text(forced + public)

    def send(self, text: bytes, then: str = "sleep 60") -> None:
        """Send these bytes to whoever logs in, and then run a command."""
        (self.folder / "sent").write_bytes(text)
        self.accept("key", f"cat {shlex.quote(str(self.folder / 'sent'))}; {then}")

    def signal_sessions(self, number: signal.Signals) -> None:
        """Signal the processes that serve the connections, but not the listener."""
        for child in psutil.Process(self.process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):  # it has just ended
                child.send_signal(number)

    def stop(self) -> None:
        """End the listener, its connections and what runs in them."""
        try:
            children = psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            children = []
        self.process.kill()
        self.process.wait()
        for child in children:
            try:
                child.kill()
            except psutil.NoSuchProcess:
                pass

    def _listens(self) -> bool:
        assert self.process.poll() is None, (self.folder / "sshd.log").read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


@contextmanager
def serving(folder: Path) -> Iterator[Sshd]:
    """Run an sshd whose files are in `folder`; skip where there is none."""
    if not shutil.which("sshd", path=os.environ["PATH"] + ":/usr/sbin"):
        pytest.skip(f"{LACKS} sshd")
    sshd = Sshd(folder)
    try:
        yield sshd
    finally:
        sshd.stop()
