"""Make a peer's Triton kernels choose their tiles in seconds instead of minutes.

Triton compiles the configurations of a kernel one after the other and measures each for 0.1 s,
again for every number of heads. With `brief_tuning` all of them take part, and each is measured for
some milliseconds. Processes with `compile_share` compile them beforehand, and launch none, so that
what another process measures on the GPU meanwhile is not disturbed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import triton
import triton.testing
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

_WARM_UP_MS, _MEASURED_MS = 2, 10


def brief_tuning() -> None:
    """Change how Triton tunes kernels in this process, before the first is tuned."""
    brief = functools.partial(triton.testing.do_bench, warmup=_WARM_UP_MS, rep=_MEASURED_MS)
    triton.testing.do_bench = brief


@contextmanager
def compile_share(part: int, parts: int) -> Iterator[None]:
    """Compile in a `with` block a share of what others will measure, and choose any of it.

    Nothing is launched, so what the kernels would have written is arbitrary.
    """

    def pruned(self: Any, kwargs: dict[str, Any]) -> list[Any]:
        configs = original(self, kwargs)
        return configs[part::parts] or configs[:1]

    def forgetful(self: Any, *args: object, **kwargs: object) -> object:
        self.cache.clear()  # kernels are compiled for numbers of heads that are not in their keys
        return run(self, *args, **kwargs)

    def compiled(self: Any, *args: object, **kwargs: Any) -> object:
        return launch(self, *args, **{**kwargs, "warmup": True})

    original, run, launch = Autotuner.prune_configs, Autotuner.run, JITFunction.run
    with (
        mock.patch.object(triton.testing, "do_bench", _once),
        mock.patch.object(Autotuner, "prune_configs", pruned),
        mock.patch.object(Autotuner, "run", forgetful),
        mock.patch.object(JITFunction, "run", compiled),
    ):
        yield


def _once(call: Callable[[], object], quantiles: tuple[float, ...], **_: object) -> list[float]:
    """Call a kernel once, which compiles it."""
    call()
    return [1.0] * len(quantiles)
