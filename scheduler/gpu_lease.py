"""The GPU that the daemon leases to a process until somebody else needs it. Free of torch."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from gpudeck.language.text import Message, phrase
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import DaemonGone, UserError


class GpuLease:
    """Hold a GPU that the daemon leased, until the end of the process.

    Only the end of the process frees all of its GPU memory.
    """

    def __init__(self, on_evicted: Callable[[Message], None]) -> None:
        """Create a lease that is not held yet.

        Args:
            on_evicted: Called with the reason, in another thread, once somebody else needs the
                GPU. The daemon kills the process 0.1 s later.
        """
        self._on_evicted = on_evicted
        self._daemon: Client | None = None

    @property
    def held(self) -> bool:
        """Return whether this process has a GPU, or had one."""
        return self._daemon is not None

    def take(self, memory: int) -> None:
        """Lease a GPU with so many free bytes. Must be called before CUDA is used.

        Raises:
            UserError: No GPU can be leased now; the message says why.
        """
        if self._daemon is not None:
            return
        daemon = Client(start=False, timeout=None)
        try:
            os.environ["CUDA_VISIBLE_DEVICES"] = daemon.lease(memory)
        except UserError:
            daemon.close()
            raise
        self._daemon = daemon
        threading.Thread(target=self._listen, args=(daemon,), name="lease", daemon=True).start()

    def _listen(self, daemon: Client) -> None:
        try:
            reason = daemon.evicted()
        except DaemonGone:
            reason = phrase("the daemon is gone")
        self._on_evicted(reason)
