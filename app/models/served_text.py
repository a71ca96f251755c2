"""Say what served models do, for the page and the command line."""

from __future__ import annotations

from gpudeck.app.format.values import duration, memory, significant
from gpudeck.app.language.texts import tr, tr_noop, tr_text, tr_whole
from gpudeck.assistant.serve.control_messages import Served
from gpudeck.language.numbers import capitalized
from gpudeck.language.text import Message
from gpudeck.scheduler.protocol.snapshot import Snapshot

_PHASES = {
    "ready": (tr_noop("Serving"), "succeeded"),
    "failed": (tr_noop("Failed"), "failed"),
    "idle": (tr_noop("Idle"), "muted"),
    "waiting": (tr_noop("waiting"), "accent"),
    "loading": (tr_noop("loading"), "accent"),
}
"""A word for each phase, and the meaning of its colour."""


def place(served: Served, snapshot: Snapshot | None) -> str:
    """Return where a served model runs, such as `GPU 0 · NVIDIA H100`."""
    held = tr("as a job") if served.held == "job" else ""
    return " · ".join(filter(None, (_device(served, snapshot), held)))


def _device(served: Served, snapshot: Snapshot | None) -> str:
    if served.device != "cuda":
        return "CPU" if served.device else ""
    for state in snapshot.devices if snapshot else ():
        if state.device.id == served.gpu and not state.device.host:
            return f"GPU {state.device.number} · {state.device.name}"
    return "GPU"


def state(served: Served) -> str:
    """Return what a served model does before it answers, or why it does not; or an empty text."""
    match served.phase:
        case "loading" if served.done:
            left = served.seconds * (served.total - served.done) / served.done
            return tr(
                "Loading: {done} of {total}, about {time} left",
                done=memory(served.done),
                total=memory(served.total),
                time=duration(left),
            )
        case "idle":
            again = tr("It is loaded again with the next request.")
            return f"{_sentence(served.note)} {again}".lstrip()
        case "failed":
            return tr_text(served.note)
    return _sentence(served.note)


def pill(served: Served) -> tuple[str, str]:
    """Return the state in a word, and the meaning of its colour."""
    word, meaning = _PHASES[served.phase]
    return tr(word), meaning


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
    """Return how full the cache is."""
    return _percent(cache_share(served))


def prefix_hits(served: Served) -> str:
    """Return which share of all prompts was in the cache."""
    read = served.figures.get("prompt_tokens", 0)
    return _percent(served.figures.get("cached_tokens", 0) / read) if read else "–"


def requests(served: Served) -> str:
    """Return how many requests are answered, and how many wait."""
    running, waiting = (int(served.figures.get(name, 0)) for name in ("running", "waiting"))
    if waiting:
        return tr("{running} of {all} running", running=running, all=running + waiting)
    return tr("{running} running", running=running)


def accepted(served: Served) -> str:
    """Return how many of the tokens that speculation proposed were right."""
    proposed = served.figures.get("proposed", 0)
    return _percent(served.figures.get("accepted", 0) / proposed) if proposed else ""


def facts(served: Served) -> list[tuple[str, str]]:
    """Return how a loaded model is kept, as captions and values."""
    if served.phase != "ready":
        return []
    blocks = int(served.figures.get("blocks", 0))
    known = served.figures.get("known_blocks", 0) / max(blocks, 1)
    held = (
        tr("{tokens} tokens", tokens=tr_whole(served.cache_tokens))
        if served.cache_tokens
        else tr("{number} states", number=blocks)
    )
    found = [
        (tr("Weights"), served.weights),
        (tr("Cache"), held),
        (tr("Reusable cache"), _percent(known)),
        (tr("Context"), tr("{tokens} tokens", tokens=tr_whole(served.context))),
        (tr("Loaded in"), duration(served.seconds)),
    ]
    if (error := served.cache_error) is not None:
        right = _percent(error.same / max(error.tokens, 1))
        found.insert(2, (tr("Cache accuracy"), right))
    drafts = accepted(served)
    return [*found, (tr("Drafts accepted"), drafts)] if drafts else found


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _sentence(note: Message) -> str:
    said = tr_text(note)
    return f"{capitalized(said)}." if said else ""
