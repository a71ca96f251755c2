"""Receive snapshots from the daemon in a thread, and keep the newest for the window."""

from __future__ import annotations

import threading

from PySide6.QtCore import QThread, Signal

from gpudeck.app.language.texts import tr, tr_text
from gpudeck.scheduler.background.launch import LONGEST_S
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import DaemonGone, UserError
from gpudeck.scheduler.protocol.fields import HEADLINE
from gpudeck.scheduler.protocol.snapshot import Snapshot, everywhere

_FIRST_DELAY, _LONGEST_DELAY = 0.5, 8.0
"""Seconds before the next attempt to reach the daemon."""
_PATIENCE_MS = int(1000 * (LONGEST_S + 5))
"""Milliseconds to wait for the thread, which may be starting the daemon."""


class SnapshotFeed(QThread):
    """Subscribe to the daemon, starting it if necessary, after loading the recent history.

    The feed connects again when the connection breaks and when there are new devices.
    """

    arrived = Signal()
    """A snapshot waits to be taken. A newer one replaces it without a second signal."""
    history = Signal(str, object)
    """Carries the id of a device and its `Columns`."""
    linked = Signal(bool, str)
    """Carries whether the daemon answers, and a text for the status line."""

    def __init__(self, history_s: float = 600.0) -> None:
        super().__init__()
        self._history_s = history_s
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._client: Client | None = None
        self._newest: Snapshot | None = None
        self._live = True

    def set_live(self, live: bool) -> None:
        """Have the devices read at the full rate; if nobody sees the window, that is not needed."""
        with self._lock:
            if live != self._live:
                self._live = live
                if self._client is not None:
                    self._client.close()  # ends the subscription; `_follow` begins another
                    self._client = None

    def take(self) -> Snapshot | None:
        """Return the newest snapshot, or None if it was taken before."""
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
        """Follow the daemon until `stop`; runs in the thread."""
        delay = _FIRST_DELAY
        while not self._stop.is_set():
            try:
                self._follow()
            except DaemonGone:
                delay, reason = _FIRST_DELAY, tr("disconnected from the daemon; reconnecting")
            except UserError as e:
                reason = tr_text(e.message)
            else:
                continue
            if not self._stop.is_set():
                self.linked.emit(False, reason)
                self._stop.wait(delay)
                delay = min(delay * 2, _LONGEST_DELAY)

    def _follow(self) -> None:
        loaded: set[str] = set()
        new = True
        while (client := self._connect()) is not None:
            live = self._live
            try:
                if new:
                    loaded = self._load_history(client)
                for snapshot in map(everywhere, client.subscribe(live)):
                    self.put(snapshot)
                    here = {state.device.id for state in snapshot.devices}
                    new = not here <= loaded
                    if new:  # a daemon that has just started knows no devices yet
                        break
                    loaded = here
            except DaemonGone:
                with self._lock:
                    if self._client is client:
                        raise
            finally:
                with self._lock:
                    self._client = None
                client.close()

    def _connect(self) -> Client | None:
        """Return a connection, or None once the feed is stopped."""
        client = Client()
        with self._lock:
            if self._stop.is_set():
                client.close()
                return None
            self._client = client
        return client

    def _load_history(self, client: Client) -> set[str]:
        """Deliver the history of each device before the snapshot. Return the ids of the devices."""
        snapshot = everywhere(client.snapshot())
        for state in snapshot.devices:
            self.history.emit(
                state.device.id,
                client.history(state.device.id, HEADLINE, snapshot.time - self._history_s),
            )
        self.linked.emit(True, tr("connected to the daemon"))
        self.put(snapshot)
        return {state.device.id for state in snapshot.devices}

    def put(self, snapshot: Snapshot) -> None:
        """Replace the snapshot that nobody has taken yet, and announce the first of them."""
        with self._lock:
            unread = self._newest is not None
            self._newest = snapshot
        if not unread:
            self.arrived.emit()
