"""The probe's keeper: whatever stands in the probe's place, the devices' trouble is told and another probe is started."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from scheduler.background import children
from scheduler.devices import supervisor
from scheduler.devices.probe import Hello
from scheduler.devices.supervisor import Supervisor
from tests.support import lives


def ignore(*said: object) -> None:
    pass


HELLO = '{"type":"hello","source":"cpu","devices":[]}'
READING = '{"type":"readings","time":1,"readings":[{"device":"cpu","time":1,"values":{"util":%s}}]}'


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("#!/bin/sh\necho NVML: a library that prints\nexec sleep 60", "said what is no reading"),
        (f"#!/bin/sh\necho '{READING % 'null'}'\nexec sleep 60", "said what is no reading"),
        ("#!/bin/sh\nprintf '\\377\\n'\nexec sleep 60", "said what is no reading"),
        ("#!/bin/sh\nexec tr '\\0' x < /dev/zero", "said what is no reading"),
        ("#!/bin/sh\nexit 0", "ended and was replaced"),
        ("#!/bin/sh\nexec sleep 60", "hung and was replaced"),
        ('#!/bin/sh\necho \'{"type":"refusal","message":"no such source"}\'', "no such source"),
        (None, "no probe can be started: No such file or directory"),
    ],
    ids=["words", "null", "bytes", "endless line", "ends", "silent", "refuses", "missing"],
)
def test_trouble_is_told_and_the_probe_replaced(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str | None, words: str
) -> None:
    fake = tmp_path / "python"
    if script is not None:
        fake.write_text(script)
        fake.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(fake))
    monkeypatch.setattr(supervisor, "SILENCE_S", 0.2)
    monkeypatch.setattr(supervisor, "_LIMIT", 2**16)
    monkeypatch.setattr(children, "BACKOFF_S", (0.01,))

    async def watch() -> list[str]:
        heard: list[str] = []
        enough = asyncio.Event()

        def trouble(text: str) -> None:
            heard.append(text)
            if len(heard) == 2:
                enough.set()

        keeper = Supervisor(lambda hello: None, lambda readings: None, trouble, ignore)
        await keeper.start("cpu", 1000.0)
        async with asyncio.timeout(20):
            await enough.wait()
        await keeper.stop()
        return heard

    heard = asyncio.run(watch())
    assert words in heard[0]
    assert words in heard[1], "and the next one is listened to as well"
    assert all("\n" not in text for text in heard)


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Probes that note who they are in this file, say hello, and wait."""
    fake, pids = tmp_path / "python", tmp_path / "pids"
    fake.write_text(f"#!/bin/sh\necho $$ >> '{pids}'\necho '{HELLO}'\nexec sleep 60")
    fake.chmod(0o700)
    pids.touch()
    monkeypatch.setattr(sys, "executable", str(fake))
    monkeypatch.setattr(supervisor, "SILENCE_S", 60.0)
    return pids


def test_starts_at_the_same_moment_leave_one_probe_and_a_stop_none(noted: Path) -> None:
    def live() -> list[int]:
        return [pid for pid in map(int, noted.read_text().split()) if lives(pid)]

    async def restart() -> None:
        said = asyncio.Event()
        keeper = Supervisor(
            lambda hello: said.set(), lambda readings: None, lambda words: None, ignore
        )
        for _ in range(3):
            await keeper.start("cpu", 2.0)
            async with asyncio.timeout(20):
                await said.wait()
            said.clear()
            await asyncio.gather(*(keeper.start("cpu", float(i)) for i in range(1, 5)))
            async with asyncio.timeout(20):
                await said.wait()
            assert len(live()) == 1
            said.clear()
        await asyncio.gather(keeper.stop(), keeper.start("cpu", 2.0), keeper.stop())
        assert live() == []

    asyncio.run(restart())


def test_a_probe_that_talks_without_pause_is_stopped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A stop that comes in the same turn of the loop as a reading must not be lost; the daemon would answer nobody from then on."""
    fake = tmp_path / "python"
    fake.write_text(f"#!/bin/sh\necho '{HELLO}'\nexec yes '{READING % 1.0}'")
    fake.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(fake))

    async def stop_often() -> None:
        heard = asyncio.Event()
        keeper = Supervisor(
            lambda hello: None, lambda readings: heard.set(), lambda words: None, ignore
        )
        for _ in range(10):
            heard.clear()
            await keeper.start("cpu", 1000.0)
            async with asyncio.timeout(20):
                await heard.wait()
                await keeper.stop()

    asyncio.run(stop_often())


def test_an_error_of_ours_is_not_kept_quiet(noted: Path) -> None:
    def bug(hello: Hello) -> None:
        raise ZeroDivisionError

    async def watch() -> None:
        keeper = Supervisor(bug, lambda readings: None, lambda words: None, ignore)
        await keeper.start("cpu", 2.0)
        async with asyncio.timeout(20):
            with pytest.raises(ZeroDivisionError):
                await keeper.crashed
        await keeper.stop()

    asyncio.run(watch())
