"""Notice what a candidate does beside computing: threads, processes, and replaced functions.

Python's audit hooks cannot be removed. They tell of processes and inspection when these
begin. That no function was replaced is checked by comparing with what was there before.
"""

from __future__ import annotations

import _thread
import builtins
import sys
import sysconfig
import threading
import time
import types
from collections.abc import Callable
from typing import Any

import torch
import torch.autograd.profiler
import torch.cuda
import torch.nn.functional

from gpudeck.accel.search.verdict import Kind

_PROCESSES = frozenset(
    ("subprocess.Popen", "os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "os.system",
     "os.kill", "os.putenv")
)  # fmt: skip
_INSPECTION = frozenset(
    ("gc.get_objects", "gc.get_referrers", "gc.get_referents", "sys._getframe",
     "sys._current_frames", "sys.settrace", "sys.setprofile", "sys.addaudithook")
)  # fmt: skip
_STARTERS = frozenset(
    ("start_new_thread", "start_new", "start_joinable_thread", "_start_new_thread",
     "_start_joinable_thread")
)  # fmt: skip
"""Where threads begin, which has no audit event in all versions of Python."""
_CALLABLE = (types.FunctionType, types.BuiltinFunctionType, type, types.MethodDescriptorType,
             types.WrapperDescriptorType)  # fmt: skip
_OF_PACKAGES = tuple({*sysconfig.get_paths().values()} | {"<frozen"})
_TENSOR = torch.Tensor.__name__
_frames = sys._current_frames
_frame = sys._getframe


class Watch:
    """Watch one candidate from before it is loaded."""

    def __init__(self, place: str, flag: Callable[[Kind, str], None]) -> None:
        self._place, self._flag = place, flag
        self.armed = False
        """Whether a call that was warmed up is under way."""
        self._busy = False
        self._before: dict[tuple[str, str], object] = {}
        self._threads = 1

    def begin(self) -> None:
        """Watch from now on."""
        self._threads = len(_frames())
        sys.addaudithook(self._hear)
        for module in (_thread, threading):
            for name in _STARTERS & vars(module).keys():
                vars(module)[name] = self._heard_thread(vars(module)[name])
        self._before = self._functions()

    def _heard_thread(self, start: Callable[..., object]) -> Callable[..., object]:
        """Return a function that starts threads as `start` does, and tells of them."""

        def heard(*given: Any, **named: Any) -> object:
            if self.armed:
                self._flag("threads", "a thread that starts within the call")
            return start(*given, **named)

        return heard

    def check(self) -> None:
        """Look for threads of the candidate, and for functions that were replaced."""
        self._busy = True
        threads = len(_frames())
        self._busy = False
        if threads > self._threads:
            self._flag("threads", "a thread that goes on after the call")
        now = self._functions()
        for key, function in self._before.items():
            if now.get(key) is not function:
                self._flag("patches", ".".join(key))
        for space, name in now.keys() - self._before.keys():
            if space == _TENSOR:  # hides a method that it inherits
                self._flag("patches", f"{space}.{name}")

    def _functions(self) -> dict[tuple[str, str], object]:
        worker = sys.modules["gpudeck.accel.search.worker"]
        spaces: list[Any] = [
            builtins, time, threading, torch, torch.Tensor, torch.cuda, torch.nn.functional,
            torch.autograd.profiler, sys.modules["gpudeck.accel.search.listing"], worker,
            worker.Worker, Watch,
        ]  # fmt: skip
        found: dict[tuple[str, str], object] = {}
        for space in spaces:
            for name, value in list(vars(space).items()):
                if isinstance(value, _CALLABLE):
                    found[space.__name__, name] = value
                    if isinstance(value, types.FunctionType):
                        found[space.__name__, f"{name}.__code__"] = value.__code__
        return found

    def _hear(self, event: str, details: tuple[Any, ...]) -> None:
        if self._busy:
            return
        if event in _PROCESSES:
            if self.armed:
                self._flag("processes", event)
        elif event in _INSPECTION or (event == "open" and str(details[0]).startswith("/proc/")):
            self._busy = True
            try:
                if self._is_within(_frame(1)):
                    self._flag("inspects", event)
            finally:
                self._busy = False

    def _is_within(self, frame: types.FrameType | None) -> bool:
        """Return whether the code that runs is the candidate's, or `inspect` on its behalf."""
        while frame is not None:
            name = frame.f_code.co_filename
            if name == self._place or not self._is_package(name):
                return True
            if not name.endswith(("inspect.py", "traceback.py")):
                return False
            frame = frame.f_back
        return False

    @staticmethod
    def _is_package(name: str) -> bool:
        ours = sys.modules["gpudeck.accel.search.worker"].__file__ or ""
        home = ours[: -len("search/worker.py")]
        return name.startswith((*_OF_PACKAGES, home))
