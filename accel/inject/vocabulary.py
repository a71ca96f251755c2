"""List the operations that a scan knows, by the part they play in attention."""

from __future__ import annotations

from gpudeck.language.text import Message, Text, phrase

PRODUCTS = frozenset(("matmul", "bmm", "einsum", "baddbmm"))
"""Functions of torch that multiply two tensors."""
SOFTMAX = frozenset(("torch.softmax", "torch.nn.functional.softmax"))
SCALES = {"mul": "scale", "multiply": "scale", "div": "scale", "divide": "scale",
          "true_divide": "scale", "add": "bias", "sub": "bias", "subtract": "bias"}  # fmt: skip
MASKS = frozenset(("masked_fill", "where"))
LAYOUT = frozenset((
    "view", "reshape", "permute", "transpose", "swapaxes", "swapdims", "unsqueeze", "squeeze",
    "flatten", "unflatten", "contiguous", "clone",
))  # fmt: skip
VIEWS = (LAYOUT - {"clone", "contiguous"}) | frozenset((
    "T", "mT", "H", "mH", "t", "data", "detach", "chunk", "split", "unbind", "narrow", "select",
    "expand", "expand_as", "view_as", "diagonal", "movedim",
))  # fmt: skip
"""Methods and attributes whose result shares the elements of a tensor."""
CASTS = frozenset(("float", "half", "bfloat16", "to", "type", "type_as"))
NEW = ("new_full", "new_zeros", "new_ones", "new_empty", "new_tensor")
"""Methods that make a tensor of the precision and on the device of another one."""
FACTS = frozenset((
    "size", "dim", "ndimension", "numel", "get_device", "is_floating_point", *NEW,
))  # fmt: skip
"""Methods that tell something about a tensor without reading its elements."""
FACT_ATTRIBUTES = frozenset(("shape", "dtype", "device", "ndim", "is_cuda", "requires_grad"))
REFUSED = {
    "topk": phrase("only the largest scores are kept (top-k)"),
    "kthvalue": phrase("only the largest scores are kept (top-k)"),
    "sort": phrase("the scores are sorted"),
    "gumbel_softmax": phrase("Gumbel softmax is not softmax"),
    "log_softmax": phrase("log-softmax is not softmax"),
    "sigmoid": phrase("the weights are sigmoids, not a softmax"),
    "relu": phrase("the weights are rectified, not a softmax"),
    "exp": phrase("the softmax is written by hand from exponentials"),
    "sparsemax": phrase("sparsemax is not softmax"),
    "entmax": phrase("entmax is not softmax"),
    "detach": phrase("the scores or weights are used beside the output"),
    "clamp": phrase("the scores are clamped"),
}
"""Why an operation makes an attention one that we do not compute."""
MODULES = {
    "torch.nn.Softmax": "softmax", "torch.nn.Identity": "identity", "torch.nn.Dropout": "dropout",
    "torch.nn.Dropout1d": "dropout", "torch.nn.Dropout2d": "dropout",
}  # fmt: skip
SDPA = "torch.nn.functional.scaled_dot_product_attention"
_CALLER = phrase("it is fused already; its caller chooses what runs")
MODEL_LIBRARIES = frozenset(("diffusers", "peft", "sentence_transformers", "timm", "transformers"))
"""Libraries whose models compute attention by torch's fused function."""
_PATCH = "accel.inject.patch(model)"


def _same(function: str) -> Text:
    return phrase("it is fused already; {function} has the same arguments", function=function)


def _divided(instead: Text) -> Text:
    return phrase("it divides the sequence among GPUs; {instead}", instead=instead)


_OVER_GPUS = phrase(
    "{function} computes the same, bit-equal to one GPU where keys are gathered",
    function="accel.distributed.distributed_attention",
)
LIBRARY: dict[str, tuple[Message, Message]] = {
    "torch.nn.MultiheadAttention": (
        "torch.nn.MultiheadAttention",
        phrase("its source is torch's own; {call} links its instances", call=_PATCH),
    ),
    "torch.nn.functional.multi_head_attention_forward": (
        "torch.nn.functional.multi_head_attention_forward",
        phrase("its source is torch's own; {call} runs ours under its fused path on CUDA",
               call="accel.install()"),
    ),
    "torch.nn.attention.flex_attention.flex_attention": (
        "FlexAttention", phrase("its mask and scores are programs, which torch.compile fuses"),
    ),
    "flash_attn.flash_attn_func": ("flash-attn", _same("accel.flash_attn_func")),
    "flash_attn.flash_attn_varlen_func": ("flash-attn", _same("accel.flash_attn_varlen_func")),
    "flash_attn.flash_attn_qkvpacked_func": ("flash-attn", _CALLER),
    "flash_attn.flash_attn_kvpacked_func": ("flash-attn", _CALLER),
    "flash_attn.flash_attn_with_kvcache": ("flash-attn", _CALLER),
    "xformers.ops.memory_efficient_attention": ("xformers", _CALLER),
    "torch.distributed.tensor.experimental.context_parallel": (
        "context_parallel",
        _divided(phrase("{function} has the same arguments",
                        function="accel.distributed.frameworks.torch.context_parallel")),
    ),
    **dict.fromkeys(
        ("ring_flash_attn.ring_flash_attn_func", "ring_flash_attn.zigzag_ring_flash_attn_func"),
        ("ring-flash-attn", _divided(_OVER_GPUS)),
    ),
    **dict.fromkeys(
        ("yunchang.LongContextAttention", "yunchang.UlyssesAttention"),
        ("yunchang", _divided(_OVER_GPUS)),
    ),
    "transformers.modeling_utils.ALL_ATTENTION_FUNCTIONS": (
        phrase("transformers' attention interface"),
        phrase("nothing needs to change: load the model with {option}",
               option='attn_implementation="gpudeck"'),
    ),
    "timm.layers.Attention": (
        phrase("Attention of {library}", library="timm"),
        phrase("its source is timm's; {call} links its instances", call=_PATCH),
    ),
    "diffusers.models.attention_processor.Attention": (
        phrase("Attention of {library}", library="diffusers"),
        phrase("{call} links the processors of its instances", call=_PATCH),
    ),
}  # fmt: skip
"""Library calls that are left alone: what they are called, and what to do instead."""
ALIASES = {
    "flash_attn.flash_attn_interface": "flash_attn",
    "...modeling_utils": "transformers.modeling_utils",
    "xformers.ops.fmha": "xformers.ops",
    "torch.distributed.tensor.experimental._attention": "torch.distributed.tensor.experimental",
}
LINK = "gpudeck.accel.inject.link"


def canonical(name: str) -> str:
    """Return the name under which this module lists a function of a library."""
    home, _, last = name.rpartition(".")
    return f"{ALIASES.get(home, home)}.{last}" if home else last


def operation(name: str) -> str:
    """Return the last part of the name of one of torch's functions; '' for others."""
    home, _, last = name.rpartition(".")
    return last if home in ("torch", "torch.nn.functional", "torch.Tensor") else ""
