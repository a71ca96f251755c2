"""Keeps the process alive that writes reports by itself, while the settings ask for any.

It belongs to the assistant, of which the daemon knows no more than its name: what is written, and when, that process finds out by the door
that everybody uses (see `assistant.host.report_writer`).
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable

from scheduler.background.launch import open_log
from scheduler.protocol import paths
from scheduler.protocol.settings import Settings

MODULE = "assistant.host.report_writer"
PAUSE_S = 60.0
"""After it ended though it was wanted."""


class ReportService:
    """`on_trouble` is told why reports are not written; "": they are."""

    def __init__(self, settings: Callable[[], Settings], on_trouble: Callable[[str], None]) -> None:
        self._settings, self._on_trouble = settings, on_trouble
        self._changed = asyncio.Event()

    def review(self) -> None:
        """The settings changed."""
        self._changed.set()

    async def attend(self) -> None:
        """For as long as the daemon lives; cancelled, it ends the process."""
        while True:
            self._changed.clear()
            wanted = self._settings().reports
            if wanted:
                self._on_trouble("")
                self._on_trouble(await self._run())
            try:
                async with asyncio.timeout(PAUSE_S if wanted else None):
                    await self._changed.wait()
            except TimeoutError:
                pass

    async def _run(self) -> str:
        """Why it ended, where it failed."""
        try:
            log = open_log(paths.scribe_log())
            try:
                process = await asyncio.create_subprocess_exec(
                    sys.executable, "-P", "-m", MODULE, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=log,
                    start_new_session=True, cwd="/", env={**os.environ, "GPUDECK_HOME": str(paths.home())},
                )  # fmt: skip
            finally:
                os.close(log)
        except OSError as e:
            return f"no reports are written: {e.strerror}"
        try:
            status = await process.wait()
        finally:
            if process.returncode is None:
                process.terminate()
                await process.wait()
        return (
            f"reports are not written: that process ended with status {status}. Its log: {paths.scribe_log()}"
            if status
            else ""
        )
