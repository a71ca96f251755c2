"""Compile functions for this machine's CPU with Numba, and keep the code on disk.

The code is kept beside the function's file, or in the user's cache folder if that is read-only, or
else in the state folder.
"""

from __future__ import annotations

from typing import Any

import numba

from gpudeck.accel.runtime.state_files import state_folder

# Sums may be reordered and fused, the same for every row; infinities and NaNs stay, so that a
# damaged model is noticed.
OPTIONS: dict[str, Any] = {
    "fastmath": {"reassoc", "contract", "arcp", "nsz"},
    "error_model": "numpy",
    "nogil": True,
}
"""Options of Numba that all compiled functions share."""


def compile_entry(function: Any) -> Any:
    """Compile a function that Python calls."""
    try:
        return _compile(function)
    except RuntimeError:  # Numba found no cache folder that it can write.
        config: Any = numba.config  # its attributes are made at run time
        chosen, config.CACHE_DIR = config.CACHE_DIR, str(state_folder() / "compiled")
        try:
            return _compile(function)
        finally:
            config.CACHE_DIR = chosen


def _compile(function: Any) -> Any:
    return numba.njit(cache=True, **OPTIONS)(function)
