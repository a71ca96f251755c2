"""The report service keeps the process alive that writes scheduled reports.

The process belongs to the assistant, of which the daemon knows only the module's name. It finds
out through the client what to write, and when (see `assistant.host.report_writer`).
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
RESTART_S = 60.0
"""The pause before a process that ended too early is started again."""


class ReportService:
    """Run the report writer while the settings ask for reports.

    Args:
        settings: Returns the settings in force.
        notify: Takes the problem where reports are not written, and None where they are.
    """

    def __init__(
        self, settings: Callable[[], Settings], notify: Callable[[str | None], None]
    ) -> None:
        self._settings, self._notify = settings, notify
        self._changed = asyncio.Event()

    def settings_changed(self) -> None:
        """Check again whether reports are wanted."""
        self._changed.set()

    async def run(self) -> None:
        """Keep the process alive, for ever; a cancellation ends the process."""
        while True:
            self._changed.clear()
            wanted = self._settings().reports
            if wanted:
                self._notify(None)
                self._notify(await self._run_writer())
            try:
                async with asyncio.timeout(RESTART_S if wanted else None):
                    await self._changed.wait()
            except TimeoutError:
                pass

    async def _run_writer(self) -> str | None:
        """Run the process to its end; return the problem where it failed."""
        try:
            log = open_log(paths.report_writer_log())
            try:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-P", "-m", MODULE),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=log,
                    start_new_session=True,
                    cwd="/",
                    env={**os.environ, "GPUDECK_HOME": str(paths.home())},
                )
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
        if status == 0:
            return None
        return (
            f"no reports are written: their process ended with status {status}. "
            f"Its log: {paths.report_writer_log()}"
        )
