"""GPU Deck: watch NVIDIA GPUs, queue work on them, run accelerated attention, and ask about it all.

    import gpudeck

    job = gpudeck.submit(["python", "train.py"], gpus=1, memory="20GiB")
    print(job.wait().result)

`import gpudeck` is cheap: a name is imported when it is first used. `gpudeck.accel` holds what
computes on tensors; it needs the extra `compute`, and `gpudeck.app` the extra `window`.
"""

import os.path

_FOLDER = os.path.dirname(__file__)
if not os.path.isdir(os.path.join(_FOLDER, "scheduler")):
    __path__.append(os.path.dirname(_FOLDER))  # a clone, in which the packages lie beside this one

TYPE_CHECKING = False  # without typing: Ctrl+C in its import would print a traceback
if TYPE_CHECKING:
    from typing import Any

    from gpudeck import accel
    from gpudeck.assistant.when_idle import run_when_idle
    from gpudeck.scheduler.aio import AsyncClient
    from gpudeck.scheduler.client import Client, submit
    from gpudeck.scheduler.handle import JobHandle
    from gpudeck.scheduler.protocol.errors import DaemonGone, UserError

    __version__: str

__all__ = [
    "AsyncClient",
    "Client",
    "DaemonGone",
    "JobHandle",
    "UserError",
    "__version__",
    "accel",
    "run_when_idle",
    "submit",
]

_HOME = {
    "AsyncClient": ("scheduler.aio", "AsyncClient"),
    "Client": ("scheduler.client", "Client"),
    "DaemonGone": ("scheduler.protocol.errors", "DaemonGone"),
    "JobHandle": ("scheduler.handle", "JobHandle"),
    "UserError": ("scheduler.protocol.errors", "UserError"),
    "__version__": ("version", "VERSION"),
    "run_when_idle": ("assistant.when_idle", "run_when_idle"),
    "submit": ("scheduler.client", "submit"),
}
"""The module and the name there of what is imported at its first use."""


def __getattr__(name: str) -> "Any":
    import importlib  # later: Ctrl+C in its import would print a traceback

    if name == "accel":
        return importlib.import_module("gpudeck.accel")
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, there = _HOME[name]
    found = globals()[name] = getattr(importlib.import_module(f"{__name__}.{module}"), there)
    return found


def __dir__() -> list[str]:
    return __all__
