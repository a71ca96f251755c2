"""Run RWKV-7 on the work of a step: its state takes the place of keys and values.

Answers are computed as one batch, whose states stay together from step to step for as long as the
same texts are in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from gpudeck.accel.rwkv.errors import ModelError
from gpudeck.accel.rwkv.model import RWKV7
from gpudeck.accel.rwkv.tokenizer import END
from gpudeck.accel.rwkv.weights.header import read_header
from gpudeck.accel.serving.errors import ModelRefused
from gpudeck.accel.serving.files import weight_files
from gpudeck.accel.serving.memory import WORK_BYTES, Weights
from gpudeck.accel.serving.runner import GRAPHS
from gpudeck.accel.serving.sampler import Scores
from gpudeck.accel.serving.scheduler import Text, Work
from gpudeck.accel.serving.states import LONGEST, StateCache
from gpudeck.language.text import Bytes, phrase

_TYPES = {
    "cpu": {"auto": torch.float32, "float32": torch.float32, "int8": torch.int8},
    "cuda": {
        "auto": torch.bfloat16, "float32": torch.float32, "bfloat16": torch.bfloat16,
        "int8": torch.int8,
    },
}  # fmt: skip
_COPIES = 3
"""Copies of a running answer's state: those that a step reads, writes and returns."""


@dataclass(frozen=True)
class RecurrentConfig:
    """Describe what the engine needs to know of the model."""

    vocabulary: int
    context: int
    """The most tokens of a text, prompt and answer together."""
    ends: tuple[int, ...]


class RecurrentRunner:
    """Compute the logits of a step."""

    def __init__(
        self, model: RWKV7, cache: StateCache, check: Callable[[], None] = lambda: None
    ) -> None:
        """Prepare to run a model.

        Args:
            model: The model.
            cache: Its states.
            check: Is called between two layers of a prompt on a CPU; it may raise to stop, and the
                states are as before then.
        """
        self._model, self._cache, self._check = model, cache, check
        # Beside others, a CPU computes an answer's token as it does alone, to the bit.
        self.together = model.device.type == "cuda"

    @torch.inference_mode()
    def run(self, work: Sequence[Work[Text]]) -> Scores:
        """Advance the states of all texts, and return the scores of each work that chooses."""
        found: dict[int, Tensor] = {}
        single = [at for at, item in enumerate(work) if len(item.tokens) == 1 and self.together]
        most = GRAPHS[-1]
        for group in (single[at : at + most] for at in range(0, len(single), most)):
            found |= zip(group, self._step([work[at] for at in group]), strict=True)
        for at, item in enumerate(work):
            if at not in found:
                slots = item.sequence.table()
                before = self._cache.read(slots, 1)
                logits, state = self._model.forward(item.tokens, before, self._check)
                self._cache.write(slots, state)
                found[at] = logits
        wanted = [found[at].float() for at, item in enumerate(work) if item.chooses]
        nothing = torch.empty(0, self._model.vocabulary, device=self._model.device)
        return Scores.of(torch.stack(wanted) if wanted else nothing)

    def _step(self, work: Sequence[Work[Text]]) -> Tensor:
        """Return the logits after one more token of each text, as one batch."""
        slots = [item.sequence.table()[0] for item in work]
        size = next(size for size in GRAPHS if size >= len(work))
        tokens = [item.tokens[0] for item in work] + [0] * (size - len(work))
        logits, states = self._model.step(tokens, self._cache.read(slots, size))
        self._cache.write(slots, states)
        return logits[: len(work)]


class RecurrentModel:
    """Hold an RWKV-7 model as the engine needs it."""

    def __init__(self, network: RWKV7) -> None:
        """Take a loaded model."""
        self.network, self.device = network, network.device
        self.config = RecurrentConfig(network.vocabulary, LONGEST, (END,))

    @property
    def weights(self) -> str:
        """Return how the weights are kept."""
        return str(self.network.weights.dtype)[6:]


def load_recurrent(folder: Path, device: str, weights: Weights, free: int) -> RecurrentModel:
    """Load the RWKV-7 model in a folder.

    Args:
        folder: With config.json, .safetensors and the vocabulary.
        device: `cpu` or `cuda`.
        weights: How matrices are kept.
        free: Bytes of the device that are free.

    Raises:
        ModelRefused: It cannot be served, or does not fit.
    """
    types = _TYPES[device]
    if weights not in types:
        raise ModelRefused(
            phrase(
                "RWKV-7 is not served with {weights} weights on this device. Choose one"
                " of: {names}",
                weights=weights,
                names=", ".join(types),
            )
        )
    dtype = types[weights]
    try:
        outlines = [o for file in weight_files(folder) for o in read_header(file).values()]
        size = sum(math.prod(outline.shape) for outline in outlines) * dtype.itemsize
        if size + WORK_BYTES[device] > free:
            raise ModelRefused(
                phrase(
                    "{name} needs {size}; {free} are free. Choose smaller weights, such as int8",
                    name=folder.name,
                    size=Bytes(size + WORK_BYTES[device]),
                    free=Bytes(free),
                )
            )
        return RecurrentModel(RWKV7.load(folder, device, dtype))
    except ModelError as e:
        raise ModelRefused(str(e)) from e


def plan_states(model: RecurrentModel, free: int, running: int) -> int:
    """Return how many states fit.

    Args:
        model: Is loaded already.
        free: Bytes of the device that are free beside it.
        running: The most answers of a step.

    Raises:
        ModelRefused: Not even one does.
    """
    size = model.network.fresh().nbytes
    left = free - WORK_BYTES[model.device.type] - _COPIES * running * size
    if left < size:
        raise ModelRefused(
            phrase(
                "{n} answers at once need {size} for their states; {free} "
                "are free beside the weights. Choose int8 weights",
                n=running,
                size=Bytes((_COPIES * running + 1) * size),
                free=Bytes(free),
            )
        )
    return left // size
