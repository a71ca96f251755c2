"""Say why a backend cannot compute what is asked, or does not exist."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import torch

from gpudeck.language.text import Text, join_texts, joined, phrase

NAMED = phrase("named by the caller")
"""Why a backend runs that was asked for."""


class CannotCompute(ValueError):
    """Signal that a named backend cannot compute a problem."""

    def __init__(
        self, backend: str, why: Text, able: Iterable[str] = (), *, backward: bool = False
    ) -> None:
        whole = (
            phrase("backend {backend} cannot do the backward pass of this: it {why}",
                   backend=backend, why=why)
            if backward
            else phrase("backend {backend} cannot do this: it {why}", backend=backend, why=why)
        )  # fmt: skip
        if names := tuple(able):
            others = phrase("These can: {names}", names=joined(names))
            whole = join_texts((whole, others), ". ")
        super().__init__(whole)
        self.note = phrase("cannot do this: it {problem}", problem=why)
        """The same where the backend is named beside it."""


def this_gpu_has(needed: Text, capability: tuple[int, int] | None) -> Text:
    """Return what a backend needs, with the compute capability of this GPU."""
    version = "none" if capability is None else f"{capability[0]}.{capability[1]}"
    return join_texts((needed, phrase("this GPU has {version}", version=version)))


def refuse_older(device: torch.device, oldest: tuple[int, int]) -> Text | None:
    """Return why kernels for this compute capability cannot run on a device, or None."""
    if device.type != "cuda":
        return phrase("needs a CUDA GPU")
    capability = torch.cuda.get_device_capability(device)
    if capability >= oldest:
        return None
    version = f"{oldest[0]}.{oldest[1]}"
    return this_gpu_has(phrase("needs compute capability {version}", version=version), capability)


def check_name(backend: str, names: Collection[str]) -> None:
    """Raise ValueError, which lists the names, unless `backend` is `auto` or one of them."""
    if backend != "auto" and backend not in names:
        raise ValueError(f"no backend is called {backend!r}. There are: auto, {', '.join(names)}")
