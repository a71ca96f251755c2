"""The process of a function that runs while a GPU is idle (see `when_idle`).

    python -m gpudeck.scheduler.idle_function DESCRIPTOR

It reads the function from its standard input and writes what became of it to the descriptor.
"""

from __future__ import annotations

import multiprocessing.spawn
import os
import pickle
import sys
import traceback
from typing import Any

from gpudeck.scheduler.when_idle import Outcome


def main() -> None:
    """Call the function."""
    source, result = sys.stdin.buffer, int(sys.argv[1])
    try:
        # from the process that started this one; first what functions of its main module need
        multiprocessing.spawn.prepare(pickle.load(source))  # noqa: S301
        call: Any = pickle.load(source)  # noqa: S301
        outcome = Outcome("returned", call())
        answer = pickle.dumps(outcome)
    except Exception as e:  # noqa: BLE001 (it is raised where the work was asked for)
        e.add_note(traceback.format_exc())
        answer = _pickled(e)
    with os.fdopen(result, "wb") as file:
        file.write(answer)


def _pickled(error: Exception) -> bytes:
    """Return what the function raised, in words if it cannot be sent itself."""
    try:
        return pickle.dumps(Outcome("raised", error))
    except Exception:  # noqa: BLE001 (an exception may raise anything when it is pickled)
        told = RuntimeError("".join(traceback.format_exception(error)))
        return pickle.dumps(Outcome("raised", told))


if __name__ == "__main__":
    main()
