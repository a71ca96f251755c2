"""Trainer, PEFT and diffusers work with our attention, and the losses are those of sdpa."""

from __future__ import annotations

import pytest
import torch

from gpudeck.accel.attention.frameworks.transformers import register
from gpudeck.accel.inject import record
from gpudeck.accel.inject.live import Stacked, patch

pytestmark = pytest.mark.filterwarnings("default")  # the packages' own deprecations


def need(package):
    return pytest.importorskip(
        package, reason=f"{package} is not installed; make frameworks installs it"
    )


def llama(implementation):
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=61, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, pad_token_id=0, use_cache=False,
    )  # fmt: skip
    torch.manual_seed(0)
    return transformers.AutoModelForCausalLM.from_config(config, attn_implementation=implementation)


def rows():
    generator = torch.Generator().manual_seed(1)
    made = []
    for n in range(8):
        ids = torch.randint(3, 61, (12,), generator=generator)
        mask = torch.ones(12, dtype=torch.long)
        mask[12 - n % 4 :] = 0
        labels = ids.masked_fill(mask == 0, -100)
        made.append({"input_ids": ids * mask, "attention_mask": mask, "labels": labels})
    return made


def losses(net, folder):
    """Train for six steps, and return the loss of each."""
    import transformers

    arguments = transformers.TrainingArguments(
        output_dir=str(folder), max_steps=6, per_device_train_batch_size=4, learning_rate=1e-2,
        logging_steps=1, report_to=[], save_strategy="no", use_cpu=True, seed=0, disable_tqdm=True,
        gradient_checkpointing=True, gradient_checkpointing_kwargs={"use_reentrant": False},
    )  # fmt: skip
    trainer = transformers.Trainer(net, arguments, train_dataset=rows())
    trainer.train()
    return [row["loss"] for row in trainer.state.log_history if "loss" in row]


def test_trainer_reports_the_losses_of_sdpa(tmp_path):
    need("accelerate")
    register()
    ours, theirs = (losses(llama(name), tmp_path) for name in ("gpudeck", "sdpa"))
    assert len(ours) == 6 and ours[-1] < ours[0]
    assert ours == pytest.approx(theirs, rel=1e-4)


def test_peft_trains_the_same_adapters(tmp_path):
    peft = need("peft")
    register()
    made = []
    for name in ("gpudeck", "sdpa"):
        torch.manual_seed(2)
        lora = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
        net = peft.get_peft_model(llama(name), lora)
        assert net.base_model.model.config._attn_implementation == name
        made.append(losses(net, tmp_path))
    assert made[0] == pytest.approx(made[1], rel=1e-4)


@pytest.fixture
def unet():
    diffusers = need("diffusers")
    torch.manual_seed(0)
    return diffusers.UNet2DConditionModel(
        sample_size=8, in_channels=2, out_channels=2, block_out_channels=(8, 16), norm_num_groups=4,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), cross_attention_dim=16,
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"), layers_per_block=1,
        attention_head_dim=4,
    ).eval()  # fmt: skip


def denoised(net):
    generator = torch.Generator().manual_seed(1)
    sample = torch.randn(2, 2, 8, 8, generator=generator)
    words = torch.randn(2, 5, 16, generator=generator)
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]], dtype=torch.bool)
    with torch.no_grad():
        return net(sample, 3, words, encoder_attention_mask=mask).sample


def test_the_processors_of_diffusers_are_linked_and_restored(unet):
    from diffusers.models.attention_processor import AttnProcessor2_0

    expected = denoised(unet)
    before = {name: id(p) for name, p in unet.attn_processors.items()}
    record.clear()
    with patch(unet) as patched:
        assert patched.linked == ["AttnProcessor2_0.__call__"]
        torch.testing.assert_close(denoised(unet), expected, rtol=1e-4, atol=1e-5)
        assert {row["what"] for row in record.report()} == {"linked"}
        assert all(isinstance(p, AttnProcessor2_0) for p in unet.attn_processors.values())
        with pytest.raises(Stacked, match="replaced already"):
            patch(unet)
    assert {name: id(p) for name, p in unet.attn_processors.items()} == before
    record.clear()
    assert torch.equal(denoised(unet), expected)
    assert record.report() == []


def test_a_processor_that_was_set_meanwhile_is_not_lost(unet):
    from diffusers.models.attention_processor import AttnProcessor2_0

    patched = patch(unet)
    unet.set_attn_processor(AttnProcessor2_0())
    with pytest.raises(Stacked, match="replaced by another patcher since"):
        patched.undo()
