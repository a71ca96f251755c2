"""What the queues of other users hold of this machine's GPUs, and who gets those of assistants."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager

from gpudeck.scheduler.executors.gpu_locks import GpuLocks, held_by_others
from gpudeck.scheduler.executors.lock_file import Flag
from gpudeck.scheduler.executors.lock_holders import HolderSearch
from gpudeck.scheduler.protocol.jobs import Job, Running
from gpudeck.scheduler.protocol.wait_reasons import Holder


class GpuLockWatch:
    """Read the locks of other queues, and agree with them on GPUs that an assistant has.

    An assistant that has a GPU is no job: its queue marks the GPU as lent. A queue with a job that
    waits marks the lent GPUs that it wants, and the assistant leaves them.
    """

    def __init__(self, catch: Callable[[str], AbstractContextManager[None]]) -> None:
        """Read nothing yet.

        Args:
            catch: returns what turns a UserError into a notice of this topic.
        """
        self._catch = catch
        self._holders = HolderSearch()
        self._locks: GpuLocks | None = None
        """None until they are read for the first time."""
        self.held: Mapping[str, float] = {}
        """Bytes of GPUs that other queues and their assistants hold, as they were read last."""
        self.holders: Mapping[str, Holder] = {}
        """The processes that hold these, as far as they are known."""
        self.wanted: frozenset[str] = frozenset()
        """GPUs that other queues want of our assistant, as they were read last."""
        self._lent: frozenset[str] = frozenset()
        self._wants: frozenset[str] = frozenset()

    def read(self, gpus: Sequence[str], running: Sequence[Job]) -> Mapping[str, float]:
        """Return the bytes of these GPUs that others hold, as they are now; infinity for all."""
        self.held, self.wanted = {}, frozenset()
        if gpus:
            with self._catch("gpu locks"):
                self._locks = self._locks or GpuLocks.open()
                lent = dict.fromkeys(filter(self.is_lent, gpus), math.inf)
                self.held = held_by_others(self._locks, gpus, running) | lent
                self.wanted = frozenset(filter(self._is_wanted, gpus))
                runners = [j.state.runner for j in running if isinstance(j.state, Running)]
                self.holders = self._holders.latest(self.held, self._locks.files, runners)
        return self.held

    def lend(self, devices: Collection[str]) -> None:
        """Mark these GPUs, and no others, as lent to our assistant."""
        self._lent = self._marked(Flag.LENT, self._lent, devices)

    def want(self, devices: Collection[str]) -> None:
        """Mark those of these GPUs, and no others, that assistants of other queues have."""
        self._wants = self._marked(Flag.WANTED, self._wants, filter(self.is_lent, devices))

    def is_lent(self, device: str) -> bool:
        """Return whether another queue has lent the GPU to its assistant."""
        return self._locks is not None and self._locks.is_marked(device, Flag.LENT)

    def _is_wanted(self, device: str) -> bool:
        return self._locks is not None and self._locks.is_marked(device, Flag.WANTED)

    def _marked(self, flag: Flag, before: frozenset[str], wanted: Iterable[str]) -> frozenset[str]:
        """Change the marks from those before, and return those there are now."""
        found, after = before, frozenset(wanted)
        if self._locks is not None and after != before:
            with self._catch("gpu locks"):
                for device in after ^ before:
                    self._locks.mark(device, flag, device in after)
                found = after
        return found
