"""Put our attention in the place of PyTorch's in transformers: a plugin of pytest.

Its tests that compare `sdpa` with its own eager attention then compare ours. What ours refuses,
dropout, runs as before: such calls are counted as theirs in what a test prints.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from torch import Tensor, nn

_OTHER_SUBJECTS = {
    "test_fsdp_mixin": "FSDPTesterMixin",
    "test_tensor_parallel_mixin": "TensorParallelTesterMixin",
    "test_training_mixin": "TrainingTesterMixin",
    "test_pipeline_mixin": "PipelineTesterMixin",
}
"""Modules whose tests have nothing to do with attention, and the class that others import: they
need a transformers of exactly their version, and are left out."""


def pytest_configure() -> None:
    """Register ours under the name of PyTorch's attention."""
    from transformers import AttentionInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    from gpudeck.accel.attention.frameworks.transformers import attention_forward

    def attend(module: nn.Module, *tensors: Tensor | None, **asked: Any) -> tuple[Tensor, None]:
        if asked.get("dropout") and module.training:
            print("ran by torch: dropout")
            return sdpa_attention_forward(module, *tensors, **asked)
        print("ran by ours")
        return attention_forward(module, *tensors, **{**asked, "dropout": 0.0})

    AttentionInterface.register("sdpa", attend)
    for name, mixin in _OTHER_SUBJECTS.items():
        module = ModuleType(f"tests.{name}")
        setattr(module, mixin, type(mixin, (), {}))
        sys.modules[module.__name__] = module
