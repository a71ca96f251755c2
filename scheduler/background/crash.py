"""Pass the error of a background task on to whoever must end because of it."""

from __future__ import annotations

import asyncio
from typing import Any


def pass_on(task: asyncio.Task[None], crashed: asyncio.Future[Any]) -> None:
    """Let `crashed` fail with the error that the ended task raised, unless an earlier one did.

    A cancelled task, or one that returned, changes nothing.
    """
    if not task.cancelled() and (bug := task.exception()) is not None and not crashed.done():
        crashed.set_exception(bug)
