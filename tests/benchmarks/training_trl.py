"""Train small matrices beside a frozen model by TRL's own trainer, with peft."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch

from tests.benchmarks.training_runs import Meter, Turn, say


def trl_turns(
    config: dict[str, Any], tokens: int, rounds: int, steps: int, folder: Path, attention: str,
    *, liger: bool,
) -> list[Turn]:  # fmt: skip
    """Return what turns of TRL's SFTTrainer took, each of some steps of one packed sequence.

    Args:
        config: the config.json of the frozen model, whose weights are random.
        tokens: of a sequence; every sequence of the data is as long, so nothing is padded.
        rounds: the turns that count; one more comes before them.
        steps: of a turn.
        folder: where the trainer writes.
        attention: transformers' name of what computes attention.
        liger: whether liger-kernel's layers and loss take the place of transformers' own.
    """
    from datasets import Dataset
    from peft import LoraConfig
    from tokenizers import Tokenizer, models
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
    from trl import SFTConfig, SFTTrainer

    known = {n: v for n, v in config.items() if n not in ("architectures", "model_type")}
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(device):
        base = LlamaForCausalLM._from_config(LlamaConfig(**known), attn_implementation=attention)
    torch.set_default_dtype(torch.float32)
    words = Tokenizer(models.WordLevel({"<s>": 0, "</s>": 1}, unk_token="<s>"))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, eos_token="</s>", pad_token="</s>", unk_token="<s>"
    )
    rows = torch.randint(0, known["vocab_size"], (4, tokens)).tolist()
    data = Dataset.from_dict({"input_ids": rows, "labels": rows})
    names = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    settings = SFTConfig(
        output_dir=str(folder / "trl"), max_steps=(rounds + 1) * steps, max_length=tokens,
        per_device_train_batch_size=1, learning_rate=2e-4, bf16=device == "cuda",
        use_cpu=device == "cpu", gradient_checkpointing=False, optim="adamw_torch_fused",
        use_liger_kernel=liger, logging_steps=10**6, save_strategy="no", report_to=[],
        disable_tqdm=True, dataloader_num_workers=0,
        dataset_kwargs={"skip_prepare_dataset": True},
    )  # fmt: skip
    clock = _clock(steps)
    SFTTrainer(
        base, args=settings, train_dataset=data, processing_class=tokenizer, callbacks=[clock],
        peft_config=LoraConfig(r=16, lora_alpha=32, target_modules=names, task_type="CAUSAL_LM"),
    ).train()  # fmt: skip
    found: list[Turn] = clock.turns[1:]
    return found


def _clock(steps: int) -> Any:
    """Return a callback of transformers' trainer that measures turns of some steps."""
    from transformers import TrainerCallback

    class Clock(TrainerCallback):  # type: ignore[misc]
        def __init__(self) -> None:
            self.turns: list[Turn] = []
            self._meter, self._before, self._began = Meter(), 0.0, 0.0

        def on_train_begin(self, *_: Any, **__: Any) -> None:
            self._restart()

        def _restart(self) -> None:
            self._before, self._began = self._meter.joules() or 0.0, time.perf_counter()

        def on_step_end(self, _: Any, state: Any, *__: Any, **___: Any) -> None:
            if state.global_step % steps:
                return
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            seconds, now = (time.perf_counter() - self._began) / steps, self._meter.joules()
            self.turns.append(Turn(seconds, None if now is None else (now - self._before) / steps))
            say(f"TRL: {1e3 * seconds:.2f} ms a step")
            self._restart()

    return Clock()
