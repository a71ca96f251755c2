"""Train a model by its settings, from the data to a folder that can be served."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import torch

from gpudeck.accel.primitives.quantize.fp8 import native
from gpudeck.accel.runtime import state_files
from gpudeck.accel.runtime.capability import ComputeDevice
from gpudeck.accel.training import adapters
from gpudeck.accel.training.batches import Batches
from gpudeck.accel.training.checkpoint import Checkpoints
from gpudeck.accel.training.determinism import determinism
from gpudeck.accel.training.errors import Refused
from gpudeck.accel.training.export import write_model
from gpudeck.accel.training.journal import Journal
from gpudeck.accel.training.loop import Run, Watch
from gpudeck.accel.training.ranks import count_ranks, rank_of
from gpudeck.accel.training.settings import AUTO, Settings, write
from gpudeck.accel.training.shards import Report, TokenData, prepare
from gpudeck.accel.training.start import start_of, tokenizer_of, trains_recurrent
from gpudeck.accel.training.tokenizers import Tokenizer
from gpudeck.language.text import phrase

SETTINGS_FILE = "settings.toml"


@contextmanager
def opened(
    settings: Settings, out: Path, device: ComputeDevice, watch: Watch, report: Report
) -> Iterator[Run]:
    """Yield a run that is ready for `train`, continued where the folder has checkpoints of it.

    Args:
        settings: what to train; `out` in it is not read.
        out: the folder of checkpoints, metrics and model.
        device: what computes.
        watch: follows the run.
        report: receives the progress of reading data.

    Raises:
        Refused: if settings, data or folder cannot be used.
        ModelRefused: if the model that is trained further cannot be used.
        OSError: if a file cannot be read or written.
    """
    if settings.dtype == "bfloat16" and (device.capability or (8, 0)) < (8, 0):
        raise Refused(phrase("{device} has no bfloat16. Choose float32", device=str(device)))
    if settings.precision == "fp8" and not native(device.torch_device):
        raise Refused(phrase("{device} has no FP8. Choose bfloat16", device=str(device)))
    by_tokens = settings.split == "tokens"
    if not by_tokens and settings.batch % (settings.accumulate * count_ranks()):
        raise Refused(
            phrase("batch {batch} cannot be divided among {count} processes in {parts} parts",
                   batch=settings.batch, count=count_ranks(), parts=settings.accumulate)
        )  # fmt: skip
    if count_ranks() > 1 and by_tokens and trains_recurrent(settings):
        raise Refused(phrase("an RWKV-7 reads its tokens in order. Choose split=sequences"))
    tokenizer = tokenizer_of(settings)
    start = start_of(settings, tokenizer)
    data = open_data(settings, tokenizer, report)
    if data.index.highest >= start.config.vocabulary:
        raise Refused(
            phrase(
                "the tokenizer makes tokens up to {highest}, but the model has only {count}. Choose"
                " its own tokenizer",
                highest=data.index.highest,
                count=start.config.vocabulary,
            )
        )
    with torch.enable_grad(), determinism(wanted=settings.deterministic):
        run = Run(
            settings, start, tokenizer,
            Batches(data, settings), data.index.fingerprint, device,
            Checkpoints(out, settings.keep), Journal(out, rank_of()), watch,
        )  # fmt: skip
        try:
            run.resume()
            if run.ranks.first:
                write(settings, out / SETTINGS_FILE)
            yield run
        finally:
            run.close()


def write_out(run: Run, out: Path) -> None:
    """Write the model of a run in Hugging Face's layout, and what was trained beside
    it. Raises OSError."""
    first, method = run.ranks.first, run.settings.method
    with run.shown():
        if first and method == "lora":
            adapters.write_adapter(run.model, run.settings, out / adapters.FOLDER)
        if first and method == "state":
            adapters.write_states(run.model, out / adapters.STATES)
        write_model(run.model, run.start.raw, run.tokenizer, run.dtype, out, first=first)


def open_data(settings: Settings, tokenizer: Tokenizer, report: Report) -> TokenData:
    """Return the tokens of the data, which are kept for later runs. Raises Refused."""
    path = manual() if settings.data == AUTO else Path(settings.data).expanduser()
    cache = state_files.state_folder() / "tokens"
    return prepare(path, tokenizer, cache, skip_broken=settings.skip_broken, report=report)


def manual() -> Path:
    """Return the folder of the manual, which is in every installation."""
    found = find_spec("gpudeck.docs")
    assert found is not None
    return Path(next(iter(found.submodule_search_locations or ()))) / "manual"
