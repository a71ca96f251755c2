"""Say what served models do, for the page and the command line."""

from __future__ import annotations

from app.format.values import duration, memory, plural, significant
from assistant.serve.control_messages import Served
from scheduler.protocol.snapshot import Snapshot


def place(served: Served, snapshot: Snapshot | None) -> str:
    """Return where a served model runs, such as `GPU 0 · NVIDIA H100`."""
    if served.device != "cuda":
        return "CPU" if served.device else ""
    for state in snapshot.devices if snapshot else ():
        if state.device.id == served.gpu and not state.device.host:
            return f"GPU {state.device.index} · {state.device.name}"
    return "GPU"


def state(served: Served) -> str:
    """Return what a served model does before it answers; empty once it does."""
    match served.phase:
        case "ready":
            return ""
        case "loading" if served.done:
            left = served.seconds * (served.total - served.done) / served.done
            size = f"{memory(served.done)} of {memory(served.total)}"
            return f"Loading: {size}, about {duration(left)} left"
        case "idle":
            return f"{_sentence(served.note)} It is loaded again with the next request.".lstrip()
        case "failed":
            return served.note
    return _sentence(served.note)


def loaded_share(served: Served) -> float | None:
    """Return the share of the weights that is loaded; None unless they are being loaded."""
    return served.done / served.total if served.phase == "loading" and served.total else None


def rate(served: Served) -> str:
    """Return the tokens a second of all answers."""
    return f"{significant(served.figures.get('tokens_per_second', 0.0))} tok/s"


def cache_share(served: Served) -> float:
    """Return the share of the cache that requests use."""
    blocks = served.figures.get("blocks", 0)
    return served.figures.get("used_blocks", 0) / blocks if blocks else 0.0


def cache(served: Served) -> str:
    """Return how full the cache is, with what it keeps for prompts that begin alike."""
    known = served.figures.get("known_blocks", 0) / max(served.figures.get("blocks", 0), 1)
    return f"{cache_share(served):.0%} used, {known:.0%} kept"


def prefix_hits(served: Served) -> str:
    """Return which share of all prompts was in the cache."""
    read = served.figures.get("prompt_tokens", 0)
    return f"{served.figures.get('cached_tokens', 0) / read:.0%}" if read else "–"


def requests(served: Served) -> str:
    """Return the requests that are answered and that wait."""
    running, waiting = (int(served.figures.get(name, 0)) for name in ("running", "waiting"))
    return f"{running} running, {waiting} waiting"


def accepted(served: Served) -> str:
    """Return how many of the tokens that speculation proposed were right."""
    proposed = served.figures.get("proposed", 0)
    return f"{served.figures.get('accepted', 0) / proposed:.0%}" if proposed else "–"


def facts(served: Served) -> str:
    """Return how a loaded model is kept, in a line."""
    if served.phase != "ready":
        return ""
    parts = [
        f"weights {served.weights}",
        f"cache of {plural(served.cache_tokens, 'token')}",
        f"texts of {plural(served.context, 'token')} at most",
        f"loaded in {duration(served.seconds)}",
    ]
    return " · ".join(parts)


def _sentence(note: str) -> str:
    return f"{note[:1].upper()}{note[1:]}." if note else ""
