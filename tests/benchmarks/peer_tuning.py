"""Make a peer's Triton kernels choose their tiles in seconds instead of minutes.

Triton compiles the configurations of a kernel one after the other and measures each for 0.1 s,
again for every number of heads. With `brief_tuning` all of them are compiled at once on all cores,
each is measured for some milliseconds, and what was chosen for a head size serves every number of
heads.
"""

from __future__ import annotations

import functools
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import triton
import triton.testing
from triton.runtime.autotuner import Autotuner

_HEADS = ("H", "HV", "HQ", "NT", "T")
"""Names in a kernel's key that do not decide its tiles."""
_WARM_UP_MS, _MEASURED_MS = 2, 10


def brief_tuning() -> None:
    """Change how Triton tunes kernels in this process, before the first is tuned."""
    triton.testing.do_bench = functools.partial(
        triton.testing.do_bench, warmup=_WARM_UP_MS, rep=_MEASURED_MS
    )
    Autotuner.prune_configs = functools.partialmethod(_pruned, Autotuner.prune_configs)


def _pruned(self: Any, original: Any, kwargs: dict[str, Any]) -> list[Any]:
    """Return the configurations to measure, which are compiled then."""
    size = tuple((name, str(x)) for name, x in self.nargs.items() if _tells_size(self, name))
    size += tuple((name, str(x)) for name, x in sorted(kwargs.items()) if _tells_size(self, name))
    chosen = vars(self).setdefault("chosen_by_size", {})
    if size in chosen:
        return [self.cache[chosen[size]]]
    configs: list[Any] = original(self, kwargs)
    # the key under which the choice will be kept is the next one in `cache`
    self.cache = _Cache(self.cache, chosen, size)
    _compile(self, configs, kwargs)
    return configs


def _tells_size(tuner: Any, name: str) -> bool:
    return name in tuner.keys and name not in _HEADS


class _Cache(dict[Any, Any]):
    """Note under which key the next choice is kept."""

    def __init__(self, before: Any, chosen: dict[Any, Any], size: Any) -> None:
        super().__init__(before)
        self._chosen, self._size = chosen, size

    def __setitem__(self, key: Any, config: Any) -> None:
        self._chosen.setdefault(self._size, key)
        super().__setitem__(key, config)


def _compile(tuner: Any, configs: list[Any], kwargs: dict[str, Any]) -> None:
    from triton.runtime._async_compile import AsyncCompileMode

    with (
        ThreadPoolExecutor(os.cpu_count()) as pool,
        AsyncCompileMode(pool, ignore_errors=True),
    ):
        for config in configs:
            asked = {**kwargs, **config.all_kwargs(), "warmup": True}
            tuner.fn.run(*tuner.nargs.values(), **asked)
