"""The probe's keeper: whatever stands in the probe's place, the devices' trouble is told and another probe is started."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from scheduler.devices import supervisor
from scheduler.devices.supervisor import Supervisor

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
def test_trouble_is_told_and_the_probe_replaced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str | None, words: str) -> None:
    fake = tmp_path / "python"
    if script is not None:
        fake.write_text(script)
        fake.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(fake))
    monkeypatch.setattr(supervisor, "SILENCE_S", 0.2)
    monkeypatch.setattr(supervisor, "_LIMIT", 2**16)
    monkeypatch.setattr(supervisor, "BACKOFF_S", (0.01,))

    async def watch() -> list[str]:
        heard: list[str] = []
        enough = asyncio.Event()

        def trouble(text: str) -> None:
            heard.append(text)
            if len(heard) == 2:
                enough.set()

        keeper = Supervisor(lambda hello: None, lambda readings: None, trouble)
        keeper.start("cpu", 1000.0)
        async with asyncio.timeout(20):
            await enough.wait()
        await keeper.stop()
        return heard

    heard = asyncio.run(watch())
    assert words in heard[0]
    assert words in heard[1], "and the next one is listened to as well"
    assert all("\n" not in text for text in heard)
