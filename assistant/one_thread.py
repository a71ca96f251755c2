"""Import NumPy for small products of matrices."""

from __future__ import annotations

import os


def import_numpy() -> None:
    """Import NumPy so that OpenBLAS computes with one thread, unless the user's environment says
    otherwise.

    More threads take 0.1 s of CPU time to start, and wait for each other in a loop: they made a
    product of small matrices take several times as much CPU time. Call this before anything
    else imports NumPy.
    """
    unset = "OPENBLAS_NUM_THREADS" not in os.environ
    if unset:  # not in os.environ, which processes that are started from here inherit
        os.putenv("OPENBLAS_NUM_THREADS", "1")
    try:
        import numpy  # noqa: F401 - it reads the variable when it is imported
    finally:
        if unset:
            os.unsetenv("OPENBLAS_NUM_THREADS")
