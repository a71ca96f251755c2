"""Test other machines over ssh: a real sshd, which freezes, floods, lies and refuses."""

from __future__ import annotations

import asyncio
import signal
import time

import pytest

from gpudeck.scheduler.client import Client
from gpudeck.scheduler.hosts import connection
from gpudeck.scheduler.hosts.connection import HostConnection, first_moment
from gpudeck.scheduler.hosts.service import HostService
from gpudeck.scheduler.protocol.busy_causes import Asleep, Unreachable
from gpudeck.scheduler.protocol.errors import NotFound, UserError
from gpudeck.scheduler.protocol.settings import HostSettings
from gpudeck.scheduler.protocol.snapshot import Busy, everywhere, label
from tests.integration.sshd import serving
from tests.support import eventually


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("ssh") / "sshd") as sshd:
        yield sshd


@pytest.fixture
def sshd(server):
    server.know("host_key")
    server.accept("key")
    server.write_config("key")
    yield server
    server.signal_sessions(signal.SIGKILL)


def problem(sshd):
    """Why the machine cannot be read."""
    with pytest.raises(UserError) as error:
        asyncio.run(first_moment(sshd.settings))
    return str(error.value)


def test_a_machine_is_read_without_installing_anything(sshd):
    moment = asyncio.run(first_moment(sshd.settings))
    assert moment.devices[0].host == "this"
    assert moment.readings[0].values["mem_total"] > 2**20


def test_a_machine_is_added_shown_recorded_and_removed(sshd, alone):
    words = ("host", "add", "lab1", "lab", "--ssh-config", str(sshd.config))
    assert "lab1 was added" in alone(*words)
    with Client() as deck:
        (host,) = eventually(
            lambda: [h for h in deck.snapshot().hosts if h.problem is None and h.devices]
        )
        (state,) = host.devices
        assert label(state.device) in ("lab1 CPU", "lab1 GPU 0")
        assert state.device.id not in {s.device.id for s in deck.snapshot().devices}
        assert state.device.id in {s.device.id for s in everywhere(deck.snapshot()).devices}
        began = time.time() - 60
        eventually(lambda: deck.history(state.device.id, ("mem_used",), began).times)
        assert "lab1 CPU" in alone("status")
        assert "reachable since" in alone("host")
        assert "lab1 answers" in alone("host", "test", "lab1")
        assert "was removed" in alone("host", "remove", "lab1")
        assert deck.snapshot().hosts == ()
        with pytest.raises(NotFound, match="no machine called lab1"):
            deck.set_host("lab1", None)
        # ssh and its reader are gone, too
        eventually(lambda: not _sessions(sshd))


def _sessions(sshd):
    import psutil

    return psutil.Process(sshd.process.pid).children(recursive=True)


def test_alerts_name_the_machine(sshd, cpu_home):
    gpu = b'{"id":"GPU-1","index":0,"name":"H100","kind":"nvidia","values":{"ecc_uncorrected":2}}'
    sshd.send(b'gpudeck1 {"devices":[' + gpu + b"]}\n")
    with Client() as deck:
        deck.set_host("lab1", sshd.settings)
        (alert,) = eventually(lambda: deck.snapshot().alerts)
        assert str(alert.text) == "lab1 GPU 0 has had 2 memory errors that could not be corrected"
        assert alert.device == "lab1/GPU-1"
        deck.set_host("lab1", None)
        eventually(lambda: not deck.snapshot().alerts)


def test_an_unreachable_machine_raises_an_alert(sshd, cpu_home):
    sshd.send(b"gpudeck1 asleep\n")
    with Client() as deck:
        deck.configure(alert_host=0.01)
        deck.set_host("lab1", sshd.settings)
        eventually(lambda: deck.snapshot().hosts[0].problem is None)
        sshd.accept("other_key")
        sshd.signal_sessions(signal.SIGKILL)
        (alert,) = eventually(lambda: deck.snapshot().alerts)
        assert (alert.rule, alert.device) == ("machine unreachable", "lab1")
        assert str(alert.text).startswith("lab1 has been unreachable for ")
        deck.set_host("lab1", None)
        eventually(lambda: not deck.snapshot().alerts)


def test_a_machine_that_cannot_be_reached_is_not_added(sshd, alone):
    sshd.accept("other_key")
    text = alone.fails("host", "add", "lab1", "lab", "--ssh-config", str(sshd.config))
    assert "refused the key" in text and "Nothing was added" in text


@pytest.mark.parametrize("address", ["-oProxyCommand=touch /tmp/x", "a b", "", "x;y", "$(id)"])
def test_an_address_cannot_be_an_option_or_a_command(shared, address):
    with pytest.raises(UserError):
        shared.set_host("lab1", HostSettings(address))
    assert not shared.snapshot().hosts


def test_a_changed_host_key_is_named(sshd):
    sshd.know("other_host_key")
    assert "its host key changed" in problem(sshd)


