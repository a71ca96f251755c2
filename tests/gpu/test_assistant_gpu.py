"""The assistant's model on a GPU: the CPU's logits, stopping between tokens, and leaving the
GPU. On a machine with a GPU:

python -m pytest tests/gpu -n 0
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from gpudeck.accel.rwkv.model import RWKV7
from gpudeck.accel.rwkv.tokenizer import VOCABULARY
from gpudeck.accel.serving.request import Piece, Request, Sampling
from gpudeck.assistant.client import Assistant
from gpudeck.assistant.completion import Wanted
from gpudeck.assistant.engine.engine import Engine
from gpudeck.assistant.host.server import log_file
from gpudeck.assistant.host_protocol import CompletionRequest
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.devices.processes import ProcessTable
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.jobs import Running
from tests.support import eventually, lives
from tests.unit.accel.rwkv.rwkv_models import random_model, to_hf, write_hf

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA GPU", allow_module_level=True)

BYTES = {i + 1: bytes([i]) for i in range(256)}
"""Token i + 1 is the byte i."""
CHUNK = 512
PROMPT = [(i * 37) % 320 for i in range(1, 2 * CHUNK + 20)]
ASKED = CompletionRequest(Wanted(Sampling(seed=7), 40, prompt="Once upon a time", ignore_end=True))
TOLERANCE = 1e-4
"""Of the largest logit: sums in fp32 are taken in another order on a GPU, no more."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A random model whose tokens are bytes."""
    folder = write_hf(tmp_path / "noise-7", to_hf(random_model()))
    (folder / VOCABULARY).write_text(
        "".join(f"{token} {piece!r} 1\n" for token, piece in BYTES.items())
    )
    return folder


# Before the others: a process that has computed on the GPU is on it until it ends, and then the GPU
# is never idle.
def test_the_assistant_uses_an_idle_gpu_and_its_process_is_gone_once_a_job_wants_it(
    home: Path, folder: Path, untouched: None
) -> None:
    with Client() as deck:
        deck.configure(
            model_folder=str(folder),
            model_device="cuda",
            idle_dwell_s=0.0,
            idle_util_percent=100.0,
            telemetry_hz=10.0,
        )
        eventually(
            lambda: (found := deck.snapshot().devices) and all(state.reading for state in found)
        )
        if any(
            process.foreign
            for state in deck.snapshot().devices
            for process in state.reading.processes
        ):
            pytest.skip("somebody else uses the GPU")
        told = Assistant().complete(ASKED)
        pid = holder()
        assert (told.device, told.tokens) == ("cuda", 40)
        assert Assistant(start=False).status().model == "noise-7"
        assert ProcessTable().describe({pid: None})[0].assistant
        job = deck.submit(
            [sys.executable, "-c", "import time; time.sleep(60)"],
            name="wants it",
            gpus=len(deck.snapshot().devices),  # a job that needs one would take another
        )
        eventually(lambda: not lives(pid))
        assert f"job {job.id} " in log_file().read_text().split("ends: ")[1]
        eventually(lambda: isinstance(deck.job(job.id).state, Running))
        asker = Assistant()
        again = asker.complete(
            ASKED, lambda event: asker.use_cpu() if getattr(event, "cpu", False) else None
        )
        assert again.device == "cpu", "the GPU is the job's"
        deck.cancel(job.id)


def holder() -> int:
    """Pid of the assistant: whoever holds its lock."""
    inode = (paths.home() / "assistant.lock").stat().st_ino
    found = [
        line.split()[4]
        for line in Path("/proc/locks").read_text().splitlines()
        if line.split()[5].endswith(f":{inode}")
    ]
    return int(found[0])


@pytest.fixture
def models(folder: Path) -> tuple[RWKV7, RWKV7]:
    """The same model on the CPU and on the GPU, both in fp32."""
    return RWKV7.load(folder), RWKV7.load(folder, "cuda")


def close(here: torch.Tensor, there: torch.Tensor) -> None:
    torch.testing.assert_close(there.cpu(), here, rtol=0, atol=TOLERANCE * float(here.abs().max()))


def test_prefill_and_decode_give_the_cpus_logits_and_states(models: tuple[RWKV7, RWKV7]) -> None:
    (here, here_state), (there, there_state) = (model.forward(PROMPT) for model in models)
    assert there.is_cuda
    close(here, there)
    for _ in range(32):
        token = int(here.argmax())
        here, here_state = models[0].forward([token], here_state)
        there, there_state = models[1].forward([token], there_state)
        close(here, there)
    close(here_state.wkv, there_state.wkv)


def test_a_kept_state_gives_the_same_logits_again(models: tuple[RWKV7, RWKV7]) -> None:
    """Rewinding is exact on a GPU too."""
    _, state = models[1].forward(PROMPT[:CHUNK])
    first, _ = models[1].forward([7], state)
    models[1].forward(PROMPT[CHUNK : 2 * CHUNK], state)
    again, _ = models[1].forward([7], state)
    assert torch.equal(first, again)


def test_a_text_that_is_cut_off_goes_on_in_another_engine_with_the_same_bits(
    home: Path, folder: Path
) -> None:
    """bf16, as the assistant runs it: tokens that were written are read one by one, as before."""
    prompt = tuple(range(1, 200))
    asked = Request(prompt, 300, Sampling(top_p=0.9, seed=5), ignore_end=True)

    def tokens(request: Request) -> list[int]:
        engine = Engine(str(folder), "cuda")
        pieces = [e for e in engine.answer(request, lambda: False) if isinstance(e, Piece)]
        engine.retire()
        return [choice.token for piece in pieces for choice in piece.choices]

    whole = tokens(asked)
    for cut in (20, 90, 150):
        begun = replace(asked, prompt=(*prompt, *whole[:cut]), written=(199, 199 + cut))
        assert tokens(begun) == whole[cut:]


def test_in_bf16_as_the_assistant_runs_it_the_logits_are_near(
    folder: Path, models: tuple[RWKV7, RWKV7]
) -> None:
    here, _ = models[0].forward(PROMPT[:64])
    there, _ = RWKV7.load(folder, "cuda", torch.bfloat16).forward(PROMPT[:64])
    assert torch.nn.functional.cosine_similarity(here, there.float().cpu(), dim=0) > 0.99
