"""How much the users of a shared daemon may use: the setting `limits`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec

from gpudeck.scheduler.protocol.users import user_name

EVERYBODY = "*"
"""The name of the limits of all users without limits of their own, except root."""


class UserLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Describe what one user may use."""

    gpus: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 0
    """How many GPUs the user's jobs may hold at once; 0: any number."""
    gpu_hours: Annotated[float, msgspec.Meta(ge=0, le=1e6)] = 0.0
    """The GPU-hours of seven days after which no further job starts; 0: any number."""
    suspended_memory: Annotated[float, msgspec.Meta(ge=0, le=2**20)] = 0.0
    """GiB of host memory that the user's suspended jobs may hold; 0: any number."""
    preemptible: bool = False
    """Whether the user's jobs are preemptible without saying so."""


def limits_of(known: Mapping[str, UserLimits], user: int | None) -> UserLimits | None:
    """Return the limits of a user; None where there are none, as in a queue of one's own."""
    if user is None or not known:
        return None
    return known.get(user_name(user)) or (known.get(EVERYBODY) if user else None)
