"""Say of which kind a quantity in a composed request is, as slots of real requests do."""

from __future__ import annotations

import re
from random import Random

from gpudeck.assistant.query.conversion import kind_of
from gpudeck.assistant.training.symbols import PLAN, parts

KINDS = ("size", "temperature", "power", "percent", "time", "energy", "clock", "other")
"""The kinds of quantities, which are written behind their slots."""
_KIND_OF = {"temp": "temperature", "power": "power", "util": "percent", "log_limit": "size",
            "alert_temperature": "temperature", "alert_memory": "percent",
            "idle_util_percent": "percent", "idle_dwell_s": "time", "model_idle_minutes": "time",
            "alert_stuck_job": "time", "alert_idle_job": "time",
            "notify_minutes": "time"}  # fmt: skip
_SIZED = frozenset({"capacity", "do:retry", "do:submit"})
_QUANTITY = re.compile(r"<([qv]):(\w+)>")


def typed(random: Random, text: str, meaning: str) -> str:
    """Return a request whose quantities have the kinds that its meaning is about.

    Some bounds and values of settings are bare numbers.
    """
    subject = meaning.split(maxsplit=1)[0]
    kinds = {} if subject.startswith("no:") else dict(parts(meaning.removeprefix(f"{PLAN} ")))
    about = kinds.get("m", kinds.get("set", ""))
    kind = "size" if about.startswith("mem") or subject in _SIZED else _KIND_OF.get(about, "other")
    if " ahead=" in meaning:
        kind = "time"
    if subject == "conversion":
        kind = "power" if "@Q2" in meaning else kind_of(kinds["to"])
    elif subject.startswith("no:"):
        kind = random.choice(("time", "time", "temperature", "power"))

    def slot(found: re.Match[str]) -> str:
        bare = 0.2 if found[1] == "q" else 0.5
        if subject in ("devices", "do:set") and random.random() < bare:
            return f"<n:{found[2]}>"
        return f"<q:{found[2]}> ({'time' if found[2] == 'Q2' else kind})"

    return _QUANTITY.sub(slot, text)
