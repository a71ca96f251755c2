"""What the daemon looks at again and again: recovery, the store, folders of jobs and runners."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from gpudeck.language.text import Message
from gpudeck.scheduler.daemon.state import State
from gpudeck.scheduler.executors.local import Local
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.queue.queue import Queue
from gpudeck.scheduler.services.notices import NoticeBoard
from gpudeck.scheduler.services.runner_watch import RETRY_S, RunnerWatch
from gpudeck.scheduler.telemetry.monitor import Monitor

FOLDERS_S = 3.0
"""The interval at which folders of jobs that could not be read are checked again."""
INSPECT_S = 1.0
"""The interval at which runners are asked what they wait for."""
CHECKPOINT_S = 30.0
"""The interval at which the write-ahead log of the store is emptied."""


class Upkeep:
    """Do each of these when it is due."""

    def __init__(
        self,
        state: State,
        queue: Queue,
        local: Local,
        runners: RunnerWatch,
        monitor: Monitor,
        notices: NoticeBoard,
        *,
        start_soon: Callable[[], None],
        stop: Callable[[], None],
        touch: Callable[[], None],
    ) -> None:
        """Do nothing yet.

        Args:
            state: the newest readings, by which a runner is let go.
            queue: the queue.
            local: asks the runners of this machine.
            runners: takes note of runners that ended.
            monitor: knows the devices.
            notices: shows what cannot be done now.
            start_soon: starts what can start, once this turn of the loop is over.
            stop: ends the daemon.
            touch: publishes a new snapshot soon.
        """
        self._state, self._queue, self._local = state, queue, local
        self._runners, self._monitor, self._notices = runners, monitor, notices
        self._start_soon, self._stop, self._touch = start_soon, stop, touch
        self._inspect_at = self._recover_at = self._checkpoint_at = self._folders_at = 0.0
        """When each of them is due, in monotonic seconds."""

    def run_due(self) -> None:
        """Do what is due."""
        now = time.monotonic()
        if now >= self._folders_at:
            self._folders_at = now + FOLDERS_S
            self._check_folders()
        if now >= self._inspect_at:
            self._inspect_at = now + INSPECT_S
            self._inspect_runners()
        if "recover" in self._notices and now >= self._recover_at:
            self.recover()
        if now >= self._checkpoint_at:
            self._checkpoint_at = now + CHECKPOINT_S
            self.checkpoint()
        if self._queue.store_is_replaced:  # the next daemon finds what is left
            sys.stderr.write("the daemon ends: its store was deleted or replaced\n")
            self._stop()

    def recover(self) -> None:
        """Decide what becomes of the jobs that the last daemon left."""
        self._recover_at = time.monotonic() + RETRY_S
        with self._notices.catch("recover"):
            self._queue.recover()
        self._start_soon()

    def checkpoint(self) -> None:
        """Empty the write-ahead log of the store."""
        with self._notices.catch("checkpoint"):
            self._queue.checkpoint()

    def _inspect_runners(self) -> None:
        devices = self._monitor.devices
        for found in self._local.inspect(self._queue.running, self._state.latest, devices):
            if found.ended:
                self._runners.runner_ended(found.job)
            elif found.left:
                with self._notices.catch("left behind"):
                    self._queue.add_event(found.job, "left behind", found.left)
            elif self._queue.set_note(found.job, found.note):
                self._touch()

    def _check_folders(self) -> None:
        held_back = self._queue.holds_back_jobs
        try:
            text: Message | None = self._queue.check_folders()
        except UserError as e:
            text = e.message
        if held_back or text is not None or "folders" in self._notices:
            self._start_soon()
        self._notices.set("folders", text)
        self._notices.set("store", self._queue.store_problem())
