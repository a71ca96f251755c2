"""Word the offer of a model, for the window and the command line. Free of Qt."""

from __future__ import annotations

from gpudeck.app.format.values import memory, significant
from gpudeck.app.language.texts import tr, tr_list, tr_text
from gpudeck.app.models.fit import gpu_place
from gpudeck.app.models.model_list import count_text
from gpudeck.assistant.library.describe import JUDGES
from gpudeck.assistant.library.recommended import Recommendation


def page(offered: Recommendation) -> str:
    """Return the address of the model's page, with its licence."""
    return f"https://huggingface.co/{offered.model.name}"


def lines(offered: Recommendation) -> tuple[str, ...]:
    """Return what the model would change, its size and licence, and its speed."""
    return change_text(offered), facts_text(offered), speed_text(offered)


def change_text(offered: Recommendation) -> str:
    """Return what the model would change."""
    text = tr(
        "Templates write all texts now. This model reads requests that the built-in reader cannot "
        "read, and writes briefs in English; each of its texts is checked before it is shown."
    )
    if offered.model.parameters < JUDGES:
        return text
    more = tr("It also judges its own drafts, which takes at least a billion parameters.")
    return f"{text} {more}"


def facts_text(offered: Recommendation) -> str:
    """Return the size, the licence and the languages."""
    model = offered.model
    parts = [
        tr("{size} parameters", size=count_text(model.parameters)),
        tr("{size} to download", size=memory(model.bytes)),
        tr("licence {name}", name=model.license),
        tr("languages: {names}", names=tr_list([tr_text(name) for name in model.languages])),
    ]
    return " · ".join(parts)


def speed_text(offered: Recommendation) -> str:
    """Return where the model would run, and the speed to expect."""
    read = memory(offered.model.read(offered.device))
    if offered.gpu is None:
        return tr(
            "Runs on the CPU, which reads {size} for each token. Its speed was not measured here.",
            size=read,
        )
    place = gpu_place(offered.gpu)
    if not offered.speed:
        return tr(
            "Fits {place}, which reads {size} for each token. Its bandwidth is not known, so no "
            "speed is estimated.",
            place=place,
            size=read,
        )
    return tr(
        "Fits {place}. Estimated: at most {rate} tok/s, as its memory reads {size} for each token.",
        place=place,
        rate=significant(offered.speed),
        size=read,
    )
