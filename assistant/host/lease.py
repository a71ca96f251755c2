"""The assistant's hold on a GPU: the daemon leases it, and takes it back. Free of torch and Qt."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

from scheduler.client import Client
from scheduler.protocol.errors import DaemonGone, UserError


class Lease:
    """At most one a process, and until its end: only then is all of its GPU memory free."""

    def __init__(self, evicted: Callable[[str], None]) -> None:
        """`evicted(why)` is called in a thread of its own once somebody else needs the GPU; the process is killed 0.1 s later."""
        self._evicted = evicted
        self._daemon: Client | None = None

    @property
    def held(self) -> bool:
        """Whether this process has a GPU, or had one: its memory there is free only once the process has ended."""
        return self._daemon is not None

    def take(self, memory: int) -> None:
        """Have a GPU with so many bytes free, before CUDA is used at all: it is to see that one alone. Raises UserError saying why not."""
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
            why = daemon.evicted()
        except DaemonGone:
            why = "the daemon is gone"
        self._evicted(why)


def size_of(model: str) -> int:
    """Bytes of a model's files: what its weights take on the GPU at least."""
    path = Path(model).expanduser()
    files = [path] if path.is_file() else [*path.glob("*.safetensors"), *path.glob("*.pth")]
    return sum(file.stat().st_size for file in files)
