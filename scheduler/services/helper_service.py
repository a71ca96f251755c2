"""The helper service keeps a process of the assistant alive for as long as it is wanted.

The process belongs to the assistant, of which the daemon knows only the module's name: the report
writer (`gpudeck.assistant.host.report_writer`), which finds out through the client what to write,
and the tuner of attention (`gpudeck.assistant.host.attention_tuner`), which measures while a GPU is
idle.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpudeck.extras import missing_of
from gpudeck.scheduler.background.launch import open_log
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.devices import ASSISTANT_MARK

RESTART_S = 60.0
"""The pause before a process that ended too early is started again."""


@dataclass(frozen=True)
class Helper:
    """Describe a process."""

    module: str
    log: Callable[[], Path]
    problem: str
    """What is missing while it fails."""
    extras: tuple[str, ...] = ()
    """The parts of GPU Deck that it needs; see `gpudeck.extras`."""
    environment: Mapping[str, str] = field(default_factory=dict)
    leases: bool = False
    """Whether it leases a GPU: it then may become wanted without a change of the settings, and may
    be killed at an eviction."""


REPORT_WRITER = Helper(
    "gpudeck.assistant.host.report_writer",
    paths.report_writer_log,
    "no reports are written",
    ("assistant", "compute"),
)
ATTENTION_TUNER = Helper(
    "gpudeck.assistant.host.attention_tuner",
    paths.attention_tuner_log,
    "attention is not measured",
    ("compute",),
    {ASSISTANT_MARK: "1"},
    leases=True,
)


class HelperService:
    """Run a helper while it is wanted.

    Args:
        helper: The process.
        wanted: Returns whether it has anything to do.
        notify: Takes the problem where the process failed, and None where it does not.
    """

    def __init__(
        self, helper: Helper, wanted: Callable[[], bool], notify: Callable[[str | None], None]
    ) -> None:
        self._helper, self._wanted, self._notify = helper, wanted, notify
        self._changed = asyncio.Event()

    def settings_changed(self) -> None:
        """Check again whether the process is wanted."""
        self._changed.set()

    async def run(self) -> None:
        """Keep the process alive, for ever; a cancellation ends the process."""
        while True:
            self._changed.clear()
            wanted = self._wanted()
            if wanted:
                self._notify(None)
                self._notify(await self._run_process())
            try:
                async with asyncio.timeout(RESTART_S if wanted or self._helper.leases else None):
                    await self._changed.wait()
            except TimeoutError:
                pass

    async def _run_process(self) -> str | None:
        """Run the process to its end; return the problem where it failed."""
        helper = self._helper
        if missing := missing_of(*helper.extras):
            return f"{helper.problem}: {missing}"
        try:
            log = open_log(helper.log())
            try:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-P", "-m", helper.module),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=log,
                    start_new_session=True,
                    cwd="/",
                    env={**os.environ, **helper.environment, "GPUDECK_HOME": str(paths.home())},
                )
            finally:
                os.close(log)
        except OSError as e:
            return f"{helper.problem}: {e.strerror}"
        try:
            status = await process.wait()
        finally:
            if process.returncode is None:
                process.terminate()
                await process.wait()
        if status == 0 or (helper.leases and status == -signal.SIGKILL):
            return None
        return f"{helper.problem}: its process ended with status {status}. Its log: {helper.log()}"


def attention_is_due() -> bool:
    """Return whether programs used shapes of attention or products since the tuner last went
    through them."""
    if missing_of("compute"):  # other environments of this user compute, and can measure
        return False
    used = max(map(_changed_at, paths.used_files()))
    return used > _changed_at(paths.attention_tuned_file())


def _changed_at(file: Path) -> float:
    """Return when a file was changed, 0 if there is none."""
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0
