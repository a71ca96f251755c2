"""The daemon watches: live readings, their history, subscribers of every pace, and a probe that
dies or hangs."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from gpudeck.scheduler.client import Client
from gpudeck.scheduler.devices import trace
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.busy_causes import HeldByJobs, NoReading
from gpudeck.scheduler.protocol.devices import Device, Reading
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.fields import HEADLINE
from gpudeck.scheduler.protocol.jobs import Done
from gpudeck.scheduler.protocol.snapshot import Busy, Snapshot
from gpudeck.scheduler.protocol.wire import Connection
from gpudeck.scheduler.services.publisher import PAUSE_S
from gpudeck.scheduler.verbs.control import GetSnapshot, Subscribe
from gpudeck.scheduler.verbs.request import Error, decode_reply, encode_request
from tests.integration.deck import daemon_pid, probe_pid, python, ready
from tests.support import eventually, users_of

WAIT_S = 30.0


class Feed:
    """Read a subscription in a thread."""

    def __init__(self) -> None:
        self.seen: list[Snapshot] = []
        self._deck = Client()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        try:
            for snapshot in self._deck.subscribe():
                self.seen.append(snapshot)
        except UserError:
            pass  # the end of the test

    def close(self) -> None:
        self._deck.close()
        self._thread.join(10)


@contextmanager
def feed() -> Iterator[Feed]:
    found = Feed()
    try:
        yield found
    finally:
        found.close()


def test_readings_are_published_and_kept_in_the_history(shared: Client) -> None:
    first = eventually(lambda: (d := shared.snapshot().devices) and d[0].reading)
    later = eventually(
        lambda: (r := shared.snapshot().devices[0].reading) and r.time > first.time and r
    )
    assert abs(later.time - time.time()) < 5
    assert set(HEADLINE) <= set(later.values) | set(later.absent)
    found = shared.history("cpu", ["util", "no such field"], first.time, later.time)
    assert found.times[0] == first.time
    assert found.times[-1] == later.time
    assert found.columns["util"][-1] == later.values["util"]
    assert set(found.columns["no such field"]) == {None}
    assert shared.history("no such device", ["util"], 0.0).times == []


def test_a_subscriber_sees_every_state_of_a_job_and_ever_newer_snapshots(
    shared: Client, tmp_path: Path
) -> None:
    with feed() as mine:
        eventually(lambda: mine.seen)
        job = shared.submit(
            python(
                "import os, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.01)",
                tmp_path / "go",
            ),
            gpus=1,
        )

        def states() -> list[str]:
            return [j.status for s in mine.seen for j in s.jobs if j.id == job.id]

        eventually(lambda: "running" in states())
        assert mine.seen[-1].devices[0].use == Busy(HeldByJobs((job.id,)))
        assert mine.seen[-1].devices[0].holders == (job.id,)
        (tmp_path / "go").touch()
        eventually(lambda: "done" in states())
    numbers = [s.seq for s in mine.seen]
    assert numbers == sorted(set(numbers))


def test_the_first_subscriber_of_a_daemon_that_has_just_started_is_served(cpu_home: Path) -> None:
    for _ in range(5):
        with Client() as deck:
            assert next(deck.subscribe()).settings.source == "cpu"
            with Client() as other:
                other.stop_daemon()


def test_a_slow_subscriber_delays_nobody_and_gets_the_newest_snapshot(shared: Client) -> None:
    shared.pause()
    jobs = [
        shared.submit(["true", "x" * 20_000], env={}) for _ in range(30)
    ]  # snapshots larger than any buffer of a socket
    slow = Connection(paths.daemon_socket(), timeout=10.0)
    try:
        slow.send(encode_request(Subscribe()))
        first = shared.snapshot().seq
        with feed() as fast:
            for i in range(40):
                shared.configure(idle_dwell_s=float(i))
                time.sleep(2 * PAUSE_S)  # each of them is published
            shared.cancel(jobs[0].id)
            newest = shared.snapshot().seq
            eventually(
                lambda: (
                    fast.seen
                    and any(j.id == jobs[0].id and not j.active for j in fast.seen[-1].jobs)
                )
            )
        got: list[int] = []
        while not got or got[-1] < newest:
            got.append(decode_reply(slow.receive(), Subscribe()).seq)
        assert len(got) < newest - first, "what it was too slow for was left out"
    finally:
        slow.close()
        shared.configure(idle_dwell_s=15.0)
        for job in shared.jobs(active=True):
            shared.cancel(job.id)
        shared.pause(False)


def test_a_malformed_request_gets_an_error_and_the_connection_lives(shared: Client) -> None:
    connection = Connection(paths.daemon_socket(), timeout=10.0)
    hostile = [
        b"", b"hello", b"\xff\xfe", b"{}", b"[]", b'{"type":"nonsense"}', b'{"type":"submit"}', b'{"type":"job","job":"x"}',  # noqa: E501
        b'{"type":"job","job":1.5}', b'{"type":"configure","changes":{"a":null}}', b"[" * 100_000,
        b'{"type":"job","job":1,"x":' + b"[" * 100_000, b'{"type":"job","job":"\xff"}',
    ]  # fmt: skip
    for line in hostile:
        connection.send(line)
        reply = msgspec.json.decode(connection.receive(), type=Error)
        assert "\n" not in str(reply.message)
    connection.send(b'{"type":"snapshot"}')
    assert decode_reply(connection.receive(), GetSnapshot()).settings.source == "cpu"
    connection.close()


def test_settings_are_checked_stored_and_put_in_force(shared: Client, shared_home: Path) -> None:
    before = msgspec.json.decode((shared_home / "settings.json").read_bytes())
    assert shared.configure(idle_dwell_s=3.0).idle_dwell_s == 3.0
    for changes, words in (
        ({"telemetry_hz": 99.0}, "telemetry_hz"),
        ({"nonsense": 1.0}, "nonsense"),
        ({"theme": "pink"}, "theme"),
    ):
        with pytest.raises(UserError, match=words):
            shared.configure(**changes)  # type: ignore[arg-type]
    assert msgspec.json.decode((shared_home / "settings.json").read_bytes()) == {
        **before,
        "idle_dwell_s": 3.0,
    }
    shared.configure(idle_dwell_s=15.0)


def test_a_killed_probe_is_replaced_and_the_gap_is_recorded(cpu_home: Path) -> None:
    with Client() as deck, feed() as mine:
        eventually(lambda: (d := deck.snapshot().devices) and d[0].reading)
        old = eventually(lambda: probe_pid(cpu_home))
        os.kill(old, signal.SIGKILL)
        eventually(
            lambda: any(
                "the probe ended and was replaced" in map(str, s.notices) for s in mine.seen
            )
        )
        new = eventually(lambda: (p := probe_pid(cpu_home)) and p != old and p)
        eventually(
            lambda: (
                (r := deck.snapshot().devices[0].reading)
                and r.time > mine.seen[0].time
                and not deck.snapshot().notices
            )
        )
        told = next(s for s in mine.seen if s.notices)
        assert told.devices[0].reading is None, "an old reading is not shown as if it were new"
        assert new != old


def test_a_hung_probe_is_replaced_and_its_device_is_busy_meanwhile(cpu_home: Path) -> None:
    with Client() as deck, feed() as mine:
        deck.configure(idle_dwell_s=0.0, idle_util_percent=100.0)
        eventually(
            lambda: (
                (d := deck.snapshot().devices) and d[0].reading and not isinstance(d[0].use, Busy)
            )
        )
        old = eventually(lambda: probe_pid(cpu_home))
        os.kill(old, signal.SIGSTOP)
        eventually(lambda: mine.seen[-1].devices[0].use == Busy(NoReading()))
        assert isinstance(deck.wait(deck.submit(["true"], gpus=1).id, WAIT_S).state, Done), (
            "jobs go on"
        )
        eventually(
            lambda: any("the probe hung and was replaced" in map(str, s.notices) for s in mine.seen)
        )
        eventually(lambda: probe_pid(cpu_home) not in (None, old))
        eventually(lambda: not (s := deck.snapshot()).notices and s.devices[0].reading)


def test_a_replay_is_labelled_and_accepts_no_jobs(cpu_home: Path, tmp_path: Path) -> None:
    file = tmp_path / "h100.trace.gz"
    gpu = Device("nvidia-0", 0, "NVIDIA H100", "nvidia")
    with trace.TraceWriter(file, (gpu,), 0.0, {}) as out:
        for i in range(20):
            out.add(trace.Moment(i / 2, (Reading("nvidia-0", i / 2, {"util": 42.0}),)))
    with Client() as deck:
        ready(deck)
        deck.configure(source=f"replay:{file}*8", telemetry_hz=10.0)
        shown = eventually(
            lambda: (
                str((s := deck.snapshot()).source).startswith("replay")
                and all(d.reading for d in s.devices)
                and s
            )
        )
        assert [d.device.name for d in shown.devices] == ["REPLAY NVIDIA H100"] * 8
        assert all(
            "REPLAY" in str(d.device.note) and d.reading and d.reading.values["util"] == 42.0
            for d in shown.devices
        )
        with pytest.raises(UserError, match=r"a recording is shown \(REPLAY\)"):
            deck.submit(["true"], gpus=1)
        assert isinstance(deck.wait(deck.submit(["true"]).id, WAIT_S).state, Done)
        deck.configure(source="replay:/nowhere")
        eventually(lambda: "there is no trace at /nowhere" in map(str, deck.snapshot().notices))
        deck.configure(source="cpu")
        eventually(
            lambda: (
                str((s := deck.snapshot()).source).startswith("cpu")
                and not s.notices
                and s.devices[0].device.kind == "cpu"
            )
        )


def test_a_stopped_daemon_leaves_no_processes(cpu_home: Path) -> None:

    with Client() as deck:
        ready(deck)
        deck.stop_daemon()
    eventually(lambda: users_of(cpu_home) == [])
    assert paths.daemon_log().read_text() == "", "and said nothing in its log"


def test_sigterm_ends_the_daemon_cleanly(cpu_home: Path) -> None:

    with Client() as deck:
        ready(deck)
        os.kill(daemon_pid(), signal.SIGTERM)
        eventually(lambda: users_of(cpu_home) == [])
    assert paths.daemon_log().read_text() == ""
    with (
        socket.socket(socket.AF_UNIX) as dead,
        paths.short(paths.daemon_socket()) as name,
        pytest.raises(ConnectionRefusedError),
    ):
        dead.connect(name)
