"""Describe a training run in one structure, for the form, the command line, TOML and Python.

The module needs no torch. `gpudeck.accel.workloads.catalog` makes the fields of the form from the
annotations here: title, description, limits, and in `extra` the part of the form (`group`), the
default on a CPU (`cpu`), and what is chosen where the value is `AUTO` (`auto`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from gpudeck.accel.training.errors import Refused
from gpudeck.language.text import phrase

AUTO = "0"
"""The value of a text that is chosen by itself."""
LION_RATE = 0.2
"""The chosen rate for Lion as a share of AdamW's: its steps are larger, and its paper advises a
rate 3 to 10 times smaller (arXiv 2302.06675, section 5)."""


def _meta(
    title: str,
    description: str,
    low: float | None = None,
    high: float | None = None,
    **extra: str,
) -> Meta:
    return Meta(title=title, description=description, ge=low, le=high, extra=extra)


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Describe a run; two runs with equal settings, data and devices are equal."""

    data: Annotated[
        str,
        _meta(
            "Data",
            "a file of text, JSONL or Parquet, or a folder of them",
            auto="the manual of GPU Deck",
        ),
    ] = AUTO
    model: Annotated[
        Literal[
            "tiny",
            "15M",
            "124M",
            "350M",
            "774M",
            "1.5B",
            "rwkv7-tiny",
            "rwkv7-0.1B",
            "rwkv7-0.4B",
            "rwkv7-1.5B",
        ],
        _meta(
            "Model",
            "size of the new model; rwkv7: an RWKV-7 instead of a transformer",
            group="Shape",
            cpu="tiny",
        ),
    ] = "124M"
    base: Annotated[
        str,
        _meta("Train further", "the folder of a model, in Hugging Face's layout", auto="a new one"),
    ] = AUTO
    method: Annotated[
        Literal["full", "lora", "state"],
        _meta(
            "Method",
            "with base: change all weights, train small matrices beside them, or the first state of"
            " an RWKV-7",
        ),
    ] = "full"
    rank: Annotated[int, _meta("Rank", "lora: the size of the small matrices", 1, 4096)] = 16
    alpha: Annotated[
        float, _meta("Alpha", "lora: the small matrices count alpha / rank times", 0.0, 1e6)
    ] = 32.0
    quantize: Annotated[
        bool, _meta("Quantize", "lora: keep the frozen matrices in 4 bits (QLoRA)")
    ] = False
    tokenizer: Annotated[
        str,
        _meta(
            "Tokenizer",
            "a tokenizer.json, or a model's folder; for RWKV-7 its vocabulary",
            auto="that of base; for a new model, one token for each byte",
        ),
    ] = AUTO
    out: Annotated[
        str,
        _meta(
            "Folder",
            "where checkpoints and the model go; a run that is there continues",
            auto="a folder among the job's artefacts",
        ),
    ] = AUTO
    steps: Annotated[
        int, _meta("Steps", "how often the weights change", 1, 10**9, group="Shape", cpu="60")
    ] = 1000
    batch: Annotated[
        int, _meta("Batch", "sequences in a step", 1, 2**20, group="Shape", cpu="8")
    ] = 32
    tokens: Annotated[
        int, _meta("Tokens", "tokens in a sequence", 8, 2**20, group="Shape", cpu="128")
    ] = 1024
    accumulate: Annotated[
        int,
        _meta(
            "Parts", "parts in which a step is computed, to save memory", 1, 2**20, group="Shape"
        ),
    ] = 1
    documents: Annotated[
        bool,
        _meta("Documents", "a token sees only its own document", group="Shape"),
    ] = True
    precision: Annotated[
        Literal["bfloat16", "fp8", "float32"],
        _meta(
            "Precision",
            "type of the products; fp8: in FP8 those that are faster, the others in bfloat16",
            group="Precision",
            cpu="float32",
        ),
    ] = "bfloat16"
    deterministic: Annotated[
        bool,
        _meta(
            "Deterministic",
            "a repeated or continued run is equal to the last bit, which may be slower on a GPU",
            group="Precision",
            cpu="yes",
        ),
    ] = False
    compile: Annotated[
        bool,
        _meta("Compile", "use torch.compile", group="Precision", cpu="no"),
    ] = True
    recompute: Annotated[
        bool,
        _meta("Recompute", "compute layers again in the backward pass, to save memory"),
    ] = False
    shard: Annotated[
        Literal["weights", "gradients"],
        _meta(
            "Divided",
            "with torchrun: weights, gathered for each pass; or only gradients and optimizer",
        ),
    ] = "weights"
    split: Annotated[
        Literal["sequences", "tokens"],
        _meta(
            "Split",
            "with torchrun: what each process computes; tokens: a part of each long sequence",
        ),
    ] = "sequences"
    optimizer: Annotated[
        Literal["adamw", "lion", "muon"],
        _meta(
            "Optimizer",
            "lion remembers half as much; muon changes the matrices of layers, adamw the rest",
        ),
    ] = "adamw"
    moments: Annotated[
        Literal["float32", "8bit"],
        _meta("Moments", "what the optimizer remembers; 8bit: in about a quarter of the memory"),
    ] = "float32"
    rate: Annotated[
        float,
        _meta("Rate", "highest learning rate", 0.0, 1.0, auto="by model, method and optimizer"),
    ] = 0
    warmup: Annotated[float, _meta("Warm-up", "share of the steps", 0.0, 1.0)] = 0.05
    schedule: Annotated[
        Literal["cosine", "wsd"],
        _meta("Schedule", "course of the rate; wsd: warm-up, stable, decay"),
    ] = "cosine"
    decay: Annotated[
        float, _meta("Decay", "wsd: share of the steps in which the rate decays", 0.0, 1.0)
    ] = 0.2
    final: Annotated[float, _meta("Last rate", "as a share of the highest", 0.0, 1.0)] = 0.1
    weight_decay: Annotated[float, _meta("Weight decay", "of matrices", 0.0, 1.0)] = 0.1
    clip: Annotated[
        float, _meta("Clip", "highest norm of the gradient; 0: not clipped", 0.0, 1e6)
    ] = 1.0
    average: Annotated[
        float,
        _meta(
            "Average",
            "share that a moving average of the weights keeps in a step, such as 0.999; the average"
            " is evaluated and written; 0: no average",
            0.0,
            0.999999,
        ),
    ] = 0.0
    spike: Annotated[
        float,
        _meta(
            "Spike",
            "a gradient this many times as long as the median of the last hundred ends the run, as"
            " one that is not finite does; 0: none",
            0.0,
            1e6,
        ),
    ] = 0.0
    rewind: Annotated[
        int,
        _meta(
            "Rewind",
            "how often the run goes back to its newest checkpoint instead, and leaves out the"
            " batch",
            0,
            1000,
        ),
    ] = 0
    held_out: Annotated[
        float, _meta("Held out", "share of the data that is never trained on", 0.0, 0.5)
    ] = 0.05
    evaluate: Annotated[
        int, _meta("Evaluate", "steps between two held-out losses", 1, 10**9, cpu="20")
    ] = 100
    checkpoint: Annotated[
        int, _meta("Checkpoint", "steps between two checkpoints", 1, 10**9, cpu="20")
    ] = 100
    patience: Annotated[
        int,
        _meta(
            "Patience",
            "checkpoints without a lower held-out loss after which the run ends early; 0: never",
            0,
            10**6,
        ),
    ] = 0
    keep: Annotated[int, _meta("Keep", "newest checkpoints, beside the best", 1, 1000)] = 2
    skip_broken: Annotated[
        bool, _meta("Skip broken", "train without the parts of the data that cannot be read")
    ] = False
    estimate: Annotated[
        bool, _meta("Estimate", "stop after a few steps: memory, speed, time and energy")
    ] = False
    seed: Annotated[int, _meta("Seed", "of the weights and of the data's order", 0, 2**31)] = 0

    @property
    def highest_rate(self) -> float:
        """Return the highest learning rate, chosen if it is not given."""
        if self.rate:
            return self.rate
        share = LION_RATE if self.optimizer == "lion" else 1.0
        if self.base == AUTO:
            return share * (3e-3 if self.model in ("tiny", "rwkv7-tiny") else 6e-4)
        return share * {"full": 2e-5, "lora": 2e-4, "state": 0.3}[self.method]

    @property
    def frozen(self) -> bool:
        """Return whether the weights of the model stay as they are."""
        return self.method != "full"

    @property
    def most_without_gain(self) -> int | None:
        """Return the steps without a lower held-out loss that end a run; None if none do."""
        return self.patience * self.checkpoint or None

    @property
    def dtype(self) -> str:
        """Return the type of what lies between two products."""
        return "float32" if self.precision == "float32" else "bfloat16"

    def __post_init__(self) -> None:
        if self.frozen and self.precision == "fp8":
            raise Refused(phrase("frozen weights are not multiplied in FP8. Choose bfloat16"))
        if self.frozen and self.base == AUTO:
            raise Refused(
                phrase("method={method} trains a model that there is. Name its folder as base",
                       method=self.method)
            )  # fmt: skip
        if self.quantize and self.method != "lora":
            raise Refused(phrase("only frozen matrices are quantized. Choose method=lora"))
        if self.method == "state" and self.optimizer == "muon":
            raise Refused(phrase("Muon changes matrices, not states. Choose adamw or lion"))
        if self.patience and not self.held_out:
            raise Refused(
                phrase("patience compares held-out losses. Choose a share held_out above 0")
            )
        if self.batch % self.accumulate:
            raise Refused(
                phrase(
                    "batch {batch} cannot be divided into {parts} parts. Choose a batch that is a"
                    " multiple of accumulate",
                    batch=self.batch,
                    parts=self.accumulate,
                )
            )


