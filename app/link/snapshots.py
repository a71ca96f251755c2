"""Snapshots from the daemon to the window: a thread that waits, and a mailbox that holds the newest."""

from __future__ import annotations

import threading

from PySide6.QtCore import QThread, Signal

from scheduler.background.launch import LONGEST_S
from scheduler.client import Client
from scheduler.protocol.errors import DaemonGone, UserError
from scheduler.protocol.fields import HEADLINE
from scheduler.protocol.snapshot import Snapshot

_FIRST_DELAY, _LONGEST_DELAY = 0.5, 8.0
"""Seconds before the daemon is tried again."""
_PATIENCE_MS = int(1000 * (LONGEST_S + 5))
"""A daemon may just be being started."""


class SnapshotFeed(QThread):
    """Connects (starting the daemon where none runs), fetches ten minutes of history, then follows; connects again when it breaks,
    and where there are other devices."""

    arrived = Signal()
    """A snapshot waits to be taken. A newer one replaces it, without a second signal."""
    history = Signal(str, object)
    """A device's id and its `Columns`."""
    linked = Signal(bool, str)
    """Whether the daemon answers now, and a text for the status line."""

    def __init__(self, history_s: float = 600.0) -> None:
        super().__init__()
        self._history_s = history_s
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._client: Client | None = None
        self._newest: Snapshot | None = None
        self._live = True

    def look(self, live: bool) -> None:
        """Whether anybody sees what arrives: if not, the daemon need not read the devices for our sake."""
        with self._lock:
            if live != self._live:
                self._live = live
                if self._client is not None:
                    self._client.close()  # ends the subscription; `_follow` begins another
                    self._client = None

    def take(self) -> Snapshot | None:
        """The newest snapshot, once."""
        with self._lock:
            newest, self._newest = self._newest, None
        return newest

    def stop(self) -> None:
        """End the thread and wait for it."""
        with self._lock:
            self._stop.set()
            if self._client is not None:
                self._client.close()  # ends a blocked receive
        self.wait(_PATIENCE_MS)

    def run(self) -> None:
        delay = _FIRST_DELAY
        while not self._stop.is_set():
            try:
                self._follow()
            except DaemonGone:
                delay, reason = _FIRST_DELAY, "the daemon is gone; reconnecting"
            except UserError as e:
                reason = str(e)
            else:
                continue
            if not self._stop.is_set():
                self.linked.emit(False, reason)
                self._stop.wait(delay)
                delay = min(delay * 2, _LONGEST_DELAY)

    def _follow(self) -> None:
        told: set[str] = set()
        new = True
        while (client := self._connect()) is not None:
            live = self._live
            try:
                if new:
                    told = self._fetch(client)
                for snapshot in client.subscribe(live):
                    self._put(snapshot)
                    here = {state.device.id for state in snapshot.devices}
                    if (
                        new := not here <= told
                    ):  # a daemon that has just started knows none yet: their past is still to be told
                        break
                    told = here
            except DaemonGone:
                with self._lock:
                    if self._client is client:
                        raise
            finally:
                with self._lock:
                    self._client = None
                client.close()

    def _connect(self) -> Client | None:
        """A connection, None where we are to stop."""
        client = Client()
        with self._lock:
            if self._stop.is_set():
                client.close()
                return None
            self._client = client
        return client

    def _fetch(self, client: Client) -> set[str]:
        """History first, so that the charts begin full. Returns the devices there are."""
        snapshot = client.snapshot()
        for state in snapshot.devices:
            self.history.emit(
                state.device.id,
                client.history(state.device.id, HEADLINE, snapshot.time - self._history_s),
            )
        self.linked.emit(True, "connected to the daemon")
        self._put(snapshot)
        return {state.device.id for state in snapshot.devices}

    def _put(self, snapshot: Snapshot) -> None:
        with self._lock:
            unread = self._newest is not None
            self._newest = snapshot
        if not unread:
            self.arrived.emit()
