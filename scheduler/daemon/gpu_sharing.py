"""GPUs that the queues of other users hold, want or release."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager

from gpudeck.scheduler.daemon.state import State
from gpudeck.scheduler.executors.gpu_locks import GpuLocks, held_by_others
from gpudeck.scheduler.executors.lock_file import Flag
from gpudeck.scheduler.executors.lock_holders import HolderSearch
from gpudeck.scheduler.protocol.jobs import Job, Running
from gpudeck.scheduler.protocol.wait_reasons import Holder
from gpudeck.scheduler.telemetry.monitor import Monitor


class GpuSharing:
    """Read the locks of other queues, and agree with them on GPUs that an assistant has.

    An assistant that has a GPU is no job: its queue marks the GPU as lent. A queue with a job that
    waits marks the lent GPUs that it wants, and the assistant leaves them.
    """

    def __init__(
        self,
        state: State,
        monitor: Monitor,
        catch: Callable[[str], AbstractContextManager[None]],
    ) -> None:
        """Read nothing yet.

        Args:
            catch: returns what turns a UserError into a notice of this topic.
        """
        self._state, self._monitor, self._catch = state, monitor, catch
        self._search = HolderSearch()
        self._locks: GpuLocks | None = None
        """None until they are read for the first time."""
        self._held: Mapping[str, float] = {}
        """Bytes of GPUs that other queues and their assistants hold, as they were read last."""
        self.holders: Mapping[str, Holder] = {}
        """The processes that hold GPUs for others, as they were known last."""
        self._lent: frozenset[str] = frozenset()
        self._wants: frozenset[str] = frozenset()

    def memory_of(self, device: str) -> float | None:
        """Return the bytes of a GPU that all users share; None for any other device."""
        if not any(d.id == device and d.kind == "nvidia" for d in self._monitor.devices):
            return None
        found = self._state.latest.get(device)
        return math.inf if found is None else found.values.get("mem_total", math.inf)

    def read(self, running: Sequence[Job]) -> Mapping[str, float]:
        """Return the bytes of GPUs that others hold, as they are now; infinity for all."""
        gpus = self._gpus()
        self._held, wanted = {}, frozenset[str]()
        if gpus:
            with self._catch("gpu locks"):
                self._locks = self._locks or GpuLocks.open()
                lent = dict.fromkeys(filter(self.is_lent, gpus), math.inf)
                self._held = held_by_others(self._locks, gpus, running) | lent
                wanted = frozenset(g for g in gpus if self._locks.is_marked(g, Flag.WANTED))
                runners = [j.state.runner for j in running if isinstance(j.state, Running)]
                self.holders = self._search.latest(self._held, self._locks.files, runners)
        self._monitor.held_by_others = wanted.union(self._held)
        return self._held

    def follow(self, lent: Collection[str], waits: bool, running: Sequence[Job]) -> bool:
        """Tell other queues what this one lends and wants, and return whether they released a GPU.

        Readings may be rare, so that this is called between them. Assistants leave the GPUs that
        jobs wait for: ours, and those of other queues.

        Args:
            lent: the GPUs that our assistant has, and jobs that run only while GPUs are idle.
            waits: True while one of our jobs waits for devices that others have.
            running: our jobs that run.
        """
        self.lend(lent)
        wanted = filter(self.is_lent, self._gpus() if waits else ())
        self._wants = self._marked(Flag.WANTED, self._wants, wanted)
        before = self._held
        if not lent and not (before and waits):
            return False
        return self.read(running) != before and waits

    def lend(self, devices: Collection[str]) -> None:
        """Mark these GPUs, and no others, as lent to those who leave when others need them."""
        self._lent = self._marked(Flag.LENT, self._lent, devices)

    def is_lent(self, device: str) -> bool:
        """Return whether another queue has lent the GPU to its assistant."""
        return self._locks is not None and self._locks.is_marked(device, Flag.LENT)

    def _marked(self, flag: Flag, before: frozenset[str], wanted: Iterable[str]) -> frozenset[str]:
        """Change the marks from those before, and return those there are now."""
        found, after = before, frozenset(wanted)
        if self._locks is not None and after != before:
            with self._catch("gpu locks"):
                for device in after ^ before:
                    self._locks.mark(device, flag, device in after)
                found = after
        return found

    def _gpus(self) -> list[str]:
        return [device.id for device in self._monitor.devices if device.kind == "nvidia"]