def test_an_unknown_host_key_says_how_to_accept_it(sshd):
    sshd.know(None)
    assert "its host key is not known yet. Connect once with: ssh -F" in problem(sshd)


def test_a_machine_where_nobody_listens_is_named(sshd):
    dead = HostSettings("ssh://127.0.0.1:1")
    with pytest.raises(UserError, match="Connection refused"):
        asyncio.run(first_moment(dead))


def test_what_a_login_shell_prints_is_skipped(sshd):
    sshd.send(b"Welcome!\r\n\x1b]0;title\x07\xff\xfe\ngpudeck1 asleep\n")
    moment = asyncio.run(first_moment(sshd.settings))
    assert [d.name for d in moment.devices] == ["NVIDIA GPU"]


def test_garbage_is_refused_with_a_reason(sshd):
    sshd.send(b"gpudeck1 {\n")
    assert "cannot be read: it sent an invalid message" in problem(sshd)
    sshd.send(b"x" * (2**20 + 2))
    assert "it sent a line of over a mebibyte" in problem(sshd)


async def _until(condition):
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.02)


async def _followed(sshd, check):
    """Follow a machine, and run a check on its connection."""
    made = HostConnection("lab1", sshd.settings, lambda _: None)
    made.start(lambda task: task.cancelled() or task.result())
    try:
        await check(made)
    finally:
        await made.stop()


def test_a_frozen_machine_is_unreachable_and_comes_back(sshd, monkeypatch):
    monkeypatch.setattr(connection, "SILENCE_S", 3.0)
    monkeypatch.setattr(connection, "PAUSES_S", (0.1,))

    async def check(made):
        await _until(lambda: made.problem is None)
        sshd.signal_sessions(signal.SIGSTOP)
        await _until(lambda: made.problem is not None)
        state = made.state()
        assert str(state.problem) == "it sent no readings"
        (lost,) = state.devices
        assert isinstance(lost.use, Busy) and isinstance(lost.use.cause, Unreachable)
        assert lost.reading is None and "unreachable since" in str(lost.use.reason)
        await _until(lambda: made.problem is None)  # a new connection is served
        sshd.signal_sessions(signal.SIGCONT)

    asyncio.run(_followed(sshd, check))


def test_a_machine_that_sends_one_byte_at_a_time_never_stalls_anything(sshd, monkeypatch):
    monkeypatch.setattr(connection, "FIRST_S", 1.0)
    sshd.accept("key", "while :; do printf x; sleep 0.1; done")
    assert "it sent no readings" in problem(sshd)


@pytest.mark.parametrize("flood", ["yes", "yes >&2"])
def test_a_flood_waits_in_its_pipe(sshd, monkeypatch, flood):
    monkeypatch.setattr(connection, "FIRST_S", 1.0)
    sshd.accept("key", flood)
    turns = 0

    async def turn():
        nonlocal turns
        while True:
            await asyncio.sleep(0.01)
            turns += 1

    async def check(made):
        beside = asyncio.create_task(turn())
        await _until(lambda: str(made.problem) != "it was not reached yet")
        beside.cancel()
        assert str(made.problem).startswith("it sent no readings")
        assert turns > 20, "the loop was free for others"

    asyncio.run(_followed(sshd, check))


def test_a_machine_that_names_new_devices_again_and_again_is_left(sshd):
    program = sshd.folder / "inventive"
    program.write_text(
        "i=0; while i=$((i+1)); do printf 'gpudeck1 {\"devices\":['; j=0; while test $j -lt 128; "
        "do test $j = 0 || printf ,; j=$((j+1)); "
        'printf \'{"id":"%s","index":0,"name":"x","kind":"nvidia","values":{}}\' '
        "$i-$j; done; echo ]}; done"
    )
    sshd.accept("key", f"sh {program}")

    async def check(made):
        await _until(lambda: made.problem and "over 256 different devices" in str(made.problem))
        assert len(made.named) == 256

    asyncio.run(_followed(sshd, check))


def test_the_devices_of_a_removed_machine_are_forgotten(sshd):
    sshd.send(b"gpudeck1 asleep\n")
    forgotten = []

    async def check():
        service = HostService(lambda _: None, forgotten.extend)
        await service.serve({"lab1": sshd.settings})
        await _until(lambda: service.devices)
        await service.serve({"lab1": sshd.settings})
        assert forgotten == []
        await service.serve({})
        assert service.devices == ()

    asyncio.run(check())
    assert forgotten == ["lab1/pci"]


def test_a_gpu_that_sleeps_is_shown_asleep(sshd):
    sshd.send(b"gpudeck1 asleep\n")

    async def check(made):
        await _until(lambda: made.problem is None)
        (state,) = made.state().devices
        assert isinstance(state.use, Busy) and isinstance(state.use.cause, Asleep)

    asyncio.run(_followed(sshd, check))
