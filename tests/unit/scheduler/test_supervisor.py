"""The probe's watcher: whatever stands in the probe's place, the devices' trouble is told and
another probe is started."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from gpudeck.scheduler.background import children
from gpudeck.scheduler.devices import supervisor
from gpudeck.scheduler.devices.probe import Hello, Readings
from gpudeck.scheduler.devices.supervisor import Supervisor
from gpudeck.scheduler.protocol.devices import Reading
from tests.support import lives


class Listener:
    """Ignore what probes send."""

    def probe_started(self, hello: Hello) -> None:
        pass

    def add(self, message: Readings) -> None:
        pass

    def add_occupancy(self, readings: Sequence[Reading]) -> None:
        pass

    def lose_probe(self, problem: str) -> None:
        pass


def watch_with(listener: Listener) -> Supervisor:
    watcher = Supervisor()
    watcher.listener = listener
    return watcher


HELLO = '{"type":"hello","source":"cpu","devices":[]}'
READING = '{"type":"readings","time":1,"readings":[{"device":"cpu","time":1,"values":{"util":%s}}]}'


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("#!/bin/sh\necho NVML: a library that prints\nexec sleep 60", "sent an invalid message"),
        (f"#!/bin/sh\necho '{READING % 'null'}'\nexec sleep 60", "sent an invalid message"),
        ("#!/bin/sh\nprintf '\\377\\n'\nexec sleep 60", "sent an invalid message"),
        ("#!/bin/sh\nexec tr '\\0' x < /dev/zero", "sent an invalid message"),
        ("#!/bin/sh\nexit 0", "ended and was replaced"),
        ("#!/bin/sh\nexec sleep 60", "hung and was replaced"),
        ('#!/bin/sh\necho \'{"type":"refusal","message":"no such source"}\'', "no such source"),
        (None, "the probe cannot be started: No such file or directory"),
    ],
    ids=["words", "null", "bytes", "endless line", "ends", "silent", "refuses", "missing"],
)
def test_a_faulty_probe_is_reported_and_replaced(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str | None, words: str
) -> None:
    fake = tmp_path / "python"
    if script is not None:
        fake.write_text(script)
        fake.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(fake))
    monkeypatch.setattr(supervisor, "SILENCE_S", 0.2)
    monkeypatch.setattr(supervisor, "_LINE_LIMIT", 2**16)
    monkeypatch.setattr(children, "BACKOFF_S", (0.01,))

    async def watch() -> list[str]:
        messages: list[str] = []
        enough = asyncio.Event()

        class Trouble(Listener):
            def lose_probe(self, problem: str) -> None:
                messages.append(str(problem))
                if len(messages) == 2:
                    enough.set()

        watcher = watch_with(Trouble())
        await watcher.start("cpu", 1000.0)
        async with asyncio.timeout(20):
            await enough.wait()
        await watcher.stop()
        return messages

    messages = asyncio.run(watch())
    assert words in messages[0]
    assert words in messages[1], "and the next one is listened to as well"
    assert all("\n" not in text for text in messages)


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Replace probes by a script that writes its pid to this file, sends Hello, and waits."""
    fake, pids = tmp_path / "python", tmp_path / "pids"
    fake.write_text(f"#!/bin/sh\necho $$ >> '{pids}'\necho '{HELLO}'\nexec sleep 60")
    fake.chmod(0o700)
    pids.touch()
    monkeypatch.setattr(sys, "executable", str(fake))
    monkeypatch.setattr(supervisor, "SILENCE_S", 60.0)
    return pids


def test_concurrent_starts_leave_one_probe_and_a_stop_leaves_none(noted: Path) -> None:
    def live() -> list[int]:
        return [pid for pid in map(int, noted.read_text().split()) if lives(pid)]

    async def restart() -> None:
        ready = asyncio.Event()

        class Starts(Listener):
            def probe_started(self, hello: Hello) -> None:
                ready.set()

        watcher = watch_with(Starts())
        for _ in range(3):
            await watcher.start("cpu", 2.0)
            async with asyncio.timeout(20):
                await ready.wait()
            ready.clear()
            await asyncio.gather(*(watcher.start("cpu", float(i)) for i in range(1, 5)))
            async with asyncio.timeout(20):
                await ready.wait()
            assert len(live()) == 1
            ready.clear()
        await asyncio.gather(watcher.stop(), watcher.start("cpu", 2.0), watcher.stop())
        assert live() == []

    asyncio.run(restart())


def test_a_probe_that_sends_without_pause_can_be_stopped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A stop in the same iteration of the loop as a reading must not be lost."""
    fake = tmp_path / "python"
    fake.write_text(f"#!/bin/sh\necho '{HELLO}'\nexec yes '{READING % 1.0}'")
    fake.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(fake))

    async def stop_often() -> None:
        messages = asyncio.Event()

        class Messages(Listener):
            def add(self, message: Readings) -> None:
                messages.set()

        watcher = watch_with(Messages())
        for _ in range(10):
            messages.clear()
            await watcher.start("cpu", 1000.0)
            async with asyncio.timeout(20):
                await messages.wait()
                await watcher.stop()

    asyncio.run(stop_often())


def test_an_error_in_a_callback_is_passed_on(noted: Path) -> None:
    class Bug(Listener):
        def probe_started(self, hello: Hello) -> None:
            raise ZeroDivisionError

    async def watch() -> None:
        watcher = watch_with(Bug())
        await watcher.start("cpu", 2.0)
        async with asyncio.timeout(20):
            with pytest.raises(ZeroDivisionError):
                await watcher.crashed
        await watcher.stop()

    asyncio.run(watch())