CHANGEABLE = (
    "data", "out", "evaluate", "checkpoint", "patience", "keep", "skip_broken", "estimate", "spike",
    "rewind",
)  # fmt: skip
"""Settings that a continued run may change; others would make it another run. The data is compared
by its tokens, wherever it lies."""


def settings_of(given: Mapping[str, str | int | float | bool]) -> Settings:
    """Return the settings that are given as texts or as values.

    Raises:
        Refused: if one is unknown, or its value is not valid.
    """
    words = {"yes": True, "no": False}
    values = {name: words.get(str(value), value) for name, value in given.items()}
    try:
        return msgspec.convert(values, Settings, strict=False)
    except msgspec.ValidationError as e:
        raise Refused(phrase("the settings are not valid: {why}", why=str(e))) from e


def write(settings: Settings, file: Path) -> None:
    """Write settings as TOML, which `gpudeck run train --settings FILE` reads."""
    lines = (
        f"{name} = {msgspec.json.encode(getattr(settings, name)).decode()}\n"
        for name in settings.__struct_fields__
    )
    file.write_text("".join(lines))


def differing(first: Settings, now: Settings) -> list[str]:
    """Return the settings in which a continued run would not be the first run any more."""
    return [
        name
        for name in first.__struct_fields__
        if name not in CHANGEABLE and getattr(first, name) != getattr(now, name)
    ]
