"""Make the utilisation agree with the hardware counters of the same moment."""

from __future__ import annotations

from gpudeck.language.text import Message, phrase


def raise_to_active(values: dict[str, float], methods: dict[str, Message]) -> None:
    """Raise the utilisation to the share of active multiprocessors where it is lower.

    The driver takes the utilisation over an interval of its own. When work begins or ends, it can
    be 0 % while the counters, and the rate that they give, include that work.

    Args:
        values: The fields of a reading, which are changed.
        methods: Receives how the utilisation was found.
    """
    active, util = values.get("sm_active"), values.get("util")
    if active is not None and util is not None and util < active:
        values["util"] = active
        methods["util"] = phrase("hardware counters (GPM): share of active multiprocessors")
