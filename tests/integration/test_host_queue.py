"""Test the queue of another machine: a daemon with its own state folder, behind a real sshd."""

from __future__ import annotations

import resource
import signal
import socket
import subprocess
import sys

import pytest

from gpudeck.app.cli.main import main
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.hosts import tunnel as tunnels
from gpudeck.scheduler.hosts.limited import run_limited
from gpudeck.scheduler.hosts.tunnel import tunnel
from gpudeck.scheduler.protocol import settings
from gpudeck.scheduler.protocol.errors import DaemonGone, UserError
from gpudeck.scheduler.protocol.settings import TEMPLATE, Settings
from tests.integration.deck import ready
from tests.integration.shell import Shell
from tests.integration.sshd import serving
from tests.integration.web_page import Page
from tests.support import eventually, state_folder


@pytest.fixture(scope="module")
def there(tmp_path_factory):
    """The other machine: an sshd, and the settings by which its daemon is found."""
    folder = tmp_path_factory.mktemp("there")
    with serving(folder / "sshd") as sshd, state_folder(folder / "it's home") as home:
        settings.save(Settings(source="cpu", model_folder=TEMPLATE))
        with Client() as deck:
            ready(deck)
        yield sshd, home


@pytest.fixture
def host(there):
    sshd, home = there
    sshd.accept("key")
    yield settings.HostSettings("lab", str(sshd.config), str(home))
    sshd.signal_sessions(signal.SIGKILL)


@pytest.fixture
def lab(host, cpu_home, capsys):
    """A shell of this machine, which knows the other one."""
    with Client() as deck:
        deck.set_host("lab1", host)
    return Shell(capsys)


def test_submit_logs_and_cancel_go_to_the_queue_of_the_machine(lab, host, there):
    words = ("submit", "--wait", "--", "sh", "-c", "pwd; echo $LAB $PATH")
    assert "job 1: done" in lab("--host", "lab1", *words)
    printed = lab("--host", "lab1", "logs", "1").splitlines()
    assert printed[0] == str(there[0].home), "it ran in the home folder there"
    assert printed[1].startswith(("/", " /")) and "GPUDECK" not in printed[1]
    assert "job 2" in lab("--host", "lab1", "submit", "--", "sleep", "600")
    assert "job 2: " in lab("--host", "lab1", "cancel", "2")
    with tunnel("lab1", host) as place, Client(place=place) as deck:
        assert deck.wait(2, 20).status == "cancelled"
        assert deck.log(1, -5).endswith(b"\n")
        with pytest.raises(UserError, match="are on lab1"):
            deck.artefacts(1)
    with Client() as here:
        assert here.jobs() == (), "nothing was queued on this machine"


def test_the_page_in_the_browser_shows_the_queue_of_the_machine(lab, there):
    lab("--host", "lab1", "submit", "--wait", "--name", "over-there", "--", "echo", "hello")
    command = [sys.executable, "-m", "gpudeck", "--host", "lab1", "web", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            page = Page(process.stdout.readline().split()[-1])
            ((_, shown),) = page.events("/api/live", 1)
            (job,) = [one for one in shown["ended"] if one["row"]["name"] == "over-there"]
            events = page.events(f"/api/jobs/{job['row']['id']}", 99)
        finally:
            process.send_signal(signal.SIGTERM)
    assert ("log", "hello\n") in events
    with Client() as here:
        assert here.jobs() == (), "this is not the queue of this machine"


def test_gpu_deck_is_found_there(lab):
    with Client() as deck:
        found = eventually(lambda: [h.deck for h in deck.snapshot().hosts if h.problem is None])
    assert found[0].endswith("daemon.sock")
    assert "GPU Deck runs there" in lab("host")


def test_a_connection_that_breaks_is_an_error(host, there):
    with tunnel("lab1", host) as place, Client(place=place) as deck:
        there[0].signal_sessions(signal.SIGKILL)
        with pytest.raises(DaemonGone):
            for _ in range(100):
                deck.jobs()


def test_what_cannot_be_reached_is_named(lab, host, there, tmp_path):
    assert "no machine called lab2" in lab.fails("--host", "lab2", "jobs")
    assert "--host goes with" in lab.fails("--host", "lab1", "doctor", status=2)
    with Client() as deck:
        deck.set_host("lab3", settings.HostSettings("lab", host.config, str(tmp_path)))
    assert "GPU Deck does not run on lab3" in lab.fails("--host", "lab3", "jobs")
    there[0].accept("other_key")
    assert "refused the key" in lab.fails("--host", "lab1", "jobs")


def test_no_command_keeps_the_place_of_the_last_one(lab, capsys):
    assert main(["--host", "lab1", "jobs", "--json"]) == 0
    assert Client.default_place is None
    capsys.readouterr()
    assert lab.json("jobs") == []


@pytest.mark.parametrize("flood", ["yes", "yes >&2"])
def test_output_without_end_is_not_kept(lab, there, flood):
    there[0].accept("key", flood)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert "lab1 sent over 4 MiB when it was asked" in lab.fails("--host", "lab1", "jobs")
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 64 * 1024, "KiB"


@pytest.mark.parametrize("path", ["${GPUDECK_TEST_SECRET}", "%u", "%d", "a:b", "\x1b[2J"])
def test_a_machine_learns_nothing_of_the_environment_here(lab, there, tmp_path, monkeypatch, path):
    """Forward no path in which ssh would fill in what the other machine must not know."""
    monkeypatch.setenv("GPUDECK_TEST_SECRET", "s3cret")
    (tmp_path / "s3cret").mkdir()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s3cret" / "daemon.sock"))
        listening.listen()
        named = f"{tmp_path}/{path}/daemon.sock"
        there[0].send(f"gpudeck-place{named}\0/home\0A=B\0".encode(), "true")
        keys = there[0].folder / "authorized_keys"
        keys.write_text(keys.read_text().removeprefix("restrict,"))  # it may forward
        assert "cannot be reached over ssh" in lab.fails("--host", "lab1", "jobs")
        listening.settimeout(0)
        with pytest.raises(BlockingIOError):
            listening.accept()


def test_a_machine_that_answers_byte_by_byte_is_left(lab, there, monkeypatch):
    # of the limits, only that of the answer is shorter: a connection may take long beside others
    monkeypatch.setattr(
        tunnels, "run_limited", lambda words, most, _: run_limited(words, most, 1.5)
    )
    there[0].accept("key", "while :; do printf x; sleep 0.1; done")
    assert "lab1 does not answer" in lab.fails("--host", "lab1", "jobs")
